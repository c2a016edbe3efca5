"""The interpreter's windows: computed from tuples, as panes, and from panes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from medusa.engine.aggregates.function import (
    FOLDS,
    Constant,
    Counted,
    End,
    Entries,
    Fold,
    Folded,
    Kind,
    OfBag,
    OfSet,
    Value,
    nan_last,
)
from medusa.engine.language.typed import Expression
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.panes import Keyed, Layout, layout
from medusa.engine.reference.expressions import Row, evaluate


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
    function, values = each.function, _values(each.argument, rows)
    if isinstance(function, End):
        return values[function.place]
    present = [value for value in values if value is not None]
    if isinstance(function, Folded):
        type_ = each.argument_type
        return function.of(function.partial(present, type_), type_)
    assert isinstance(function, Counted), function
    return _of_keys(each, function, _marked(function.kind, present, each.parameter))


def _values(argument: Expression | None, rows: Sequence[Row]) -> list[Value]:
    """Tuples are counted as ones."""
    return [1 if argument is None else evaluate(argument, row) for row in rows]


def _marked(
    kind: Kind, values: Sequence[Value], constant: Constant
) -> Iterator[tuple[Value, Value]]:
    """The keys of values that are not null, and their marks."""
    return ((kind.key(value, constant), kind.mark(value)) for value in values)


def _of_keys(each: TypedAggregate, function: Counted, keys: Iterable[tuple[Value, Value]]) -> Value:
    """The result of keys and their states, of which several may be of one key."""
    entries = _entries(function.kind, keys)
    if isinstance(function, OfSet):
        return function.of(entries)
    assert isinstance(function, OfBag), function
    if not entries:
        return None
    return function.of(entries, each.parameter, descending=each.descending)


def _entries(kind: Kind, keys: Iterable[tuple[Value, Value]]) -> Entries:
    """Return each key once, in ascending order, with its state."""
    found: dict[Value, list[Value]] = {}
    for key, state in keys:
        if key is not None:
            place = math.nan if key != key else key  # noqa: PLR0124 - one NaN for all
            found.setdefault(place, []).append(state)
    fold = FOLDS[Fold.SUM if kind.state is None else kind.state.fold]
    return [(key, fold(found[key])) for key in sorted(found, key=nan_last)]


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
            **_key_states(made, rest[len(names)], rest[len(names) + 1 :], members),
            **_states(step, made, members if rest[len(names)] == 0 else []),
            made.former: False,
        }
        for (start, *rest), members in parts.items()
    ]


def _key(each: Keyed, row: Row) -> Value:
    """The key of a value; null if it does not count."""
    value = evaluate(each.argument, row)
    return None if value is None else each.kind.key(value, each.constant)


def _key_states(made: Layout, part: int, keys: Sequence[Value], rows: list[Row]) -> Row:
    """The states of keys: the greatest mark, null without a key; or how many tuples of their part
    there are."""
    found: Row = {}
    for number, (each, key) in enumerate(zip(made.values, keys, strict=True), start=1):
        if each.state is None:
            continue
        if each.kind.counts:
            found[each.state] = len(rows) if made.part is None or part == number else 0
        else:
            marks = (each.kind.mark(evaluate(each.argument, row)) for row in rows)
            found[each.state] = None if key is None else max(marks)
    return found


def _states(step: AggregateStep, made: Layout, rows: list[Row]) -> Row:
    found: Row = {}
    for each, names in zip(step.functions, made.states, strict=True):
        function, values = each.function, _values(each.argument, rows)
        if isinstance(function, Folded):
            present = [value for value in values if value is not None]
            states = function.partial(present, each.argument_type)
            found |= dict(zip(names, states, strict=True))
        elif isinstance(function, End):
            found[names[0]] = values[function.place] if values else None
    return found


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
    function, type_ = each.function, each.argument_type
    if isinstance(function, End):
        return own[function.place][names[0]]
    if isinstance(function, Folded):
        states = function.merged([[row[name] for name in names] for row in own], type_)
        return function.of(states, type_)
    assert isinstance(function, Counted), function
    return _of_keys(each, function, ((row[names[0]], row[names[-1]]) for row in panes))


FORMS: Final[dict[Form, Callable[[AggregateStep, list[Row]], list[Row]]]] = {
    Form.WHOLE: _whole,
    Form.PARTIAL: _partial,
    Form.COMBINED: _combined,
}
