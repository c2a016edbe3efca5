"""The typed steps of a task: one class for each kind of box that has a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from medusa.engine.language.typed import Call, Expression, FieldRef, calls_in
from medusa.engine.objects.schema import SCENARIO, Field, FieldType, Schema

CASE: Final = Field(SCENARIO, FieldType.LONG)
"""The field with the number of a case, where a task computes several of them at once."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows [k * advance, k * advance + size) of stime, microseconds. Their results have the last
    microsecond of theirs as stime.

    Attributes:
        grain_us: the tuples of the input stand for so many microseconds up to their stime: the
            width of the panes, if it reads panes.
        of_panes: it reads panes.
    """

    size_us: int
    advance_us: int
    grain_us: int = 1
    of_panes: bool = False

    @property
    def overlapping(self) -> bool:
        """Whether one of its windows is open at any time."""
        return self.size_us > self.advance_us

    @property
    def span_us(self) -> int:
        """Return how long after a tuple's stime it still contributes to results, microseconds."""
        return self.size_us

    def horizon_us(self, stream: str | None = None) -> int:
        """How far behind an output's stime the tuples are that it is made of, microseconds.

        Args:
            stream: of this input; None: of any.
        """
        del stream
        return self.size_us - self.grain_us


@dataclass(frozen=True, slots=True)
class Near:
    """Results that each depend on the tuples that are near them in time.

    Attributes:
        span_us: how long after the stime of a tuple it still makes results of it, microseconds.
        behind_us: how far behind an output's stime the tuples are that it is made of.
        sides: the same by input, of those that are not merged.
    """

    span_us: int
    behind_us: int
    sides: tuple[tuple[str, int], ...] = ()

    def horizon_us(self, stream: str | None = None) -> int:
        """Return the horizon, as `Windows.horizon_us`."""
        own = [behind for name, behind in self.sides if name == stream]
        return max(own, default=self.behind_us)


@dataclass(frozen=True, slots=True)
class Part:
    """How a stream is made: one step over `inputs`; None: their union.

    Attributes:
        schema: of the stream; None: it is the output of a box, whose schema is known.
        kept: it has a log, whoever reads it.
    """

    stream: str
    inputs: tuple[str, ...]
    step: Step | None
    schema: Schema | None = None
    kept: bool = False


class Step(ABC):
    """What a box does to the tuples of one of its outputs, with typed expressions.

    Attributes:
        word: the kind of box, as contracts name it.
        recalls: it reads what its task has made, as a table: see
            `medusa.engine.operators.totals.step`.
        sided: its inputs are not merged. It is the first step of its task.
    """

    __slots__ = ()

    word: ClassVar[str]
    recalls: ClassVar[bool] = False
    sided: ClassVar[bool] = False

    @property
    @abstractmethod
    def nodes(self) -> int:
        """The nodes of its expressions (`medusa.engine.language.typed`), as often as Spark's form
        repeats them."""

    @abstractmethod
    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        """The nodes of the expression that makes a field, by field of its output.

        Args:
            before: the same, of its input, as far as the task has made its fields.
        """

    @property
    @abstractmethod
    def in_order(self) -> bool:
        """Whether its results depend on the order of arrival of the tuples of one stime."""

    @property
    @abstractmethod
    def reach(self) -> Windows | Near | None:
        """Return how far around it in its input a result depends on tuples. None: on one tuple, or
        on all that its task has made before."""

    @abstractmethod
    def by_case(self) -> Self:
        """The same step for tuples of several cases at once, which have `CASE` as a field."""

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Return the expressions that may call functions of users."""
        return ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The different calls of functions of users, each behind those that are its arguments."""
        return tuple(dict.fromkeys(call for each in self.expressions for call in calls_in(each)))

    def tables(self, inputs: Sequence[str]) -> frozenset[str]:
        """The inputs of its task that it reads as tables."""
        del inputs
        return frozenset()

    def carried(self, made: Schema) -> tuple[FieldRef, ...]:
        """The fields that it needs beside the results of its calls, or leaves as they are.

        Args:
            made: what it makes.
        """
        del made
        raise AssertionError("it calls no function of a user")

    def with_results(self, results: Mapping[Call, FieldRef], made: Schema) -> tuple[Step, ...]:
        """The same steps, the results of its calls in their place. made: what it makes."""
        del results, made
        raise AssertionError("it calls no function of a user")

    @property
    def mapping(self) -> tuple[tuple[str, Expression], ...] | None:
        """Return the (output field, expression) pairs, if it computes all fields of one tuple of
        those of one; None: it leaves them, or does something else."""
        return None

    @property
    def projection(self) -> tuple[tuple[str, FieldRef], ...] | None:
        """The (output field, field) pairs, if it only chooses and renames fields."""
        return None

    @property
    def numbered_sides(self) -> frozenset[str]:
        """The inputs that are not merged, and whose order of arrival matters to its results."""
        return frozenset()

    def parts(self, stream: str, inputs: tuple[str, ...], width_us: int | None) -> Sequence[Part]:
        """How its output is made of its inputs, the output last.

        Args:
            width_us: of the panes that the output is folded from, microseconds, if it is.
        """
        del width_us
        return [Part(stream, inputs, self, kept=self.recalls)]

    def of_former(self, begin: int) -> Step:
        """The same step over an input of which the tuples after a boundary are made by two
        editions: see `medusa.engine.operators.shared.panes.Layout.former`."""
        del begin
        return self

    def check_succeeds(self, stream: str, old: Step) -> None:
        """Check that it can go on from what a former edition has made.

        Args:
            stream: the output of its task. old: the step in its place there.

        Raises:
            InvalidInputError: it cannot.
        """
        del stream, old

    def check_unrevised(self, output: str, source: str) -> None:
        """Refuse an input that is revised, if it cannot take back what it has made.

        Args:
            output: of its task. source: the input.

        Raises:
            InvalidInputError: it cannot.
        """
        del output, source
