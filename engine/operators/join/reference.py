"""The reference of joins, which examines every pair."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.evaluation.job import Job, age
from medusa.engine.objects.query import JoinKind
from medusa.engine.objects.schema import END, STIME
from medusa.engine.operators.join.sides import AS_OF, KEEPS_LEFT, KEEPS_RIGHT, ONE_SIDED
from medusa.engine.operators.join.step import JoinStep


def joined(step: JoinStep, left: Sequence[Row], job: Job) -> list[Row]:
    """Return the join's results over all tuples of both sides, in any order."""
    right, left_fields, right_fields = job.right, job.fields, job.right_fields
    if step.table:
        right = _with_validity(step, right, right_fields)
    found: list[Row] = []
    no_left = dict.fromkeys((STIME, *left_fields))
    no_right = dict.fromkeys((STIME, *right_fields))
    alone = list(range(len(right)))
    for one in left:
        pairs = [n for n, other in enumerate(right) if _is_pair(step, one, other)]
        alone = [n for n in alone if n not in set(pairs)]
        waited = one[STIME] + step.left_waits_us
        if step.kind in ONE_SIDED:
            if bool(pairs) == (step.kind is JoinKind.SEMI):
                found.append(_result(step, one, no_right, waited))
            continue
        if step.kind in AS_OF and pairs:
            chosen = min if step.looks_forward else max
            pairs = [chosen(pairs, key=lambda n: age(right[n], right_fields))]
        for number in pairs:
            other = right[number]
            found.append(
                _result(step, one, other, max(one[STIME], other[STIME]))
            )  # in a join with a table the result has the stime of the tuple t
        if not pairs and step.kind in KEEPS_LEFT:
            found.append(_result(step, one, no_right, waited))
    if step.kind in KEEPS_RIGHT:
        for number in alone:
            other = right[number]
            found.append(_result(step, no_left, other, other[STIME] + step.right_waits_us))
    return found


def _is_pair(step: JoinStep, one: Row, other: Row) -> bool:
    later = other[STIME] - one[STIME]
    if step.table:
        if not other[STIME] <= one[STIME] < other[_UNTIL] or other.get(step.deleted):
            return False
        return evaluate(step.predicate, _both(one, other)) is True
    if not -step.before_us <= later <= step.after_us:
        return False
    return evaluate(step.predicate, _both(one, other)) is True


_UNTIL = "valid until"


def _with_validity(step: JoinStep, rows: Sequence[Row], fields: Sequence[str]) -> list[Row]:
    """The tuples of a table with the time until which each is valid."""
    ordered = sorted(rows, key=lambda row: age(row, fields))
    until: dict[tuple[object, ...], int] = {}
    found: list[Row] = []
    for row in reversed(ordered):
        key = tuple(row[name] for name in step.key)
        found.append({**row, _UNTIL: until.get(key, END)})
        until[key] = row[STIME]
    return found


def _both(one: Row, other: Row) -> Row:
    left = {f"left.{name}": value for name, value in one.items()}
    return left | {f"right.{name}": value for name, value in other.items()}


def _result(step: JoinStep, one: Row, other: Row, stime: int) -> Row:
    row = _both(one, other)
    return {STIME: stime, **{name: evaluate(each, row) for name, each in step.outputs}}
