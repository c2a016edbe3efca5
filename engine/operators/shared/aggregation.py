"""The parts that all boxes with aggregate functions of groups share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from medusa.engine.language.aggregate_types import aggregate_type
from medusa.engine.language.aggregates import CHOSEN, COUNTS, VARIANCES, call_of, check_parameter
from medusa.engine.language.typed import Expression, FieldRef
from medusa.engine.language.user_functions import refuse_calls
from medusa.engine.objects.query import AggregateFunction, Function
from medusa.engine.objects.schema import Field, FieldType
from medusa.engine.operators.shared.operator import Given, about, listed
from medusa.overlay.errors import InvalidInputError

AVERAGE_REPEATS: Final = 5
"""Most times that Spark's form of an aggregate has its argument: an average of longs has it in two
sums of halves, one of which stands in two places, and in a count."""

REPEATS: Final[Mapping[Function, int]] = {
    **dict.fromkeys(VARIANCES, 15),
    Function.APPROX_PERCENTILE: 8,
    Function.HISTOGRAM: 9,
}
"""The same of functions that repeat it more often: `medusa.engine.spark.variances` has it in nine
sums, `medusa.engine.spark.buckets` and `medusa.engine.spark.bags` in the number of a bucket or
bin."""

MAX_OVERLAP: Final = 1_440
"""Windows that one tuple may be in, as many as a day has minutes: each reads it, or its pane."""


@dataclass(frozen=True, slots=True)
class TypedAggregate:
    """`function(argument, parameter) AS output`, of type `type`; no argument: count of tuples."""

    function: Function
    argument: Expression | None
    output: str
    type: FieldType
    parameter: int | float | str | None = None
    descending: bool = False

    @property
    def nodes(self) -> int:
        repeats = REPEATS.get(self.function, AVERAGE_REPEATS)
        return 1 + (0 if self.argument is None else repeats * self.argument.nodes)


def check_functions(functions: Sequence[AggregateFunction]) -> None:
    """Check the functions of windows. Raises: InvalidInputError: names the mistake."""
    if not functions:
        raise InvalidInputError("an aggregate needs at least one function")
    for each in functions:
        if each.argument is None and each.function is not Function.COUNT:
            raise InvalidInputError(f"{each.function} needs an argument, like {each.function}(x)")
        check_parameter(each)


def typed_functions(
    functions: Sequence[AggregateFunction], given: Given
) -> tuple[TypedAggregate, ...]:
    """The functions over an input. Raises: InvalidInputError: one does not type-check."""
    return tuple(_typed_function(each, given) for each in functions)


def _typed_function(each: AggregateFunction, given: Given) -> TypedAggregate:
    with about(f"output field {each.output[:64]!a}"):
        argument = None if each.argument is None else given.expression(each.argument)
        if argument is not None:
            refuse_calls(argument, f"{each.function}")
        type_ = aggregate_type(each.function, None if argument is None else argument.type)
        if type_ is None:
            what = "nothing" if argument is None else argument.type
            raise InvalidInputError(f"{each.function} does not take {what}")
        said = (each.parameter, each.descending)
        return TypedAggregate(each.function, argument, each.output, type_, *said)


def group_fields(names: Sequence[str], given: Given) -> tuple[Field, ...]:
    """The fields to group by. Raises: InvalidInputError: one is no field."""
    for name in names:
        if name not in given.fields:
            known = listed([(each.name, each.type) for each in given.schema.fields])
            raise InvalidInputError(
                f"it groups by {name[:64]!a}, which is no field; there are {known}"
            )
    return tuple(given.fields[name] for name in names)


def result_fields(functions: Sequence[TypedAggregate], given: Given) -> tuple[Field, ...]:
    """The fields of the functions' results."""
    return tuple(_result_field(each, given) for each in functions)


def _result_field(each: TypedAggregate, given: Given) -> Field:
    size = None
    if isinstance(each.argument, FieldRef) and each.function in CHOSEN:
        size = given.named(each.output, each.argument).size
    return Field(each.output, each.type, size, nullable=each.function not in COUNTS)


def nodes_of(functions: Sequence[TypedAggregate]) -> int:
    return sum(each.nodes for each in functions)


def nodes_of_groups(groups: Sequence[Field], before: Mapping[str, int]) -> Mapping[str, int]:
    """As `Step.nodes_after`, of fields to group by: they pass as they are."""
    return {each.name: before.get(each.name, 1) for each in groups}


def functions_in_words(functions: Sequence[AggregateFunction]) -> str:
    return ", ".join(f"{call_of(each)} as {each.output}" for each in functions)


def groups_in_words(group_by: Sequence[str]) -> str:
    return f" by {', '.join(group_by)}" if group_by else ""
