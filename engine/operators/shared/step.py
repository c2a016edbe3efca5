"""The typed steps of a task: one class for each kind of box that has a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Final, Self

from medusa.engine.expressions.typed import Call, Expression, FieldRef, calls_in
from medusa.engine.objects.schema import SCENARIO, Field, FieldType, Schema

CASE: Final = Field(SCENARIO, FieldType.LONG)
"""The field with the number of a case, in a task that computes several cases at once."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The tuples with lo < stime <= hi; both within int64."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows [k * advance, k * advance + size) of stime, microseconds. The stime of a result is
    the last microsecond of its window. Attributes: grain_us: a tuple of the input stands for so
    many microseconds up to its stime: the width of the panes, if the input is one of panes.
    of_panes: whether the input is one of panes.
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
        """Return how long a tuple contributes to results, microseconds after its stime."""
        return self.size_us

    def horizon_us(self, stream: str | None = None) -> int:
        """How far back an output's tuples reach: from its stime to the stime of the oldest of them,
        microseconds. Args: stream: an input; None: any.
        """
        del stream
        return self.size_us - self.grain_us


@dataclass(frozen=True, slots=True)
class Near:
    """The reach of a step whose results each depend on tuples near them in time. Attributes:
    span_us: how long a tuple contributes to results, microseconds after its stime. behind_us: how
    far back an output's tuples reach, microseconds. sides: the same by input, if the inputs are not
    merged.
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
    """How a stream is made: by a step over `inputs`; None: it is their union. Attributes: schema:
    the schema of the stream; None: it is the output of a box, whose schema is known. kept: whether
    it has a log, even if nobody reads it.
    """

    stream: str
    inputs: tuple[str, ...]
    step: Step | None
    schema: Schema | None = None
    kept: bool = False


class JobSharing(Enum):
    """How tasks of a stateful step share jobs with others of their kind (ADR 31)."""

    NONE = auto()
    WINDOWS = auto()
    MATCHES = auto()


class Step(ABC):
    """The computation of one output of a box, with typed expressions.

    Attributes:
        word: the kind of box, as contracts name it.
        recalls: whether it is a `RecallingStep`. sided: whether its inputs are not merged; then it
            is the first step of its task. sharing: how its tasks share jobs.
    """

    __slots__ = ()

    word: ClassVar[str]
    recalls: ClassVar[bool] = False
    sided: ClassVar[bool] = False
    sharing: ClassVar[JobSharing] = JobSharing.NONE

    @abstractmethod
    def nodes(self, before: Mapping[str, int]) -> int:
        """The nodes of its expressions, counted as often as Spark's expressions repeat them.

        Args:
            before: see `medusa.engine.expressions.typed.nodes_of`.
        """

    @abstractmethod
    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        """The nodes of the expression that makes a field, by field of its output.

        Args: before: for each field of the step's input that an earlier step of the task makes, the
            number of nodes of its expression.
        """

    @property
    @abstractmethod
    def in_order(self) -> bool:
        """Whether its results depend on the order of arrival of the tuples of one stime."""

    @property
    @abstractmethod
    def reach(self) -> Windows | Near | None:
        """Return how far in time a result depends on tuples of the input. None: it depends on one
        tuple, or on the task's whole former output."""

    @abstractmethod
    def by_case(self) -> Self:
        """The same step for the tuples of several cases at once, told apart by the field `CASE`."""

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Return the expressions that may call functions of users."""
        return ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The different calls of functions of users, each after the calls in its arguments."""
        return tuple(dict.fromkeys(call for each in self.expressions for call in calls_in(each)))

    def tables(self, inputs: Sequence[str]) -> frozenset[str]:
        """The inputs of its task that it reads as tables."""
        del inputs
        return frozenset()

    def carried(self, made: Schema) -> tuple[FieldRef, ...]:
        """The fields that it needs beside the results of its calls, or passes unchanged. Args:
        made: the stream that it makes.
        """
        del made
        raise AssertionError("it calls no function of a user")

    def with_results(self, results: Mapping[Call, FieldRef], made: Schema) -> tuple[Step, ...]:
        """The same step, each call replaced by the field of its result. made: the stream that it
        makes."""
        del results, made
        raise AssertionError("it calls no function of a user")

    @property
    def mapping(self) -> tuple[tuple[str, Expression], ...] | None:
        """Return the (output field, expression) pairs, if it computes each output tuple from one
        input tuple; None: it leaves the fields, or does something else."""
        return None

    @property
    def projection(self) -> tuple[tuple[str, FieldRef], ...] | None:
        """The (output field, field) pairs, if it only chooses and renames fields."""
        return None

    @property
    def numbered_sides(self) -> frozenset[str]:
        """The inputs that are not merged, and whose order of arrival affects the step's results."""
        return frozenset()

    def parts(self, stream: str, inputs: tuple[str, ...], width_us: int | None) -> Sequence[Part]:
        """The parts that together make the step's output from its inputs; the last part makes the
        output. Args: width_us: the width of the panes from which the output is folded,
        microseconds; None: it is not folded.
        """
        del width_us
        return [Part(stream, inputs, self, kept=self.recalls)]

    def of_former(self, begin: int) -> Step:
        """The same step over an input whose tuples after a boundary come from two editions of
        the query: see `medusa.engine.operators.shared.panes.Layout.former`."""
        del begin
        return self

    def check_succeeds(self, stream: str, old: Step) -> None:
        """Check that the step can continue the output of a former edition. Args: stream: the output
        of the step's task. old: the step that it replaces.

        Raises:
            InvalidInputError: the step cannot continue that output.
        """
        del stream, old

    def check_unrevised(self, output: str, source: str) -> None:
        """Refuse an input that is revised, if the step cannot revise its output. Args: output: the
        output of the task. source: the input. Raises: InvalidInputError: the input is revised, and
        the step cannot revise its output.
        """
        del output, source


class RecallingStep(Step):
    """A step that reads its task's former output, as a table: see
    `medusa.engine.operators.totals.step`."""

    __slots__ = ()

    recalls: ClassVar[bool] = True

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return {}

    @property
    def reach(self) -> None:
        return None

    def by_case(self) -> Self:
        raise AssertionError("what reads its own output is not revised")
