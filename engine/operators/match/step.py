"""The step of a match: the variables of its pattern, and its results, with types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from medusa.engine.expressions.typed import Expression, FieldRef
from medusa.engine.objects.query import Contiguity
from medusa.engine.objects.schema import Field, FieldType
from medusa.engine.operators.shared.aggregation import nodes_of_groups
from medusa.engine.operators.shared.step import (
    CASE,
    JobSharing,
    Near,
    Step,
)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a pattern; see `medusa.engine.objects.query.PatternStep`.

    Attributes:
        condition: a condition over fields with the names `f`, `V.f` and `prev.f`.
        forbidden: conditions; no tuple that fulfils one of them may come between its last tuple and
            the next variable's first.
    """

    name: str
    condition: Expression
    least: int
    most: int | None
    reluctant: bool
    forbidden: tuple[Expression, ...] = ()

    @property
    def counted(self) -> int:
        """The number up to which a match counts its tuples of this variable: what the match may
        take next is the same for any greater number."""
        return max(self.least, 1) if self.most is None else self.most


@dataclass(frozen=True, slots=True)
class TypedMeasure:
    """`function(variable.field) AS output`, of type `type`.

    Attributes:
        variable: its place in the pattern; None: all tuples of the match.
        argument: the field; None: the function counts the tuples themselves.
    """

    function: str
    variable: int | None
    argument: FieldRef | None
    output: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class MatchStep(Step):
    """Sequences of tuples that fit a pattern; see `medusa.engine.objects.query.Match`."""

    partition_by: tuple[Field, ...]
    variables: tuple[Variable, ...]
    within_us: int
    contiguity: Contiguity
    measures: tuple[TypedMeasure, ...]

    word: ClassVar[str] = "match"
    sharing: ClassVar[JobSharing] = JobSharing.MATCHES

    def nodes(self, before: Mapping[str, int]) -> int:
        del before  # the matcher has collected the tuples
        each = sum(
            variable.condition.nodes + sum(forbidden.nodes for forbidden in variable.forbidden)
            for variable in self.variables
        )
        # the condition of each variable is evaluated at every place from which it can take a tuple
        return len(self.variables) * (each + 2 * len(self.measures))

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return nodes_of_groups(self.partition_by, before)

    @property
    def in_order(self) -> bool:
        return True

    @property
    def reach(self) -> Near:
        return Near(self.within_us, self.within_us)

    def by_case(self) -> MatchStep:
        return replace(self, partition_by=(*self.partition_by, CASE))
