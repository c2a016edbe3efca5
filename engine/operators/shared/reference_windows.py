"""Aggregate functions over rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from medusa.engine.aggregates.function import (
    FOLDS,
    Constant,
    Counted,
    End,
    Entries,
    Folded,
    Kind,
    OfBag,
    OfSet,
    nan_last,
)
from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.expressions.typed import Expression
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.scalars.values import Value


def folded(each: TypedAggregate, rows: list[Row]) -> Value:
    """A function over the rows of one window, which are in order."""
    function, values = each.function, values_of(each.argument, rows)
    if isinstance(function, End):
        return values[function.place]
    present = [value for value in values if value is not None]
    if isinstance(function, Folded):
        type_ = each.argument_type
        return function.of(function.partial(present, type_), type_)
    assert isinstance(function, Counted), function
    return of_keys(each, function, _marked(function.kind, present, each.parameter))


def values_of(argument: Expression | None, rows: Sequence[Row]) -> list[Value]:
    """The values of the argument; without one, the number 1 for each tuple."""
    return [1 if argument is None else evaluate(argument, row) for row in rows]


def _marked(
    kind: Kind, values: Sequence[Value], constant: Constant
) -> Iterator[tuple[Value, Value]]:
    """The keys of values that are not null, and their marks."""
    return ((kind.key(value, constant), kind.mark(value)) for value in values)


def of_keys(each: TypedAggregate, function: Counted, keys: Iterable[tuple[Value, Value]]) -> Value:
    """The result, computed from keys and their states; a key may come several times."""
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
    if kind.state is None:
        return [(key, 1) for key in sorted(found, key=nan_last)]
    fold = FOLDS[kind.state.fold]
    return [(key, fold(found[key])) for key in sorted(found, key=nan_last)]
