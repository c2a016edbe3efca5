"""Random queries over the rows that a testnet's posters post."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Cumulate,
    Filter,
    Join,
    JoinKind,
    Map,
    Match,
    Measure,
    PatternStep,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    order_by,
)
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.operator import State

COUNT: Final = AggregateCall("count", None, "rows")
TOTAL: Final = AggregateCall("sum", "value", "total")


def stays(boxes: Sequence[Box]) -> bool:
    """Whether the last box keeps a table of all so far: its task is not moved, and its only standby
    is a passive one."""
    return any(operator_of(box).state is State.OUTPUT for box in boxes)


def draw_boxes(rng: random.Random, base: str, inputs: Sequence[str]) -> tuple[Box, ...]:
    """A chain of boxes over one stream or two.

    Args:
        base: the start of the names of its streams. inputs: what it may read.
    """
    boxes: list[Box] = []
    at = rng.choice(inputs)
    if len(inputs) > 1 and rng.random() < 0.4:
        boxes.append(Union("both", tuple(rng.sample(list(inputs), 2)), f"{base}/both"))
        at = f"{base}/both"
    if rng.random() < 0.5:
        boxes.append(Filter("some", at, (f"{base}/some",), (f"value > {rng.randrange(500)}",)))
        at = f"{base}/some"
    if rng.random() < 0.25:
        boxes.append(_join(rng, at, rng.choice(inputs), f"{base}/pairs"))
        return tuple(boxes)
    if rng.random() < 0.2:
        boxes += _table(rng, at, base)
        return tuple(boxes)
    if rng.random() < 0.5:
        state = tuple((name, name) for name in ("poster", "number", "key"))
        boxes.append(Map("shape", at, f"{base}/shape", (*state, ("value", "value * 2"))))
        at = f"{base}/shape"
    if rng.random() < 0.7 or not boxes:
        boxes.append(rng.choice(WINDOWS)(rng, at, f"{base}/windows"))
    return tuple(boxes)


def _join(rng: random.Random, left: str, right: str, output: str) -> Join:
    kind = rng.choice((JoinKind.INNER, JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI, JoinKind.ASOF))
    before, after = rng.choice(((500_000, 0), (200_000, 200_000), (1_000_000, 0)))
    if kind is JoinKind.ASOF and after:
        before = 0  # the join looks forward
    fields = [("poster", "left.poster"), ("number", "left.number"), ("key", "left.key")]
    if kind is not JoinKind.ANTI:
        fields.append(("other", "right.number"))
    return Join(
        "pairs",
        left,
        right,
        output,
        kind,
        before,
        after,
        "left.key = right.key",
        tuple(fields),
    )


# -- tables ----------------------------------------------------------------------------------------


def _table(rng: random.Random, at: str, base: str) -> list[Box]:
    """A table, and perhaps a join of its own input with it."""
    draw: Callable[[str, str], Box] = rng.choice((_totals, _totals, _top))
    box = draw(at, f"{base}/totals")
    if draw is _top or rng.random() < 0.5:
        return [box]
    fields = (("poster", "left.poster"), ("number", "left.number"), ("rows", "right.rows"))
    parts = (at, f"{base}/totals", f"{base}/looked_up")
    kind = rng.choice((JoinKind.INNER, JoinKind.LEFT))
    return [box, Join("look", *parts, kind, 0, 0, "left.key = right.key", fields, table=True)]


def _totals(source: str, output: str) -> Totals:
    values = AggregateCall("count_distinct", "value", "values")
    return Totals("totals", source, output, ("key",), (COUNT, TOTAL, values))


_LARGEST: Final = (order_by("value", descending=True), order_by("number"))


def _top(source: str, output: str) -> Top:
    return Top("top", source, output, ("key",), _LARGEST, 2, "place")


# -- windows ---------------------------------------------------------------------------------------


def _windows(rng: random.Random, source: str, output: str) -> Aggregate:
    advance = rng.choice((200_000, 500_000, 1_000_000))
    size = advance * rng.choice((1, 1, 3))
    return Aggregate("windows", source, output, size, advance, _groups(rng), (COUNT, TOTAL))


def _sessions(rng: random.Random, source: str, output: str) -> Sessions:
    gap = rng.choice((100_000, 400_000))
    return Sessions("windows", source, output, gap, 4 * gap, _groups(rng), (COUNT, TOTAL))


def _cumulate(rng: random.Random, source: str, output: str) -> Cumulate:
    step = rng.choice((200_000, 500_000))
    return Cumulate("windows", source, output, step, 3 * step, _groups(rng), (COUNT, TOTAL))


def _first(rng: random.Random, source: str, output: str) -> Rank:
    size = rng.choice((1, 500_000, 1_000_000))
    return Rank("windows", source, output, size, ("key",), _LARGEST, 2, "place")


def _match(rng: random.Random, source: str, output: str) -> Match:
    steps = (
        PatternStep("A", "value < 600"),
        PatternStep("B", "value > A.value", 1, rng.choice((1, 3))),
    )
    measures = (
        Measure("firstval", "A", "number", "first"),
        Measure("count", "B", "", "higher"),
    )
    within = rng.choice((300_000, 1_000_000))
    return Match("windows", source, output, ("key",), steps, within, measures)


def _last_rows(rng: random.Random, source: str, output: str) -> TupleWindows:
    size, advance = rng.choice(((3, 1), (4, 2), (2, 2)))
    parts = (size, advance, ("key",), (COUNT, TOTAL), rng.random() < 0.5)
    return TupleWindows("windows", source, output, *parts)


def _groups(rng: random.Random) -> tuple[str, ...]:
    return rng.choice(((), ("key",)))


WINDOWS: Final[tuple[Callable[[random.Random, str, str], Box], ...]] = (
    *[_windows] * 3,
    _sessions,
    _cumulate,
    _first,
    _match,
    _last_rows,
)
"""The last boxes of chains, as often as they are drawn."""
