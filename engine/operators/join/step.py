"""The step of a join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from medusa.engine.expressions.typed import Expression, FieldRef, Operation
from medusa.engine.objects.query import JoinKind
from medusa.engine.objects.schema import SCENARIO, FieldType
from medusa.engine.operators.join.sides import AS_OF, KEEPS_RIGHT, LEFT, ONE_SIDED, RIGHT
from medusa.engine.operators.shared.step import Near, Step


@dataclass(frozen=True, slots=True)
class JoinStep(Step):
    """Pairs of tuples of two streams; see `medusa.engine.objects.query.Join`.

    Attributes:
        left, right: the streams.
        predicate: a condition over fields with the names `left.f` and `right.f`.
        outputs: (output field, expression) pairs over the same fields. key: the key of the right
            stream, if it is read as a table; else empty.
        deleted: the right field that says that a key is deleted; "": there is none.
    """

    kind: JoinKind
    left: str
    right: str
    before_us: int
    after_us: int
    predicate: Expression
    outputs: tuple[tuple[str, Expression], ...]
    key: tuple[str, ...] = ()
    deleted: str = ""

    word: ClassVar[str] = "join"
    sided: ClassVar[bool] = True

    @property
    def table(self) -> bool:
        """Whether the right stream is read as a table."""
        return bool(self.key)

    @property
    def looks_forward(self) -> bool:
        """Whether an as-of join takes the first right tuple after a left one, not the newest."""
        return self.kind in AS_OF and self.after_us > 0

    @property
    def left_waits_us(self) -> int:
        """Return how long after its stime a left tuple may still find its first pair."""
        return max(self.after_us, 0)

    @property
    def right_waits_us(self) -> int:
        """Return how long after its stime a right tuple may still find its first pair."""
        return max(self.before_us, 0)

    @property
    def reach(self) -> Near:
        span_us = self.left_waits_us + self.right_waits_us
        sides = ((self.left, self.left_reach_us), (self.right, self.right_reach_us))
        return Near(span_us, self._behind_us, sides)

    @property
    def _behind_us(self) -> int:
        if self.kind is JoinKind.INNER:
            return max(self.left_waits_us, self.right_waits_us)
        return self.left_waits_us + self.right_waits_us

    @property
    def left_reach_us(self) -> int:
        """How far behind an output's stime the job must read left tuples. A right tuple is emitted
        alone only if the tuples in that range have been checked."""
        return self._behind_us if self.kind in KEEPS_RIGHT else self.left_waits_us

    @property
    def right_reach_us(self) -> int:
        """How far behind an output's stime the job must read right tuples."""
        pairs_alone = self.kind in {JoinKind.INNER, JoinKind.ASOF} and not self.looks_forward
        return self.right_waits_us if pairs_alone else self._behind_us

    def nodes(self, before: Mapping[str, int]) -> int:
        del before  # a join reads logs
        return self.predicate.nodes + sum(expression.nodes for _, expression in self.outputs)

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return {name: expression.nodes for name, expression in self.outputs}

    @property
    def in_order(self) -> bool:
        return False

    @property
    def numbered_sides(self) -> frozenset[str]:
        return frozenset({self.right}) if self.kind in AS_OF else frozenset()

    def tables(self, inputs: Sequence[str]) -> frozenset[str]:
        return frozenset({self.right}) if self.table else frozenset()

    def by_case(self) -> JoinStep:
        left = FieldRef(f"{LEFT}{SCENARIO}", FieldType.LONG)
        right = FieldRef(f"{RIGHT}{SCENARIO}", FieldType.LONG)
        same = Operation("=", (left, right), FieldType.BOOL)
        predicate = Operation("and", (self.predicate, same), FieldType.BOOL)
        sides = (left,) if self.kind in ONE_SIDED else (left, right)
        case = Operation("coalesce", sides, FieldType.LONG)
        return replace(self, predicate=predicate, outputs=(*self.outputs, (SCENARIO, case)))
