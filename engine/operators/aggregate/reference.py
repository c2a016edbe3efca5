"""The reference of aggregates: computed from tuples, as panes, and from panes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from medusa.engine.aggregates.function import Counted, End, Folded
from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.evaluation.job import Job
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.panes import Keyed, Layout, layout
from medusa.engine.operators.shared.reference_windows import folded, of_keys, values_of
from medusa.engine.scalars.values import Value


def aggregated(step: AggregateStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the results of all windows that hold one of these rows."""
    return _FORMS[step.form](step, rows)


def _whole(step: AggregateStep, rows: Sequence[Row]) -> list[Row]:
    names = _groups(step)
    windows: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        start = row[STIME] // step.advance_us * step.advance_us
        while start + step.size_us > row[STIME]:
            windows.setdefault((start, *(row[name] for name in names)), []).append(row)
            start -= step.advance_us
    return [
        {
            STIME: start + step.size_us - 1,
            "window_start": start,
            **dict(zip(names, group, strict=True)),
            **{each.output: folded(each, members) for each in step.functions},
        }
        for (start, *group), members in windows.items()
    ]


def _groups(step: AggregateStep) -> list[str]:
    return [field.name for field in step.group_by]


def _partial(step: AggregateStep, rows: Sequence[Row]) -> list[Row]:
    """Compute the partial results of panes from tuples, with the fields of
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
    """The key of the row's value; null if the function skips the value."""
    value = evaluate(each.argument, row)
    return None if value is None else each.kind.key(value, each.constant)


def _key_states(made: Layout, part: int, keys: Sequence[Value], rows: list[Row]) -> Row:
    """The states of the keys of one part: the greatest mark (null without a key), or the number of
    tuples."""
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
        function, values = each.function, values_of(each.argument, rows)
        if isinstance(function, Folded):
            present = [value for value in values if value is not None]
            states = function.partial(present, each.argument_type)
            found |= dict(zip(names, states, strict=True))
        elif isinstance(function, End):
            found[names[0]] = values[function.place] if values else None
    return found


def _combined(step: AggregateStep, rows: Sequence[Row]) -> list[Row]:
    """Compute the results from the partial results of panes."""
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
    return of_keys(each, function, ((row[names[0]], row[names[-1]]) for row in panes))


_FORMS: Final[dict[Form, Callable[[AggregateStep, Sequence[Row]], list[Row]]]] = {
    Form.WHOLE: _whole,
    Form.PARTIAL: _partial,
    Form.COMBINED: _combined,
}
