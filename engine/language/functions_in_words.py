"""The functions of the language in words: for the documentation and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from medusa.engine.aggregates.function import AggregateFunction
from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.rows import FAMILIES
from medusa.engine.scalars.scalar import Scalar

AGGREGATE_FUNCTIONS = "Aggregate functions"


@dataclass(frozen=True, slots=True)
class FunctionInWords:
    """A function as a page shows it.

    Attributes:
        subject: the title of its table. call: the call as a query writes it.
        takes: the operands. constant: the constants that an aggregate takes; "": it takes none.
        result: the type of an aggregate's result.
        nulls: when its result may be null.
    """

    name: str
    subject: str
    call: str
    takes: str
    constant: str
    result: str
    nulls: str
    gives: str
    other_names: tuple[str, ...]
    examples: tuple[Example, ...]


def functions_in_words() -> Iterator[FunctionInWords]:
    """All functions, in the order of the documentation."""
    for family in FAMILIES:
        for row in family.rows:
            nulls = row.nulls.value if isinstance(row, Scalar) else "as what it is short for"
            yield FunctionInWords(
                row.name,
                family.title,
                row.call,
                row.takes,
                "",
                "",
                nulls,
                row.gives,
                row.other_names,
                row.examples,
            )
    for name, function in AGGREGATES.items():
        yield FunctionInWords(
            name,
            AGGREGATE_FUNCTIONS,
            function.call,
            function.argument,
            "" if function.constant is None else function.constant.what,
            _result(function),
            "never" if function.never_null else "over no values",
            function.gives,
            function.other_names,
            (function.example,),
        )


def _result(function: AggregateFunction) -> str:
    found = {function.type_of(each) for each in function.takes}
    if len(found) == len(function.takes) > 1 or (function.result is None and len(found) > 2):
        return "as its argument"
    return " or ".join(sorted(str(each) for each in found if each is not None))


def shown(value: object) -> str:
    """A value as an example shows it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
