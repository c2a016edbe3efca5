"""The interpreter's windows: computed from tuples, as panes, and from panes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from medusa.engine.language.aggregates import KINDS, VARIANCES, Kind
from medusa.engine.language.operators import FLOATS, INTEGER_RANGE
from medusa.engine.objects.query import Function
from medusa.engine.objects.schema import STIME, FieldType
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.panes import Counted, Layout, layout
from medusa.engine.reference.bags import bag, key_of, of_bag
from medusa.engine.reference.distinct import estimate, merged, place
from medusa.engine.reference.expressions import Row, evaluate
from medusa.engine.reference.values import Value
from medusa.engine.reference.variances import (
    halves,
    put_together,
    sums,
    triple,
    variance,
    variance_of_floats,
    variance_of_integers,
)


def aggregate(
    rows: list[Row],
    size: int,
    advance: int,
    group_by: Sequence[str],
    functions: Sequence[TypedAggregate],
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
            **{each.output: folded(each, members) for each in functions},
        }
        for (start, *group), members in windows.items()
    ]


def folded(each: TypedAggregate, rows: list[Row]) -> Value:
    """A function over the rows of one window, which are in order."""
    function, argument = each.function, each.argument
    if argument is None:
        return len(rows)
    values = [evaluate(argument, row) for row in rows]
    if function in {Function.FIRSTVAL, Function.LASTVAL}:
        return values[0 if function is Function.FIRSTVAL else -1]
    present = [value for value in values if value is not None]
    if function in _COUNTS:
        return _COUNTS[function](present)
    if function in VARIANCES:
        return variance(function, present)
    if function in KINDS:
        keys = (key_of(KINDS[function], value, each.parameter) for value in present)
        return of_bag(each, bag((key, 1) for key in keys))
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
    Function.BOOL_AND: all,
    Function.BOOL_OR: any,
}


def _whole(step: AggregateStep, rows: list[Row]) -> list[Row]:
    return aggregate(rows, step.size_us, step.advance_us, _groups(step), step.functions)


def _groups(step: AggregateStep) -> list[str]:
    return [field.name for field in step.group_by]


def _partial(step: AggregateStep, rows: list[Row]) -> list[Row]:
    """Tuples to the partial results of panes, with the fields of
    `medusa.engine.operators.shared.panes`."""
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
            **_value_states(made, rest[len(names)], rest[len(names) + 1 :], members),
            **_states(step, made, members if rest[len(names)] == 0 else []),
            made.former: False,
        }
        for (start, *rest), members in parts.items()
    ]


def _key(each: Counted, row: Row) -> Value:
    """The value, or its register, bucket or bin."""
    value = evaluate(each.argument, row)
    if each.kind is Kind.REGISTERS:
        return None if value is None else place(value)[0]
    return key_of(each.kind, value, each.parameter)


def _value_states(made: Layout, part: int, keys: Sequence[Value], rows: list[Row]) -> Row:
    """The states of values: the greatest rank of a register, null without one; or how many tuples
    of their part there are."""
    found: Row = {}
    for number, (each, key) in enumerate(zip(made.values, keys, strict=True), start=1):
        if each.state is None:
            continue
        own = made.part is None or part == number
        state: Value = len(rows) if own else 0
        if each.kind is Kind.REGISTERS:
            ranks = (place(evaluate(each.argument, row))[1] for row in rows)
            state = None if key is None else max(ranks)
        found[each.state] = state
    return found


def _states(step: AggregateStep, made: Layout, rows: list[Row]) -> Row:
    found: Row = {}
    for each, names in zip(step.functions, made.states, strict=True):
        if each.function in KINDS:
            continue
        if each.function in VARIANCES:
            found |= dict(zip(names, _moments(each, rows), strict=True))
            continue
        state: list[Value] = [None]
        if rows or each.function is Function.COUNT:
            state = [folded(each, rows)]
        if each.function in {Function.SUM, Function.AVG} and each.argument is not None:
            values = [v for row in rows if (v := evaluate(each.argument, row)) is not None]
            total = sum(values) if values else None
            halves = each.argument.type is FieldType.LONG
            state = list(divmod(total, _HALF)) if halves and total is not None else [total]
            if halves and total is None:
                state = [None, None]
            if each.function is Function.AVG:
                state.append(len(values))
        found |= dict(zip(names, state, strict=True))
    return found


def _moments(each: TypedAggregate, rows: list[Row]) -> list[Value]:
    assert each.argument is not None
    values = [v for row in rows if (v := evaluate(each.argument, row)) is not None]
    return list(triple(values)) if each.argument.type in FLOATS else [*halves(values)]


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
    if each.function in VARIANCES:
        return _variance(each, names, own)
    present = [row for row in panes if row[names[0]] is not None]
    if each.function in KINDS:
        return _of_values(each, [tuple(row[name] for name in names) for row in present])
    values = [row[names[0]] for row in present]
    if each.function is Function.COUNT:
        return sum(values)
    if not values:
        return None
    if each.function in _FOLDS and each.function not in {Function.SUM, Function.AVG}:
        return _FOLDS[each.function](values)
    total = sum(values)
    if len(names) > 1 and names[1].endswith("l"):
        total = sum(row[names[0]] * _HALF + row[names[1]] for row in present)
    if each.function is Function.SUM:
        return _sum([total])
    return float(total) / sum(row[names[-1]] for row in present)


def _of_values(each: TypedAggregate, entries: Sequence[tuple[Any, ...]]) -> Value:
    """The result of a function that makes several tuples of a pane, given their fields."""
    match KINDS[each.function]:
        case Kind.VALUES:
            return len(set(entries))
        case Kind.REGISTERS:
            return estimate(merged((register, rank) for register, rank in entries))
        case _:
            return of_bag(each, bag((value, number) for value, number in entries))


def _variance(each: TypedAggregate, names: Sequence[str], panes: Sequence[Row]) -> Value:
    assert each.argument is not None
    states = [[row[name] for name in names] for row in panes]
    if each.argument.type in FLOATS:
        return variance_of_floats(each.function, put_together((n, a, s) for n, a, s in states if n))
    totals = [sum(column) for column in zip(*states, strict=True)]
    return variance_of_integers(each.function, *sums(totals))


FORMS: Final[dict[Form, Callable[[AggregateStep, list[Row]], list[Row]]]] = {
    Form.WHOLE: _whole,
    Form.PARTIAL: _partial,
    Form.COMBINED: _combined,
}
