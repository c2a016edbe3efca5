"""Corrections that a client receives when tentative tuples turn out to be wrong, and repeated
rows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, STIME
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.ordering import repeated
from medusa.engine.streams.revisions import corrections
from medusa.engine.streams.revisions.corrections import (
    Change,
    Corrections,
    Kind,
    corrector,
    difference,
)

SCHEMA = pa.schema(
    [pa.field(STIME, pa.int64(), nullable=False), ("key", pa.string()), ("value", pa.float64())]
)
Row = tuple[int, str | None, float | None]


def table(rows: Sequence[Row]) -> pa.Table:
    ordered = sorted(rows, key=lambda row: (row[0], row[1] or "~", row[2] or 0.0))
    columns = list(zip(*ordered, strict=True)) if ordered else [[], [], []]
    return pa.table([pa.array(c) for c in columns], names=SCHEMA.names).cast(SCHEMA)


def epoch(after: int, upto: int, *rows: Row) -> Epoch:
    return Epoch(after, upto, table(rows))


def rows_of(made: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in made.to_pylist()]


def shown(changes: Sequence[Change]) -> list[tuple[str, int, int, list[Row]]]:
    return [(c.kind.value, c.after, c.upto, rows_of(c.table)) for c in changes]


def test_undo_takes_everything_back_and_says_when_all_is_final() -> None:
    undoing = corrector(Corrections.UNDO, 0)
    a, b, c = (1, "a", 1.0), (15, "b", 2.0), (25, "c", 3.0)
    assert shown(undoing.stable(epoch(0, 10, a))) == [("INSERTION", 0, 10, [a])]
    assert shown(undoing.tentative(epoch(10, 20, b))) == [("TENTATIVE", 10, 20, [b])]
    assert shown(undoing.stable(epoch(10, 15, b))) == [
        ("UNDO", 10, 20, []),
        ("INSERTION", 10, 15, [b]),
    ]
    # new results arrive while wrong ones are corrected, and REC_DONE retracts them
    assert shown(undoing.tentative(epoch(20, 30, c))) == [("TENTATIVE", 20, 30, [c])]
    assert shown(undoing.stable(epoch(15, 30, c))) == [
        ("INSERTION", 15, 30, [c]),
        ("REC_DONE", 15, 30, []),
    ]
    assert shown(undoing.stable(epoch(30, 40))) == [("INSERTION", 30, 40, [])]


@pytest.mark.parametrize("how", list(Corrections))
def test_a_reader_of_all_tuples_learns_where_they_begin(how: Corrections) -> None:
    a, b = (8, "a", 1.0), (15, "b", 2.0)
    for tentative in (False, True):
        made = corrector(how, BEGINNING)
        changes = (made.tentative if tentative else made.stable)(epoch(5, 10, a))
        kind = "TENTATIVE" if tentative else "INSERTION"
        assert shown(changes) == [(kind, 5, 10, [a])]
        assert shown(made.tentative(epoch(5, 20, a, b))) == [("TENTATIVE", 10, 20, [b])]


def test_revisions_carry_the_difference_alone() -> None:
    revising = corrector(Corrections.REVISIONS, 0)
    right, wrong, missed = (11, "a", 1.0), (12, "b", 2.0), (13, "c", 3.0)
    new = (25, "d", 4.0)
    revising.tentative(epoch(0, 20, right, wrong))
    assert shown(revising.stable(epoch(0, 30, right, missed, new))) == [
        ("DELETION", 0, 20, [wrong]),
        ("INSERTION", 0, 20, [missed]),
        ("INSERTION", 20, 30, [new]),
    ]


def test_a_tuple_with_the_same_key_is_replaced() -> None:
    revising = corrector(Corrections.REVISIONS, 0, key=("key",))
    revising.tentative(epoch(0, 20, (11, "a", 1.0), (12, "b", 2.0), (13, "c", 5.0)))
    after = epoch(0, 20, (11, "a", 1.5), (12, "b", 2.0), (14, "c", 5.0))
    assert shown(revising.stable(after)) == [
        ("DELETION", 0, 20, [(13, "c", 5.0)]),  # the key includes the stime
        ("REPLACEMENT", 0, 20, [(11, "a", 1.5)]),
        ("INSERTION", 0, 20, [(14, "c", 5.0)]),
        ("INSERTION", 20, 20, []),
    ]


def test_tentative_tuples_beyond_the_limit_are_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    one = epoch(0, 10, (5, "a", 1.0))
    monkeypatch.setattr(corrections, "TENTATIVE_BYTES", one.bytes)
    revising = corrector(Corrections.REVISIONS, 0)
    revising.tentative(one)
    assert shown(revising.tentative(epoch(10, 20, (15, "b", 1.0)))) == [
        ("TENTATIVE", 10, 20, [(15, "b", 1.0)]),
        ("UNDO", 0, 10, []),
    ]
    assert shown(revising.stable(epoch(0, 20, (5, "a", 1.0), (15, "b", 1.0)))) == [
        ("INSERTION", 0, 20, [(5, "a", 1.0)]),
        ("INSERTION", 20, 20, []),
    ]


def test_nulls_and_not_a_number_are_equal_to_themselves() -> None:
    odd = table([(1, None, float("nan")), (2, "a", None)])
    gone, come = difference(odd, table([*rows_of(odd), (3, None, None)]))
    assert gone.num_rows == 0
    assert rows_of(come) == [(3, None, None)]


values = st.tuples(
    st.integers(1, 60), st.sampled_from(["a", "b", None]), st.sampled_from([0.5, 1.0, None])
)


@given(st.lists(values, max_size=40), st.lists(values, max_size=40))
def test_the_difference_is_that_of_two_bags(before: list[Row], now: list[Row]) -> None:
    gone, come = difference(table(before), table(now))
    assert Counter(rows_of(gone)) == Counter(before) - Counter(now)
    assert Counter(rows_of(come)) == Counter(now) - Counter(before)
    for made in (gone, come):
        assert made.column(STIME).to_pylist() == sorted(made.column(STIME).to_pylist())


class Client:
    """A client that applies changes as the protocol says, without knowing their cause."""

    def __init__(self) -> None:
        self.rows: list[tuple[Row, bool]] = []

    def apply(self, change: Change) -> None:
        rows = rows_of(change.table)
        match change.kind:
            case Kind.INSERTION:
                self.rows += [(row, True) for row in rows]
            case Kind.TENTATIVE:
                self.rows += [(row, False) for row in rows]
            case Kind.UNDO:
                self._drop(lambda row, final: not final and change.after < row[0] <= change.upto)
            case Kind.REC_DONE:
                self._drop(lambda _, final: not final)
            case Kind.DELETION:
                for row in rows:
                    self.rows.remove((row, False))
            case Kind.REPLACEMENT:
                for row in rows:
                    self._replace(row)

    def _replace(self, new: Row) -> None:
        self._drop(lambda old, final: not final and old[:2] == new[:2])
        self.rows.append((new, True))

    def _drop(self, gone: Callable[[Row, bool], bool]) -> None:
        self.rows = [each for each in self.rows if not gone(*each)]


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[Row], list[tuple[bool, Epoch]]]:
    """Draw a stream, and two flows of it with arbitrary cuts: stable epochs, and tentative epochs
    of a part."""
    rows = draw(st.lists(values, max_size=30, unique_by=lambda row: row[:2]))
    cuts = sorted(draw(st.sets(st.integers(1, 59), max_size=6)) | {60})
    tentative_cuts = sorted(draw(st.sets(st.integers(1, 60), max_size=6)))
    seen = [row for row in rows if draw(st.booleans())]
    seen += draw(st.lists(values, max_size=5))
    stable, tentative, after = [], [], 0
    for cut in cuts:
        stable.append(epoch(after, cut, *(row for row in rows if after < row[0] <= cut)))
        after = cut
    after = 0
    for cut in tentative_cuts:
        tentative.append(epoch(after, cut, *(row for row in seen if after < row[0] <= cut)))
        after = cut
    order = []
    while stable or tentative:
        from_stable = bool(stable) and (not tentative or draw(st.booleans()))
        order.append((False, stable.pop(0)) if from_stable else (True, tentative.pop(0)))
    return rows, order


@given(flows(), st.sampled_from(list(Corrections)), st.booleans())
def test_however_the_flows_interleave_the_client_ends_with_the_stable_tuples(
    flow: tuple[list[Row], list[tuple[bool, Epoch]]], how: Corrections, keyed: bool
) -> None:
    rows, order = flow
    made = corrector(how, 0, ("key",) if keyed else ())
    client = Client()
    boundary = 0
    undos = dones = 0
    for tentative, each in order:
        for change in (made.tentative if tentative else made.stable)(each):
            assert change.boundary >= boundary
            boundary = change.boundary
            undos += change.kind is Kind.UNDO
            dones += change.kind is Kind.REC_DONE
            client.apply(change)
    assert Counter(row for row, _ in client.rows) == Counter(rows)
    assert boundary == 60
    assert undos == dones
    assert how is Corrections.UNDO or not undos


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 4))))
def test_rows_are_repeated_as_often_as_asked(rows: list[tuple[int, int]]) -> None:
    table = pa.table({"value": pa.array([value for value, _ in rows], pa.int64())})
    times = pa.chunked_array([pa.array([times for _, times in rows], pa.int64())])
    expected = [value for value, times in rows for _ in range(times)]
    assert repeated(table, times).column("value").to_pylist() == expected


def test_one_row_a_million_times_takes_no_loop() -> None:
    began = time.process_time()
    table = repeated(pa.table({"value": [7]}), pa.chunked_array([[10**6]]))
    assert table.num_rows == 10**6
    assert time.process_time() - began < 1.0
