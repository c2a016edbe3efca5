"""The parts that all boxes with aggregate functions of groups share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from medusa.engine.aggregates.function import AggregateFunction
from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.expressions.aggregates import call_of, check_call
from medusa.engine.expressions.typed import Expression, FieldRef, nodes_of
from medusa.engine.expressions.user_functions import refuse_calls
from medusa.engine.objects.query import AggregateCall
from medusa.engine.objects.schema import Field, FieldType
from medusa.engine.operators.shared.operator import FieldScope, about
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError

MAX_OVERLAP: Final = 1_440
"""Windows that one tuple may be in, as many as a day has minutes: each of them reads the tuple or
its pane."""


@dataclass(frozen=True, slots=True)
class TypedAggregate:
    """`function(argument, parameter) AS output`, of type `type`; no argument: count of tuples."""

    function: AggregateFunction
    argument: Expression | None
    output: str
    type: FieldType
    parameter: int | float | str | None = None
    descending: bool = False

    @property
    def argument_type(self) -> FieldType:
        """The type of its argument; a function without one counts tuples as the number 1."""
        return FieldType.LONG if self.argument is None else self.argument.type

    def nodes(self, before: Mapping[str, int]) -> int:
        argument = 0 if self.argument is None else nodes_of(self.argument, before)
        return 1 + self.function.repeats * argument


def check_functions(functions: Sequence[AggregateCall]) -> None:
    """Check the functions of windows. Raises: InvalidInputError: names the mistake."""
    if not functions:
        raise InvalidInputError("an aggregate needs at least one function")
    for each in functions:
        check_call(each)


def typed_functions(
    functions: Sequence[AggregateCall], given: FieldScope
) -> tuple[TypedAggregate, ...]:
    """The typed functions over an input. Raises: InvalidInputError: a function does not
    type-check."""
    return tuple(_typed_function(each, given) for each in functions)


def _typed_function(each: AggregateCall, given: FieldScope) -> TypedAggregate:
    with about(f"output field {each.output[:64]!a}"):
        argument = None if each.argument is None else given.expression(each.argument)
        if argument is not None:
            refuse_calls(argument, f"{each.function}")
        function = aggregate_named(each.function)
        type_ = function.type_of(None if argument is None else argument.type)
        if type_ is None:
            what = "nothing" if argument is None else argument.type
            raise InvalidInputError(f"{each.function} does not take {what}")
        said = (each.parameter, each.descending)
        return TypedAggregate(function, argument, each.output, type_, *said)


def group_fields(names: Sequence[str], given: FieldScope) -> tuple[Field, ...]:
    """The fields to group by. Raises: InvalidInputError: a name is no field."""
    for name in names:
        if name not in given.fields:
            types = {each.name: each.type for each in given.schema.fields}
            known = alternatives(name, types, types)
            raise InvalidInputError(f"it groups by {name[:64]!a}, which is no field; {known}")
    return tuple(given.fields[name] for name in names)


def result_fields(functions: Sequence[TypedAggregate], given: FieldScope) -> tuple[Field, ...]:
    """The fields of the functions' results."""
    return tuple(_result_field(each, given) for each in functions)


def _result_field(each: TypedAggregate, given: FieldScope) -> Field:
    size = None
    if isinstance(each.argument, FieldRef) and each.function.chosen:
        size = given.named(each.output, each.argument).size
    return Field(each.output, each.type, size, nullable=not each.function.never_null)


def nodes_of_all(functions: Sequence[TypedAggregate], before: Mapping[str, int]) -> int:
    return sum(each.nodes(before) for each in functions)


def nodes_of_groups(groups: Sequence[Field], before: Mapping[str, int]) -> Mapping[str, int]:
    """The nodes of the fields to group by, as of `Step.nodes_after`; the fields pass unchanged."""
    return {each.name: before.get(each.name, 1) for each in groups}


def functions_in_words(functions: Sequence[AggregateCall]) -> str:
    return ", ".join(f"{call_of(each)} as {each.output}" for each in functions)


def groups_in_words(group_by: Sequence[str]) -> str:
    return f" by {', '.join(group_by)}" if group_by else ""
