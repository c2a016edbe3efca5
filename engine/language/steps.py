"""Typed steps of a task, ready to be compiled.

A step's `nodes` count those of its expressions (`medusa.engine.language.typed`), as often as
Spark's form repeats them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from medusa.engine.language.aggregates import VARIANCES
from medusa.engine.language.joins import AS_OF
from medusa.engine.language.typed import Expression, FieldRef
from medusa.engine.objects.query import Contiguity, Function, JoinKind, OrderBy
from medusa.engine.objects.schema import END, Field, FieldType

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


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Keeps the tuples of one port of a filter.

    Attributes:
        predicates: all of the filter's, or as many as decide the port.
        port: a tuple is kept if predicate `port` is true and none before it is (null is not
            true); `port == len(predicates)`: if none is true.
    """

    predicates: tuple[Expression, ...]
    port: int

    @property
    def nodes(self) -> int:
        return sum(predicate.nodes for predicate in self.predicates)


@dataclass(frozen=True, slots=True)
class MapStep:
    """A projection: (output field, expression) pairs; stime is kept."""

    outputs: tuple[tuple[str, Expression], ...]

    @property
    def nodes(self) -> int:
        return sum(expression.nodes for _, expression in self.outputs)


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


class Form(Enum):
    """What an aggregate reads and makes; see `medusa.engine.language.panes`."""

    WHOLE = "tuples to results"
    PARTIAL = "tuples to partial results of panes"
    COMBINED = "partial results of panes to results"


@dataclass(frozen=True, slots=True)
class AggregateStep:
    """Windows [k * advance, k * advance + size) of stime, microseconds, by group.

    The output tuple: stime = window end - 1; `window_start`, the group-by fields, the functions'
    outputs. Of panes: stime, the group-by fields, the fields of
    `medusa.engine.language.panes.Layout`.

    Attributes:
        functions: of the window, in each form.
        grain_us: the tuples of the input stand for so many microseconds up to their stime: the
            width of the panes, if it reads panes.
        former_after: if it reads panes: after this boundary, microseconds, it takes those of the
            edition before (`medusa.engine.language.panes.Layout.former`); up to it, the others.
    """

    size_us: int
    advance_us: int
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]
    form: Form = Form.WHOLE
    grain_us: int = 1
    former_after: int = END

    @property
    def overlapping(self) -> bool:
        """Whether one of its windows is open at any time."""
        return self.size_us > self.advance_us

    @property
    def nodes(self) -> int:
        return sum(each.nodes for each in self.functions)


@dataclass(frozen=True, slots=True)
class RankStep:
    """The first tuples of windows [k * size, (k + 1) * size) of stime; see
    `medusa.engine.objects.query.Rank`.

    Attributes:
        fields: of the input, and of the output before the place.
        newest_first: equal tuples are in the reverse of the stream's order.
    """

    size_us: int
    fields: tuple[Field, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[OrderBy, ...]
    most: int
    place: str
    newest_first: bool

    form: ClassVar[Form] = Form.WHOLE
    grain_us: ClassVar[int] = 1
    overlapping: ClassVar[bool] = False
    nodes: ClassVar[int] = 1

    @property
    def advance_us(self) -> int:
        """The windows follow one another."""
        return self.size_us


@dataclass(frozen=True, slots=True)
class SessionsStep:
    """Sessions of each group; see `medusa.engine.objects.query.Sessions`."""

    gap_us: int
    longest_us: int
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]

    @property
    def horizon_us(self) -> int:
        """How far behind an output's stime the tuples are that it is made of. It shows that the
        session was too long, and begins a gap after the tuple before it."""
        return self.longest_us + 2 * self.gap_us

    @property
    def span_us(self) -> int:
        """How long after the stime of a tuple it still makes results of it, microseconds."""
        return self.horizon_us

    @property
    def nodes(self) -> int:
        return sum(each.nodes for each in self.functions)


@dataclass(frozen=True, slots=True)
class CumulateStep:
    """Windows that grow; see `medusa.engine.objects.query.Cumulate`."""

    step_us: int
    size_us: int
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]

    @property
    def horizon_us(self) -> int:
        """How far behind an output's stime the tuples are that it is made of."""
        return self.size_us - 1

    @property
    def span_us(self) -> int:
        """How long after the stime of a tuple it still makes results of it, microseconds."""
        return self.horizon_us

    @property
    def nodes(self) -> int:
        return sum(each.nodes for each in self.functions)


SpanStep = SessionsStep | CumulateStep
"""An aggregate of tuples that are near each other, whose results do not all end with a window."""

WindowStep = AggregateStep | RankStep
"""A step over windows of stime, whose results have the last microsecond of theirs as stime."""


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Pairs of tuples of two streams; see `medusa.engine.objects.query.Join`.

    Attributes:
        left, right: the streams.
        predicate: over fields called `left.f` and `right.f`.
        outputs: (output field, expression) pairs over the same.
        key: of the right stream, if it is read as a table; else empty.
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

    @property
    def table(self) -> bool:
        """Whether the right stream is read as a table."""
        return bool(self.key)

    @property
    def looks_forward(self) -> bool:
        """Whether a join as of takes the first right tuple after a left one, not the newest."""
        return self.kind in AS_OF and self.after_us > 0

    @property
    def left_waits_us(self) -> int:
        """How long after its stime a left tuple may still find its first pair."""
        return max(self.after_us, 0)

    @property
    def right_waits_us(self) -> int:
        """How long after its stime a right tuple may still find its first pair."""
        return max(self.before_us, 0)

    @property
    def span_us(self) -> int:
        """How long after the stime of a tuple it still makes results of it, microseconds."""
        return self.left_waits_us + self.right_waits_us

    @property
    def horizon_us(self) -> int:
        """How far behind an output's stime the tuples are that it is made of."""
        if self.kind is JoinKind.INNER:
            return max(self.left_waits_us, self.right_waits_us)
        return self.left_waits_us + self.right_waits_us

    @property
    def left_horizon_us(self) -> int:
        """How far behind an output's stime its left tuples are. Of a right tuple that comes out
        alone, those are asked for that are not there, too."""
        alone = self.kind in {JoinKind.RIGHT, JoinKind.FULL}
        return self.horizon_us if alone else self.left_waits_us

    @property
    def right_horizon_us(self) -> int:
        """How far behind an output's stime its right tuples are, and those that are not there."""
        pairs_alone = self.kind in {JoinKind.INNER, JoinKind.ASOF} and not self.looks_forward
        return self.right_waits_us if pairs_alone else self.horizon_us

    @property
    def nodes(self) -> int:
        return self.predicate.nodes + sum(expression.nodes for _, expression in self.outputs)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a pattern; see `medusa.engine.objects.query.PatternStep`.

    Attributes:
        condition: over fields called `f`, `V.f` and `prev.f`.
        forbidden: no tuple for which one of these is true may follow its last one, up to the next
            variable's first.
    """

    name: str
    condition: Expression
    least: int
    most: int | None
    reluctant: bool
    forbidden: tuple[Expression, ...] = ()

    @property
    def counted(self) -> int:
        """Its tuples are counted up to this number: more make no difference."""
        return max(self.least, 1) if self.most is None else self.most


@dataclass(frozen=True, slots=True)
class TypedMeasure:
    """`function(variable.field) AS output`, of type `type`.

    Attributes:
        variable: its place in the pattern; None: all tuples of the match.
        argument: the field; None: the tuples themselves are counted.
    """

    function: Function
    variable: int | None
    argument: FieldRef | None
    output: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class MatchStep:
    """Sequences of tuples that fit a pattern; see `medusa.engine.objects.query.Match`."""

    partition_by: tuple[Field, ...]
    variables: tuple[Variable, ...]
    within_us: int
    contiguity: Contiguity
    measures: tuple[TypedMeasure, ...]

    @property
    def nodes(self) -> int:
        each = sum(
            variable.condition.nodes + sum(forbidden.nodes for forbidden in variable.forbidden)
            for variable in self.variables
        )
        # each variable's condition stands where a tuple comes to it, after any one before it
        return len(self.variables) * (each + 2 * len(self.measures))

    @property
    def horizon_us(self) -> int:
        """How much older than a result the tuples are that it depends on."""
        return self.within_us

    @property
    def span_us(self) -> int:
        """How long after the stime of a tuple it still makes results of it."""
        return self.within_us


@dataclass(frozen=True, slots=True)
class TotalsStep:
    """Totals of groups, with what they are made of: see `medusa.engine.language.totals`.

    Attributes:
        changes: the key of the input, if it is read as a table; else empty.
        deleted: the input's field that says that a key is deleted; "": there is none.
    """

    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]
    changes: tuple[str, ...] = ()
    deleted: str = ""

    @property
    def nodes(self) -> int:
        return sum(each.nodes for each in self.functions)


@dataclass(frozen=True, slots=True)
class TupleWindowsStep:
    """Windows of so many tuples: see `medusa.engine.objects.query.TupleWindows`. Its output has the
    tuples as well: see `medusa.engine.language.tuple_windows`.

    Attributes:
        fields: of the input, that the functions take.
    """

    size: int
    advance: int
    partial: bool
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]
    fields: tuple[Field, ...]
    number: str = ""

    @property
    def nodes(self) -> int:
        return sum(each.nodes for each in self.functions)


@dataclass(frozen=True, slots=True)
class TopStep:
    """The first tuples of partitions: see `medusa.engine.objects.query.Top`.

    Attributes:
        fields: of the input, all of which are in the output.
        newest_first: of equal tuples of one stime the last comes first.
    """

    fields: tuple[Field, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[OrderBy, ...]
    most: int
    place: str
    newest_first: bool

    @property
    def nodes(self) -> int:
        return self.most * len(self.fields)


NearStep = SpanStep | JoinStep | MatchStep
"""A step whose results each depend on the tuples that are near them in time."""

RecallingStep = TotalsStep | TopStep | TupleWindowsStep
"""A step that reads what its task has made, as a table."""

Step = FilterStep | MapStep | WindowStep | NearStep | RecallingStep
