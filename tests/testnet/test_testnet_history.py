"""The histories that a subscriber may see, and the breaches that a checker must find in others."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.log.recent import Epoch
from medusa.testnet.kit.answers import History, Received

BOUNDARIES = st.lists(st.integers(0, 10_000), min_size=1, max_size=20, unique=True).map(sorted)


def in_order(boundaries: list[int]) -> list[Received]:
    """Draw epochs that follow each other, with tuples at both ends of their intervals."""
    after = BEGINNING
    epochs = []
    for number, upto in enumerate([*boundaries, END]):
        epochs.append(Received(float(number), after, upto, after + 1, upto))
        after = upto
    return epochs


def faults(*epochs: Received) -> tuple[str, ...]:
    return History({"busy": list(epochs)}).faults()


@given(boundaries=BOUNDARIES)
def test_epochs_that_follow_each_other_are_faultless(boundaries: list[int]) -> None:
    assert not faults(*in_order(boundaries))


@given(boundaries=BOUNDARIES, data=st.data())
def test_one_missing_repeated_or_swapped_is_found(
    boundaries: list[int], data: st.DataObject
) -> None:
    epochs = in_order(boundaries)
    at = data.draw(st.integers(0, len(epochs) - 2))
    assert faults(*epochs[:at], *epochs[at + 1 :])
    assert faults(*epochs[: at + 1], *epochs[at:])
    assert faults(*epochs[:at], epochs[at + 1], epochs[at], *epochs[at + 2 :])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"after": 4}, "(4, 20] goes back behind 10"),
        ({"after": 12, "first": 13}, "(12, 20] leaves out what follows 10"),
        ({"upto": 10, "first": None, "last": None}, "(10, 10] is no interval"),
        ({"first": 10}, "(10, 20] has a tuple of stime 10"),
        ({"last": 21}, "(10, 20] has a tuple of stime 21"),
    ],
)
def test_each_fault_is_named(change: dict[str, int | None], said: str) -> None:
    good = Received(1.0, 10, 20, 11, 20)
    before = Received(0.0, BEGINNING, 10)
    assert not faults(before, good)
    assert faults(before, replace(good, **change))[0] == f"busy: {said}"  # type: ignore[arg-type]


def test_an_epoch_is_kept_by_its_ends() -> None:
    table = pa.table({"stime": pa.array([3, 5, 9], pa.int64())})
    assert Received.of(Epoch(2, 10, table), 7.0) == Received(7.0, 2, 10, 3, 9)
    assert Received.of(Epoch(2, 10, table.slice(0, 0)), 7.0) == Received(7.0, 2, 10, None, None)


def test_the_longest_pause_of_any_stream() -> None:
    history = History()
    assert history.longest_pause_s(0.0) == 0.0
    assert history.last_at() is None
    for stream, times in (("busy", (1.0, 2.0, 9.0)), ("scan", (5.0, 8.0, 8.5))):
        for at in times:
            history.add(stream, Received(at, 0, 1))
    assert history.longest_pause_s(0.0) == 7.0
    assert history.longest_pause_s(3.0) == 6.0
    assert history.last_at() == 9.0
