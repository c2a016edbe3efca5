"""As-of joins, back and forward: the interpreter at any cut equals plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_networks import cuts

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Join, JoinKind, Query
from medusa.engine.objects.schema import BEGINNING, Field, FieldType, Schema
from medusa.engine.reference.interpreter import run_task
from medusa.engine.tasks.plan import plan
from medusa.engine.tasks.windows import needs
from medusa.overlay.errors import InvalidInputError

KEY = Field("k", FieldType.INT, nullable=True)
SOURCES = {name: Schema(name, (KEY, Field("n", FieldType.INT))) for name in ("l", "r")}
OUTPUTS = (("k", "left.k"), ("n", "left.n"), ("m", "right.n"))

Row = dict[str, Any]


def join(kind: JoinKind, before: int, after: int) -> Join:
    return Join("join", "l", "r", "out", kind, before, after, "left.k = right.k", OUTPUTS)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    moments = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([None, 1, 2])), max_size=12)
    drawn = sorted(draw(moments), key=lambda each: each[0])
    return [{"stime": at, "seq": n, "k": key, "n": n} for n, (at, key) in enumerate(drawn)]


def answer(box: Join, left: list[Row], right: list[Row]) -> list[tuple[Any, ...]]:
    """Return (stime, k, n, m) of each result: the left row, then the number of the right one."""
    found: list[tuple[Any, ...]] = []
    for one in left:
        near = [
            other
            for other in right
            if one["k"] is not None and one["k"] == other["k"]
            if one["stime"] - box.before_us <= other["stime"] <= one["stime"] + box.after_us
        ]
        mine = (one["k"], one["n"])
        if near:
            other = near[0] if box.after_us > 0 else near[-1]
            found.append((max(one["stime"], other["stime"]), *mine, other["n"]))
        elif box.kind is JoinKind.LEFT_ASOF:
            found.append((one["stime"] + max(box.after_us, 0), *mine, None))
    return found


@settings(max_examples=300)
@given(
    st.sampled_from([JoinKind.ASOF, JoinKind.LEFT_ASOF]),
    st.sampled_from([(9, 0), (9, -1), (9, -3), (0, 0), (0, 9), (-1, 9), (-3, 9)]),
    rows(),
    rows(),
    cuts,
)
def test_each_row_finds_the_nearest_of_its_side_at_any_cut(
    kind: JoinKind, bounds: tuple[int, int], left: list[Row], right: list[Row], cut: list[int]
) -> None:
    box = join(kind, *bounds)
    query = Query("q", (box,))
    (task,) = plan(query, SOURCES | check_query(query, SOURCES))
    made: list[Row] = []
    after = BEGINNING
    for upto in cut:
        interval = needs(task, after, upto, 0)
        if interval is not None:
            made += run_task(task, {"l": left, "r": right}, after, upto, interval)
        after = upto
    found = [(row["stime"], row["k"], row["n"], row["m"]) for row in made]
    assert sorted(found, key=repr) == sorted(answer(box, left, right), key=repr)


def test_a_join_as_of_that_looks_both_ways_is_refused() -> None:
    query = Query("q", (join(JoinKind.ASOF, 3_000_000, 1_000_000),))
    with pytest.raises(InvalidInputError, match=r"looks one way.* before is 3 s and after 1 s"):
        check_query(query, SOURCES)
