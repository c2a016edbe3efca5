"""A join reads of each side every tuple on which its results in an epoch depend."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Join, JoinKind, Query
from medusa.engine.objects.schema import BEGINNING, Field, FieldType, Schema
from medusa.engine.operators.join.sides import AS_OF
from medusa.engine.spark.executor import kind_of
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs, read_from

LEFT, RIGHT, OUT = "medusa://a/left", "medusa://a/right", "medusa://a/out"
SIDE = (Field("x", FieldType.INT),)
SPAN = range(9)
"""The range of stimes; each side has a tuple at each stime."""


BOUNDS = ((3, 0), (0, 0), (0, 2), (3, 2), (3, -1), (-1, 3))
CASES = [
    (kind, before, after)
    for kind in JoinKind
    for before, after in BOUNDS
    if kind not in AS_OF or after <= 0 or before <= 0  # these joins look one way only
]


def task_of(kind: JoinKind, before: int, after: int) -> Task:
    alone = kind in {JoinKind.SEMI, JoinKind.ANTI}
    outputs = (("x", "left.x"),) if alone else (("x", "left.x"), ("y", "right.x"))
    box = Join("join", LEFT, RIGHT, OUT, kind, before, after, "left.x = right.x", outputs)
    given = {name: Schema(name, SIDE) for name in {LEFT, RIGHT}}
    query = Query("medusa://a/query", (box,))
    (task,) = plan(query, {**given, **check_query(query, given)})
    return task


def asked(kind: JoinKind, before: int, after: int) -> Iterator[tuple[int, int, int]]:
    """Return triples of the stimes of a result, of a left and of a right tuple that decide about
    it. Whether a tuple is emitted alone depends on all tuples with which it could be paired."""
    for left, right in product(SPAN, SPAN):
        if not left - before <= right <= left + after:
            continue
        if kind in {JoinKind.INNER, JoinKind.ASOF, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL}:
            yield max(left, right), left, right
        if kind in {JoinKind.LEFT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI}:
            yield left + max(after, 0), left, right
        if kind in {JoinKind.RIGHT, JoinKind.FULL}:
            yield right + max(before, 0), left, right
        if kind is JoinKind.LEFT_ASOF:
            yield left + max(after, 0), left, right
        if kind in AS_OF:  # of the later right tuples this one, if it is present, takes the place
            later = range(right, left + after + 1)
            yield from ((max(left, other), left, right) for other in later)


@pytest.mark.parametrize(("kind", "before", "after"), CASES)
def test_no_tuple_of_a_result_is_left_out(kind: JoinKind, before: int, after: int) -> None:
    task = task_of(kind, before, after)
    results = list(asked(kind, before, after))
    assert results
    for at in range(-1, 8):
        interval = needs(task, at, at + 2, 0)
        assert interval is not None
        left = read_from(task, LEFT, at, interval)
        right = read_from(task, RIGHT, at, interval)
        assert min(left, right) >= interval.lo
        for stime, one, other in results:
            if at < stime <= at + 2:
                assert one > left
                assert other > right


def test_a_join_reads_only_new_tuples_of_the_side_that_never_waits() -> None:
    task = task_of(JoinKind.INNER, 10, 0)
    interval = needs(task, 50, 60, 0)
    assert interval is not None
    assert read_from(task, LEFT, 50, interval) == 50
    assert read_from(task, RIGHT, 50, interval) == 40
    outer = task_of(JoinKind.FULL, 10, 0)
    assert {read_from(outer, name, 50, interval) for name in (LEFT, RIGHT)} == {40}


def test_the_first_epoch_reads_everything() -> None:
    task = task_of(JoinKind.INNER, 10, 0)
    interval = needs(task, BEGINNING, 60)
    assert interval is not None
    assert {read_from(task, name, BEGINNING, interval) for name in (LEFT, RIGHT)} == {BEGINNING}


def test_a_join_of_streams_of_other_fields_has_a_job_of_its_own() -> None:
    box = Join(
        "join", LEFT, RIGHT, OUT, JoinKind.INNER, 1, 0, "left.x = right.x", (("x", "left.x"),)
    )
    more = (*SIDE, Field("y", FieldType.INT))
    given = {LEFT: Schema(LEFT, SIDE), RIGHT: Schema(RIGHT, more)}
    query = Query("medusa://a/query", (box,))
    (task,) = plan(query, {**given, **check_query(query, given)})
    assert kind_of(task) is None
