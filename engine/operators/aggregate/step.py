"""The steps of aggregates: of windows whole, of their panes, and of windows made of panes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from medusa.engine.objects.schema import END, Field, Schema
from medusa.engine.operators.shared.aggregation import (
    TypedAggregate,
    nodes_of_all,
    nodes_of_groups,
)
from medusa.engine.operators.shared.panes import layout, panes_name
from medusa.engine.operators.shared.step import (
    CASE,
    JobSharing,
    Part,
    Step,
    Windows,
)


class Form(Enum):
    """The input and output of an aggregate; see `medusa.engine.operators.shared.panes`."""

    WHOLE = "tuples to results"
    PARTIAL = "tuples to partial results of panes"
    COMBINED = "partial results of panes to results"


@dataclass(frozen=True, slots=True)
class AggregateStep(Step):
    """Windows [k * advance, k * advance + size) of stime, microseconds, by group.

    The output tuple has stime = window end - 1, `window_start`, the group-by fields, and the
    functions' outputs. A tuple of panes has stime, the group-by fields, the fields of
    `medusa.engine.operators.shared.panes.Layout`.

    Attributes:
        functions: the functions of the window, in each form. grain_us: see `Windows`. former_after:
            if it reads panes: a boundary, microseconds. After it the step takes the panes of the
            edition before (`medusa.engine.operators.shared.panes.Layout.former`); up to it, those
            of its own.
    """

    size_us: int
    advance_us: int
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]
    form: Form = Form.WHOLE
    grain_us: int = 1
    former_after: int = END

    word: ClassVar[str] = "aggregate"
    sharing: ClassVar[JobSharing] = JobSharing.WINDOWS

    def nodes(self, before: Mapping[str, int]) -> int:
        return nodes_of_all(self.functions, before)

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return nodes_of_groups(self.group_by, before)

    @property
    def in_order(self) -> bool:
        return True

    @property
    def reach(self) -> Windows:
        of_panes = self.form is Form.COMBINED
        return Windows(self.size_us, self.advance_us, self.grain_us, of_panes=of_panes)

    def by_case(self) -> AggregateStep:
        return replace(self, group_by=(*self.group_by, CASE))

    def parts(self, stream: str, inputs: tuple[str, ...], width_us: int | None) -> Sequence[Part]:
        if width_us is None:
            return [Part(stream, inputs, self)]
        panes = replace(self, size_us=width_us, advance_us=width_us, form=Form.PARTIAL)
        combined = replace(self, form=Form.COMBINED, grain_us=width_us)
        name = panes_name(stream)
        schema = Schema(name, panes_fields(panes))
        return [Part(name, inputs, panes, schema, kept=True), Part(stream, (name,), combined)]

    def of_former(self, begin: int) -> AggregateStep:
        return replace(self, former_after=begin)


def panes_fields(step: AggregateStep) -> tuple[Field, ...]:
    """The fields of panes."""
    return (*step.group_by, *layout(step.group_by, step.functions).fields)
