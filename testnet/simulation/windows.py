"""The interpreter's windows: of tuples, of panes, and of what panes make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.language.operators import INTEGER_RANGE
from engine.language.panes import DISTINCT, Counted, Layout, layout
from engine.language.steps import AggregateStep, Expression, Form, TypedAggregate
from engine.objects.query import Function
from engine.objects.schema import STIME, FieldType
from testnet.simulation.distinct import estimate, merged, place
from testnet.simulation.expressions import Row, Value, evaluate


def aggregate(
    rows: list[Row],
    size: int,
    advance: int,
    group_by: Sequence[str],
    functions: Sequence[tuple[Function, Expression | None, str]],
) -> list[Row]:
    windows: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        start = row[STIME] // advance * advance
        while start + size > row[STIME]:
            windows.setdefault((start, *(row[name] for name in group_by)), []).append(row)
            start -= advance
    return [
        {
            STIME: start + size - 1,
            "window_start": start,
            **dict(zip(group_by, group, strict=True)),
            **{output: _folded(function, each, members) for function, each, output in functions},
        }
        for (start, *group), members in windows.items()
    ]


def _folded(function: Function, argument: Expression | None, rows: list[Row]) -> Value:
    if argument is None:
        return len(rows)
    values = [evaluate(argument, row) for row in rows]
    if function in {Function.FIRSTVAL, Function.LASTVAL}:
        return values[0 if function is Function.FIRSTVAL else -1]
    present = [value for value in values if value is not None]
    if function in _COUNTS:
        return _COUNTS[function](present)
    return _FOLDS[function](present) if present else None


def _sum(values: list[Any]) -> Value:
    total = sum(values)
    return total if isinstance(total, float) or total in INTEGER_RANGE[FieldType.LONG] else None


_COUNTS: dict[Function, Callable[[list[Any]], int]] = {
    Function.COUNT: len,
    Function.COUNT_DISTINCT: lambda values: len(set(values)),
    Function.APPROX_COUNT_DISTINCT: lambda values: estimate(merged(map(place, values))),
}

_FOLDS: dict[Function, Callable[[list[Any]], Any]] = {
    Function.MIN: min,
    Function.MAX: max,
    Function.SUM: _sum,
    Function.AVG: lambda values: float(sum(values)) / len(values),
}


def _whole(step: AggregateStep, rows: list[Row]) -> list[Row]:
    functions = [(each.function, each.argument, each.output) for each in step.functions]
    return aggregate(rows, step.size_us, step.advance_us, _groups(step), functions)


def _groups(step: AggregateStep) -> list[str]:
    return [field.name for field in step.group_by]


def _partial(step: AggregateStep, rows: list[Row]) -> list[Row]:
    """Tuples to the partial results of panes, which `engine.language.panes` defines."""
    made, names = layout(step.group_by, step.functions), _groups(step)
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        start = row[STIME] // step.size_us * step.size_us
        values = [_key(each, row) for each in made.values]
        keys = [(0, *values)]
        if made.part is not None:
            others = [
                (n + 1, *(value if n == m else None for m, value in enumerate(values)))
                for n in range(len(values))
            ]
            keys = [(0, *(None for _ in values)), *others]
        for key in keys:
            parts.setdefault((start, *(row[name] for name in names), *key), []).append(row)
    return [
        {
            STIME: start + step.size_us - 1,
            **dict(zip(names, rest, strict=False)),
            **({} if made.part is None else {made.part: rest[len(names)]}),
            **dict(zip((each.name for each in made.values), rest[len(names) + 1 :], strict=True)),
            **_ranks(made, rest[len(names) + 1 :], members),
            **_states(step, made, members if rest[len(names)] == 0 else []),
            made.former: False,
        }
        for (start, *rest), members in parts.items()
    ]


def _key(each: Counted, row: Row) -> Value:
    """The value, or its register in a sketch."""
    value = evaluate(each.argument, row)
    return value if each.rank is None or value is None else place(value)[0]


def _ranks(made: Layout, keys: Sequence[Value], rows: list[Row]) -> Row:
    """The greatest ranks of the registers among the keys; null without a register."""
    return {
        each.rank: None
        if key is None
        else max(place(evaluate(each.argument, row))[1] for row in rows)
        for each, key in zip(made.values, keys, strict=True)
        if each.rank is not None
    }


def _states(step: AggregateStep, made: Layout, rows: list[Row]) -> Row:
    found: Row = {}
    for each, names in zip(step.functions, made.states, strict=True):
        if each.function in DISTINCT:
            continue
        folded: list[Value] = [None]
        if rows or each.function is Function.COUNT:
            folded = [_folded(each.function, each.argument, rows)]
        if each.function in {Function.SUM, Function.AVG} and each.argument is not None:
            values = [v for row in rows if (v := evaluate(each.argument, row)) is not None]
            total = sum(values) if values else None
            halves = each.argument.type is FieldType.LONG
            folded = list(divmod(total, _HALF)) if halves and total is not None else [total]
            if halves and total is None:
                folded = [None, None]
            if each.function is Function.AVG:
                folded.append(len(values))
        found |= dict(zip(names, folded, strict=True))
    return found


_HALF: Final = 2**32


def _combined(step: AggregateStep, rows: list[Row]) -> list[Row]:
    """The partial results of panes to results."""
    made, names = layout(step.group_by, step.functions), _groups(step)
    windows: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row[made.former] != (row[STIME] > step.former_after):
            continue
        start = row[STIME] // step.advance_us * step.advance_us
        while start + step.size_us > row[STIME]:
            windows.setdefault((start, *(row[name] for name in names)), []).append(row)
            start -= step.advance_us
    return [
        {
            STIME: start + step.size_us - 1,
            "window_start": start,
            **dict(zip(names, group, strict=True)),
            **{
                each.output: _result(each, state, made, members)
                for each, state in zip(step.functions, made.states, strict=True)
            },
        }
        for (start, *group), members in windows.items()
    ]


def _result(
    each: TypedAggregate, names: Sequence[str], made: Layout, panes: Sequence[Row]
) -> Value:
    own = [row for row in panes if made.part is None or row[made.part] == 0]
    if each.function in {Function.FIRSTVAL, Function.LASTVAL}:
        return own[0 if each.function is Function.FIRSTVAL else -1][names[0]]
    present = [row for row in panes if row[names[0]] is not None]
    values = [row[names[0]] for row in present]
    if each.function is Function.COUNT_DISTINCT:
        return len(set(values))
    if each.function is Function.APPROX_COUNT_DISTINCT:
        return estimate(merged((row[names[0]], row[names[1]]) for row in present))
    if each.function is Function.COUNT:
        return sum(values)
    if not values:
        return None
    if each.function in {Function.MIN, Function.MAX}:
        return _FOLDS[each.function](values)
    total = sum(values)
    if len(names) > 1 and names[1].endswith("l"):
        total = sum(row[names[0]] * _HALF + row[names[1]] for row in present)
    if each.function is Function.SUM:
        return _sum([total])
    return float(total) / sum(row[names[-1]] for row in present)


FORMS: Final[dict[Form, Callable[[AggregateStep, list[Row]], list[Row]]]] = {
    Form.WHOLE: _whole,
    Form.PARTIAL: _partial,
    Form.COMBINED: _combined,
}
