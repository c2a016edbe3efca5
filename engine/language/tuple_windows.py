"""Windows of so many tuples of a group, however long ago the first of them came.

Which tuple is the nth depends on all before it. So a task counts them in what it makes,
`OUT/panes`, which it reads as a table up to the boundary from which it goes on, as totals do
(`medusa.engine.language.totals`). `OUT/panes` has

* for each tuple of the input its number in its group, and the fields that functions take. Its part
  is 1 and the number's remainder by the size: so a folded table has the last tuples of each group,
  as many as a window has;
* for each window that ends a tuple with its results, with part 0 and the stime of its last tuple;
  with the number of that tuple, if it is a result.

`OUT` is made of the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from medusa.engine.language.steps import FilterStep, MapStep, TupleWindowsStep, TypedAggregate
from medusa.engine.language.typed import Constant, FieldRef, Operation, fields_in
from medusa.engine.objects.query import TupleWindows
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError

MOST_TUPLES: Final = 1_000
"""Tuples of a window: as many of each group are read in each job."""

MOST_WINDOWS: Final = 100
"""Windows that a tuple is in: a job has as many copies of it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of `OUT/panes`, besides the groups and the results.

    Attributes:
        part: 0: the tuple has results; else 1 and the remainder of its number by the size.
        number: of a tuple in its group, from 1; of a window, if it is a result, its last tuple's.
        kept: (field of the input, field here) of those that functions take.
    """

    part: str
    number: str
    kept: tuple[tuple[Field, str], ...]


def layout_of(step: TupleWindowsStep) -> Layout:
    """The fields of a step's state, under names that no group and no result has."""
    taken = {each.name.lower() for each in step.group_by}
    taken |= {each.output.lower() for each in step.functions} | {step.number.lower()}
    prefix = "t"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    kept = tuple((each, f"{prefix}{number}") for number, each in enumerate(step.fields))
    return Layout(f"{prefix}part", f"{prefix}number", kept)


def tuples_schema(name: str, step: TupleWindowsStep) -> Schema:
    """The schema of `OUT/panes`. The number comes before all that differs between the tuples of a
    part and a stime: the last of these is the newest."""
    layout = layout_of(step)
    fields = (
        *step.group_by,
        Field(layout.part, FieldType.INT),
        Field(layout.number, FieldType.LONG, nullable=True),
        *(Field(name, each.type, nullable=True) for each, name in layout.kept),
        *(Field(each.output, each.type, nullable=True) for each in step.functions),
    )
    return Schema(name, fields, key=(*(each.name for each in step.group_by), layout.part))


def result_steps(step: TupleWindowsStep) -> tuple[FilterStep, MapStep]:
    """From `OUT/panes` to the results."""
    names = [(each.name, each.type) for each in step.group_by]
    names += [(each.output, each.type) for each in step.functions]
    layout = layout_of(step)
    part = FieldRef(layout.part, FieldType.INT)
    is_result = Operation("=", (part, Constant(0, FieldType.INT)), FieldType.BOOL)
    mapped = [(name, FieldRef(name, type_)) for name, type_ in names]
    if step.number:
        mapped.append((step.number, FieldRef(layout.number, FieldType.LONG)))
    return FilterStep((is_result,), 0), MapStep(tuple(mapped))


def fields_taken(functions: tuple[TypedAggregate, ...], schema: Schema) -> tuple[Field, ...]:
    """The fields of the input that the functions' arguments have, in its order."""
    arguments = [each.argument for each in functions if each.argument is not None]
    names = {name for each in arguments for name in fields_in(each)} - {STIME}
    return tuple(each for each in schema.fields if each.name in names)


def check_tuple_windows(box: TupleWindows) -> None:
    """Check size, advance and functions. Raises: InvalidInputError: names the mistake."""
    if not box.functions:
        raise InvalidInputError("windows of tuples need at least one function")
    check_sizes(box.size, box.advance)


def check_sizes(size: int, advance: int) -> None:
    """Check the numbers of tuples of windows. Raises: InvalidInputError: names the mistake."""
    if not 1 <= size <= MOST_TUPLES:
        raise InvalidInputError(
            f"its windows have {size:,} tuples; 1 to {MOST_TUPLES:,} are allowed"
        )
    if not 1 <= advance <= MOST_TUPLES:
        raise InvalidInputError(
            f"its windows advance by {advance:,} tuples; 1 to {MOST_TUPLES:,} are allowed"
        )
    if size > MOST_WINDOWS * advance:
        raise InvalidInputError(
            f"a tuple is in {-(-size // advance)} of its windows; at most {MOST_WINDOWS} "
            f"are allowed: let them have fewer tuples, or advance by more"
        )
