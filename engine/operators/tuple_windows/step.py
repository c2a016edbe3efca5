"""Count windows: a number of tuples of a group, however long ago the first of them came.

Which tuple is the nth depends on all earlier tuples. So a task numbers the tuples in an output of
its own, `OUT/panes`, which it reads as a table up to the boundary from which it continues, as group
aggregates do (`medusa.engine.operators.totals.step`). `OUT/panes` has

* for each tuple of the input its number in its group, and the fields that functions take. Its part
  is 1 and the number's remainder by the size: so a folded table has the last tuples of each group,
  as many as a window has;
* for each window that ends a tuple with its results, with part 0 and the stime of its last tuple;
  with the number of that tuple, if it is a result.

`OUT` has the results of the latter tuples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from medusa.engine.expressions.typed import Constant, FieldRef, Operation, fields_in
from medusa.engine.objects.definitions import PANES
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.shared.aggregation import TypedAggregate, nodes_of_all
from medusa.engine.operators.shared.panes import made_of_table, panes_name
from medusa.engine.operators.shared.step import Part, RecallingStep, Step
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class TupleWindowsStep(RecallingStep):
    """Windows of a number of tuples: see `medusa.engine.objects.query.TupleWindows`. Its output
    also has the input's tuples. Attributes: fields: the fields of the input that the functions
    take.
    """

    size: int
    advance: int
    partial: bool
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]
    fields: tuple[Field, ...]
    number: str = ""

    word: ClassVar[str] = "aggregate"

    def nodes(self, before: Mapping[str, int]) -> int:
        return nodes_of_all(self.functions, before)

    @property
    def in_order(self) -> bool:
        return True

    def parts(self, stream: str, inputs: tuple[str, ...], width_us: int | None) -> Sequence[Part]:
        name = panes_name(stream)
        table = Part(name, inputs, self, tuples_schema(name, self), kept=True)
        return [table, *made_of_table(stream, name, result_steps(self))]

    def check_unrevised(self, output: str, source: str) -> None:
        raise InvalidInputError(
            f"{output.removesuffix(f'/{PANES}')} numbers the tuples of {source}, which may be "
            "revised, and then each later one would have another number: say a window, or of a "
            "join a buffer, of time"
        )

    def check_succeeds(self, stream: str, old: Step) -> None:
        """Check that a former edition's output has the tuples with which the windows continue."""
        if not isinstance(old, TupleWindowsStep):
            return
        if self.size > old.size or self.fields != old.fields:
            kept = ", ".join(each.name for each in old.fields) or "none"
            raise InvalidInputError(
                f"{stream} would need more of the tuples before than was kept, of each group the "
                f"last {old.size} with the fields {kept[:200]}: make another query"
            )


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of `OUT/panes`, besides the groups and the results.

    Attributes:
        part: 0: the tuple has results; else 1 plus the remainder of its number by the size. number:
            a tuple's number in its group, from 1; in a result, that of the window's last tuple.
            kept: (field of the input, field here) of the fields that functions take.
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
    """The schema of `OUT/panes`. The number comes before all other fields that differ between
    tuples of one part and stime, so that the last of these is the newest."""
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
    """Return the steps from `OUT/panes` to the results."""
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
    """The fields of the input in the functions' arguments, in the input's order."""
    arguments = [each.argument for each in functions if each.argument is not None]
    names = {name for each in arguments for name in fields_in(each)} - {STIME}
    return tuple(each for each in schema.fields if each.name in names)
