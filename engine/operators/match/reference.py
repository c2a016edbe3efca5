"""The reference of patterns: each tuple begins a match, whose ways are followed one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from medusa.engine.aggregates.function import FOLDS, Fold
from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.evaluation.job import Job, age
from medusa.engine.expressions.typed import Expression
from medusa.engine.objects.query import Contiguity
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.match.automaton import START, ends_at_most, may_end, moves
from medusa.engine.operators.match.pattern import MAX_TUPLES, PREVIOUS
from medusa.engine.operators.match.step import MatchStep, TypedMeasure
from medusa.engine.scalars.values import Value

_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True)
class _Way:
    """A partial match: the tuples taken so far, each with the place of its variable."""

    taken: tuple[tuple[int, Row], ...] = ()

    @property
    def place(self) -> int:
        return self.taken[-1][0] if self.taken else START

    @property
    def count(self) -> int:
        return sum(place == self.place for place, _ in self.taken)

    def of(self, variable: int | None) -> list[Row]:
        return [row for place, row in self.taken if variable in {None, place}]


def matched(step: MatchStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the matches over all of these tuples, in any order."""
    partitions: dict[tuple[Value, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: age(row, job.fields)):
        key = tuple(row[each.name] for each in step.partition_by)
        partitions.setdefault(key, []).append(row)
    found = []
    for key, partition in partitions.items():
        for number, first in enumerate(partition):
            limit = first[STIME] + step.within_us
            made = _match(step, partition[number : number + MAX_TUPLES], limit)
            if made is not None:
                end, way = made
                names = [each.name for each in step.partition_by]
                results = {each.output: _measured(each, way) for each in step.measures}
                found.append({STIME: end, **dict(zip(names, key, strict=True)), **results})
    return found


def _match(step: MatchStep, rows: Sequence[Row], limit: int) -> tuple[int, _Way] | None:
    """The match that begins with the first tuple, and the stime at which it is certain."""
    ways, best = [_Way()], None
    for row in rows:
        if row[STIME] > limit:
            break
        following: dict[tuple[int, int], _Way] = {}
        for made in (each for way in ways for each in _next(step, way, row)):
            if isinstance(made, _Made):
                best = made.way
                break
            following.setdefault((made.place, _counted(step, made)), made)
        ways = list(following.values())
        if not ways:
            return None if best is None else (row[STIME], best)
    else:
        if len(rows) == MAX_TUPLES:
            limit = rows[-1][STIME]
            ways = [way for way in ways if not step.variables[way.place].forbidden]
    ended = next((way for way in ways if _may_end(step, way)), best)
    return None if ended is None else (limit, ended)


@dataclass(frozen=True)
class _Made:
    way: _Way


def _next(step: MatchStep, way: _Way, row: Row) -> Iterator[_Way | _Made]:
    variables = step.variables
    skips = step.contiguity is Contiguity.SKIP_TILL_NEXT_MATCH
    own = None if way.place == START else variables[way.place]
    enough = own is None or way.count >= own.least
    taken = False
    for move in moves(variables, way.place):
        full = own is not None and own.most is not None and way.count >= own.most
        if not enough if move.after_least else full:
            continue
        if move.target is None:
            if not skips:
                yield _Made(way)
        elif _is_true(step, variables[move.target].condition, way, row):
            taken = True
            longer = _Way((*way.taken, (move.target, row)))
            least = ends_at_most(variables, move.target)
            yield longer if least is None or longer.count < least else _Made(longer)
    if skips and own is not None and not taken:
        meets = any(_is_true(step, each, way, row) for each in own.forbidden)
        if not (meets and enough):
            yield way


def _counted(step: MatchStep, way: _Way) -> int:
    return min(way.count, step.variables[way.place].counted)


def _may_end(step: MatchStep, way: _Way) -> bool:
    if way.place == START:
        return False
    return way.count >= step.variables[way.place].least and may_end(step.variables, way.place)


def _is_true(step: MatchStep, condition: Expression, way: _Way, row: Row) -> bool:
    seen = dict(row)
    for name, variable in (
        (PREVIOUS, None),
        *((each.name, place) for place, each in enumerate(step.variables)),
    ):
        last = (way.of(variable) or [dict.fromkeys(row)])[-1]
        seen |= {f"{name}.{field}": value for field, value in last.items()}
    return evaluate(condition, seen) is True


def _measured(measure: TypedMeasure, way: _Way) -> Value:
    rows = way.of(measure.variable)
    if measure.argument is None:
        return len(rows)
    values = [row[measure.argument.name] for row in rows]
    if measure.function in {"firstval", "lastval"}:
        place = 0 if measure.function == "firstval" else -1
        return values[place] if values else None
    values = [value for value in values if value is not None]
    if measure.function == "count":
        return len(values)
    return _FOLDED[measure.function](values) if values else None


def _sum(values: Sequence[Value]) -> Value:
    total: Value = 0
    for value in values:
        total += value  # Python adds floats in the order of the match
    return total if isinstance(total, float) or total in _LONG else None


def _average(values: Sequence[Value]) -> Value:
    total: Value = 0
    for value in values:
        total += value
    return float(total) / len(values)


_FOLDED: Final[dict[str, Callable[[Sequence[Value]], Value]]] = {
    "min": FOLDS[Fold.MIN],
    "max": FOLDS[Fold.MAX],
    "sum": _sum,
    "avg": _average,
}
