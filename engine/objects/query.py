"""Query networks: boxes that read and write named streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from medusa.engine.objects.availability import Availability
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import BEGINNING, END


class OneStream(Struct, frozen=True):
    """The common part of boxes with one input and one output."""

    name: str
    input: str
    output: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""
        return (self.input,)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,)

    def renamed(self, new_name: Callable[[str], str]) -> Self:
        """The same box with other names of its streams."""
        return replace(self, input=new_name(self.input), output=new_name(self.output))


class Filter(Struct, frozen=True, tag="filter"):
    """First-match routing: a tuple leaves by the first port whose predicate is true.

    Attributes:
        outputs: one stream per predicate, in order; with `pass_on_false` one more, for tuples that
            match none.
    """

    name: str
    input: str
    outputs: tuple[str, ...]
    predicates: tuple[str, ...]
    pass_on_false: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""
        return (self.input,)

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return self.predicates

    def renamed(self, new_name: Callable[[str], str]) -> Self:
        """The same box with other names of its streams."""
        outputs = tuple(map(new_name, self.outputs))
        return replace(self, input=new_name(self.input), outputs=outputs)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, predicates=())


class Map(OneStream, frozen=True, tag="map"):
    """A projection: each output field is an expression over the input tuple; stime is kept."""

    expressions: tuple[tuple[str, str], ...]
    """(output field, expression) pairs."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return tuple(text for _, text in self.expressions)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, expressions=())


class Union(Struct, frozen=True, tag="union"):
    """The tuples of all inputs, which have the same fields, in canonical order."""

    name: str
    inputs: tuple[str, ...]
    output: str

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,)

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return ()

    def renamed(self, new_name: Callable[[str], str]) -> Self:
        """The same box with other names of its streams."""
        inputs = tuple(map(new_name, self.inputs))
        return replace(self, inputs=inputs, output=new_name(self.output))

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return self


class AggregateCall(Struct, frozen=True, omit_defaults=True):
    """One aggregate: `function(argument, parameter) AS output`; count may have no argument.

    Attributes:
        function: its name, of those in `medusa.engine.aggregates.rows`.
        parameter: the constant that the function takes.
        descending: its values are taken from the greatest to the least.
    """

    function: str
    argument: str | None
    output: str
    parameter: int | float | str | None = None
    descending: bool = False


def _arguments(functions: Sequence[AggregateCall]) -> tuple[str, ...]:
    return tuple(each.argument for each in functions if each.argument is not None)


def _named(functions: Sequence[AggregateCall]) -> tuple[AggregateCall, ...]:
    """The calls without their arguments."""
    return tuple(AggregateCall(each.function, None, each.output) for each in functions)


class Aggregate(OneStream, frozen=True, tag="aggregate"):
    """Windows of stime, [k * advance, k * advance + size) aligned to the epoch, by group.

    A window is emitted when the boundary passes its last microsecond, which is the stime of its
    results. A window without tuples emits nothing. Output fields: `window_start` (timestamp), the
    group-by fields, the functions' outputs.

    Attributes:
        order_on: the author's order: "", stime or the input's time field; others are refused.
    """

    size_us: int
    advance_us: int
    group_by: tuple[str, ...]
    functions: tuple[AggregateCall, ...]
    order_on: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return _arguments(self.functions)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, functions=_named(self.functions), order_on="")


class Sessions(OneStream, frozen=True, tag="sessions"):
    """Sessions of each group: in a session, each tuple comes no more than `gap_us` after the one
    before. Its result is emitted `gap_us` after its last tuple, and has that stime. One that lasts
    longer than `longest_us` from its first to its last tuple is cut at the multiples of
    `longest_us` since the epoch. So a result depends on no more of the input than `longest_us` and
    two gaps before it, wherever the reading of the input began. The first part is emitted with the
    first tuple that makes the session too long, each further one with the first tuple behind its
    cut.

    Output fields: `window_start` (its first tuple's stime), `window_end` (its last tuple's stime
    plus the gap, or the cut), the group-by fields, the functions' outputs.
    """

    gap_us: int
    longest_us: int
    group_by: tuple[str, ...]
    functions: tuple[AggregateCall, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return _arguments(self.functions)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, functions=_named(self.functions))


HOUR_US: Final = 3_600_000_000


def longest_session(gap_us: int) -> int:
    """The default of `Sessions.longest_us`: an hour, or the gap if that is longer."""
    return max(gap_us, HOUR_US)


class Cumulate(OneStream, frozen=True, tag="cumulate"):
    """Windows that grow: [k * size, k * size + n * step) of stime, n = 1, 2... up to the size.

    The result of each covers all tuples since k * size. It is emitted when the boundary passes the
    window's last microsecond, which is its stime. A window without tuples emits nothing. Output
    fields: `window_start`, `window_end` (timestamps), the group-by fields, the functions' outputs.
    """

    step_us: int
    size_us: int
    group_by: tuple[str, ...]
    functions: tuple[AggregateCall, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return _arguments(self.functions)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, functions=_named(self.functions))


class OrderBy(Struct, frozen=True):
    """A field of an order: `price DESC NULLS LAST`.

    Attributes:
        nulls_first: whether tuples without a value are before all others. By default they are first
            in an ascending order and last in a descending one, as in Flink and Spark.
    """

    field: str
    descending: bool
    nulls_first: bool


def order_by(field: str, *, descending: bool = False, nulls_first: bool | None = None) -> OrderBy:
    """Make a field of an order. nulls_first: None: the default of `OrderBy`."""
    return OrderBy(field, descending, not descending if nulls_first is None else nulls_first)


class Rank(OneStream, frozen=True, tag="rank"):
    """The first few tuples, in an order, of each partition and of each window of stime, [k * size,
    (k + 1) * size) aligned to the epoch: SQL's `ROW_NUMBER() OVER (...) <= most`.

    The results are emitted when the boundary passes the window's last microsecond, which is their
    stime. Equal tuples are in the order of the stream: by stime, then by arrival if it is a source
    stream, else by their fields. If the order has the stream's time descending, they are in the
    reverse.

    Attributes:
        size_us: the size of the window; 1: it has the tuples of one stime, such as a window's
            results. order_by: empty: the order of the stream. most: tuples of a window and
            partition that are emitted.
        place: the output's last field, the tuple's place from 1; "": it has none.
    """

    size_us: int
    partition_by: tuple[str, ...]
    order_by: tuple[OrderBy, ...]
    most: int
    place: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return ()

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return self


class JoinKind(StrEnum):
    """Which tuples a join emits.

    t is a tuple of the left stream, u one of the right; a pair is within the bounds of time, and
    its predicate is true.
    """

    INNER = "inner"
    """Every pair."""
    LEFT = "left"
    """Every pair, and each t that is in none."""
    RIGHT = "right"
    """Every pair, and each u that is in none."""
    FULL = "full"
    """Every pair, and each t and u that is in none."""
    SEMI = "semi"
    """Each t that is in a pair, once."""
    ANTI = "anti"
    """Each t that is in no pair."""
    ASOF = "asof"
    """For each t, the pair with the u that is nearest in time."""
    LEFT_ASOF = "left_asof"
    """For each t, the pair with the u that is nearest in time, or t alone."""

    @property
    def words(self) -> str:
        """The kind in a sentence, like `a left as-of join`."""
        name = self.replace("_", " ").replace("asof", "as-of")
        return f"{'an' if name[0] in 'ai' else 'a'} {name} join"


class Join(Struct, frozen=True, tag="join", omit_defaults=True):
    """Pairs of tuples t of `left` and u of `right`, with `t.stime - before_us <= u.stime <= t.stime
    + after_us`, for which the predicate is true.

    A pair's stime is that of its later tuple. A tuple that is in no pair is emitted as soon as no
    partner can come any more: t at `t.stime + max(after_us, 0)`, u at `u.stime + max(before_us,
    0)`. SEMI and ANTI are emitted at that time, too.

    An as-of join looks one way: back, to the newest u, or forward (`after_us` > 0), to the first.
    If several u have that stime, it takes the last one looking back, the first one looking forward.

    With `table`, u is any tuple of the table `right` that is valid at t.stime: the newest of its
    key up to then, unless that says that the key is deleted. Results have t's stime.

    Attributes:
        predicate: a condition over `left.f` and `right.f`.
        expressions: (output field, expression) pairs over the same fields. table: `right` is read
            as a table; the bounds of time are 0.
    """

    name: str
    left: str
    right: str
    output: str
    kind: JoinKind
    before_us: int
    after_us: int
    predicate: str
    expressions: tuple[tuple[str, str], ...]
    table: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""
        return (self.left,) if self.left == self.right else (self.left, self.right)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,)

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return (self.predicate, *(text for _, text in self.expressions))

    def renamed(self, new_name: Callable[[str], str]) -> Self:
        """The same box with other names of its streams."""
        left, right, output = map(new_name, (self.left, self.right, self.output))
        return replace(self, left=left, right=right, output=output)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, predicate="", expressions=())


class Contiguity(StrEnum):
    """Which tuples of the partition may lie between those of a match."""

    STRICT = "strict"
    """No tuple may lie between the tuples of a match in their partition, as in SQL."""
    SKIP_TILL_NEXT_MATCH = "skip_till_next_match"
    """Tuples that the next variable of the pattern cannot take may lie between, as in SASE."""


class PatternStep(Struct, frozen=True, omit_defaults=True):
    """One variable of a pattern, and how many tuples it takes: `B{2,5}`.

    Attributes:
        condition: a predicate of the tuples that it takes, over the fields of the tuple, over `V.f`
            of the last tuple that V has taken before it, and over `prev.f` of the last tuple of the
            match before it.
        least, most: numbers of tuples; `most` is None: any number.
        reluctant: it takes as few tuples as it can, instead of as many.
        negated: no tuple that fulfils the condition may come here; the variable takes none.
    """

    variable: str
    condition: str = "true"
    least: int = 1
    most: int | None = 1
    reluctant: bool = False
    negated: bool = False


class Measure(Struct, frozen=True, omit_defaults=True):
    """One result of a match: `function(variable.field) AS output`.

    Attributes:
        function: count, sum, min, max, avg, firstval or lastval.
        variable: the function is over its tuples; empty: over all tuples of the match. field:
            empty: the function counts the tuples themselves.
    """

    function: str
    variable: str
    field: str
    output: str


class Match(OneStream, frozen=True, tag="match", omit_defaults=True):
    """Sequences of tuples of one partition that fit a pattern.

    Each tuple may be the first of one match. If several begin with it, the preferred one counts:
    the first variable takes as many tuples as it can (a reluctant one as few), then the second... A
    match is emitted when no later tuple can change which one is preferred: its stime is that of the
    tuple that decides this, `within_us` after its first tuple at the latest. Output fields: the
    fields of the partition, the measures' outputs.

    Attributes:
        within_us: the time from the first to the last tuple of a match, microseconds, at most.
    """

    partition_by: tuple[str, ...]
    steps: tuple[PatternStep, ...]
    within_us: int
    measures: tuple[Measure, ...]
    contiguity: Contiguity = Contiguity.STRICT

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of its expressions."""
        return tuple(step.condition for step in self.steps)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, steps=tuple(replace(each, condition="true") for each in self.steps))


class Totals(OneStream, frozen=True, tag="totals", omit_defaults=True):
    """A table of the totals of each group so far. Its key is the group. It gets a tuple at each
    stime at which the group has a new tuple.

    Attributes:
        changes: whether the input is read as a table: a tuple replaces the older one of its key,
            which does not count any more. When a group has no tuples left, its total is deleted.
    """

    group_by: tuple[str, ...]
    functions: tuple[AggregateCall, ...]
    changes: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return _arguments(self.functions)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, functions=_named(self.functions))


class Top(OneStream, frozen=True, tag="top", omit_defaults=True):
    """A table of the first tuples of each partition so far. Its key is the partition and the place.
    It gets a tuple whenever another one takes a place.

    Attributes:
        order_by: of equal tuples the earlier is first; equal tuples of one stime are ordered as in
            a `Rank`.
        most: places of a partition.
        place: the field with the place, from 1; "": there is only one place, and no such field.
    """

    partition_by: tuple[str, ...]
    order_by: tuple[OrderBy, ...]
    most: int
    place: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return ()

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return self


class TupleWindows(OneStream, frozen=True, tag="tuple_windows", omit_defaults=True):
    """Windows of `size` tuples of each group that follow one another in the order of the stream: by
    stime, then by arrival if it is a source stream, else by their fields.

    The tuples of a group are numbered from 1, from the query's first tuple on. A window ends with
    each tuple whose number less `size` is a multiple of `advance`; it is emitted with that tuple's
    stime. Output fields: the group-by fields, the functions' outputs, the number.

    Attributes:
        partial: whether windows that begin before the group's first tuple are emitted as well, with
            the tuples that they have: SQL's ROWS BETWEEN size - 1 PRECEDING AND CURRENT ROW.
        number: the field with the number of the window's last tuple in its group; "": there is no
            such field. With size and advance 1 it is SQL's ROW_NUMBER() of each tuple.
    """

    size: int
    advance: int
    group_by: tuple[str, ...]
    functions: tuple[AggregateCall, ...]
    partial: bool = False
    number: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions of the box."""
        return _arguments(self.functions)

    def without_words(self) -> Self:
        """The box without its expressions and the parts that do not change its results."""
        return replace(self, functions=_named(self.functions))


Box = (
    Filter
    | Map
    | Union
    | Aggregate
    | Sessions
    | Cumulate
    | TupleWindows
    | Rank
    | Join
    | Match
    | Totals
    | Top
)

WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW_TIME = "window_time"


class Query(Struct, frozen=True, omit_defaults=True):
    """A loop-free network of boxes.

    Attributes:
        outputs: streams that others may read, besides those that no box reads.
        availability: its mode and bound; see `Availability`.
        after, until: boundaries, microseconds: it reads its inputs between them, and ends there;
            BEGINNING: from the oldest tuple that is kept; END: it does not end.
        version: 0; of a copy, one more than the original's.
        readers: (stream, its readers) of its streams that declare readers, more or fewer than its
            inputs allow: see `medusa.engine.language.labels`.
        panes: (aggregate, width in microseconds) of its windows that are folded from panes: see
            `medusa.engine.operators.shared.panes`. The query's peer decides them when the query is
            created. functions: the functions of users that its expressions may call, with the
            fingerprints of the peer that made it: see `medusa.engine.functions`.
    """

    name: str
    boxes: tuple[Box, ...]
    outputs: tuple[str, ...] = ()
    availability: Availability = Availability()
    after: int = BEGINNING
    until: int = END
    version: int = 0
    readers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    panes: tuple[tuple[str, int], ...] = ()
    functions: tuple[UserFunction, ...] = ()


class QueryStatus(StrEnum):
    SETUP = "SETUP"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    DELETED = "DELETED"


def streams_read(query: Query) -> frozenset[str]:
    return frozenset(name for box in query.boxes for name in box.inputs)


def streams_written(query: Query) -> frozenset[str]:
    return frozenset(name for box in query.boxes for name in box.outputs)
