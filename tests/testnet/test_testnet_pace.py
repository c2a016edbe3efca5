"""Each row is posted once, in order, when it is due."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.testnet.kit.traffic import POST_ROWS, TICK_S, paced


def tables(times: list[float], cuts: list[int]) -> list[pa.Table]:
    whole = pa.table({"ts": pa.array(sorted(times), pa.float64())})
    edges = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    return [whole.slice(low, high - low) for low, high in itertools.pairwise(edges)]


@given(
    st.lists(st.floats(1e9, 1e9 + 1000), max_size=60),
    st.lists(st.integers(0, 60), max_size=5),
    st.sampled_from([None, 0.5, 1.0, 60.0, 1e6]),
)
def test_every_row_once_and_never_early(
    times: list[float], cuts: list[int], speed: float | None
) -> None:
    zero = min(times, default=0.0)
    parts = list(paced(tables(times, cuts), zero, speed))
    assert [ts for part in parts for ts in part.table["ts"].to_pylist()] == sorted(times)
    assert [part.due for part in parts] == sorted(part.due for part in parts)
    for part in parts:
        for ts in part.table["ts"].to_pylist():
            if speed is None:
                assert part.due == 0.0
            else:
                elapsed = (ts - zero) / speed
                assert elapsed - 1e-6 <= part.due <= elapsed + TICK_S + 1e-6


def test_posts_are_bounded() -> None:
    same = pa.table({"ts": [7.0] * (POST_ROWS * 2 + 1)})
    for speed in (None, 1.0):
        assert [p.table.num_rows for p in paced([same], 7.0, speed)] == [POST_ROWS, POST_ROWS, 1]


@pytest.mark.parametrize("speed", [None, 1.0])
def test_nothing_to_post(speed: float | None) -> None:
    assert list(paced([], 0.0, speed)) == []
