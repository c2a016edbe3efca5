"""Networks as Python programs write them: streams, and what is made of them.

    conns = medusa.stream("medusa://mit.edu/conns")
    web = conns.filter("dst_port = 80")
    counts = web.window("1 minute").group_by("src_ip").aggregate(conns="count()")
    query = medusa.query("medusa://mit.edu/web", counts.named("medusa://mit.edu/web/counts"))

A stream is a value: each method gives another one. Expressions are texts of the expression
language, as in XML and SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from medusa.engine.expressions.aggregates import function_of
from medusa.engine.expressions.spans import Span, span_us
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Contiguity,
    Cumulate,
    Filter,
    Join,
    JoinKind,
    Map,
    Match,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    longest_session,
)
from medusa.engine.operators.match.pattern import conditioned, read_pattern
from medusa.engine.operators.shared.texts import measure_of, order_of
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName

Make = Callable[[str, tuple[str, ...], tuple[str, ...]], Box]
"""Makes a box of its name, its input streams and its output streams."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A box before its streams have names: no two steps are equal.

    Attributes:
        word: a word for its work; the beginning of its name if the program names none.
        ports: the number of its outputs.
    """

    word: str
    inputs: tuple[Stream, ...]
    make: Make
    ports: int = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a network: one that exists already, or the output of a box.

    Attributes:
        name: `medusa://participant/path`; "": `query` gives it one.
        box: the name of its box; "": the last part of the stream's name.
        readers: participants that may read it, if others than those of what it is made from.
    """

    name: str = ""
    box: str = ""
    readers: tuple[str, ...] | None = None
    _step: Step | None = field(default=None, repr=False)
    _port: int = field(default=0, repr=False)

    def named(self, name: str, *, box: str = "", readers: Iterable[str] | None = None) -> Stream:
        """The same stream with a name.

        Args:
            name: `medusa://participant/path`. box: the name of its box, if another than the last
                part of `name`. readers: participants that may read it, of those that may read what
                it is made from; `["*"]`: all of those.

        Raises:
            InvalidInputError: `name` is no such name, or the program reads this stream and does not
                make it.
        """
        if self._step is None:
            raise InvalidInputError(f"{self.name} has its name already: it is read, not made")
        named = str(ObjectName.parse(name))
        return replace(
            self, name=named, box=box, readers=None if readers is None else tuple(readers)
        )

    def filter(self, predicate: str) -> Stream:
        """The tuples for which the predicate is true."""
        return self.split(predicate)[0]

    def split(self, *predicates: str, rest: bool = False) -> tuple[Stream, ...]:
        """A stream for each predicate: the tuples for which it is true, and no earlier one is.
        Args: rest: whether to add a stream of the tuples for which no predicate is true.
        """

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Filter(name, inputs[0], outputs, predicates, rest)

        step = Step("filter", (self,), make, len(predicates) + rest)
        return tuple(Stream(_step=step, _port=port) for port in range(step.ports))

    def map(self, fields: Mapping[str, str] | None = None, /, **more: str) -> Stream:
        """The tuples with new fields: `map(a="x + 1")`, or `map({"a": "x + 1"})`."""
        expressions = tuple({**(fields or {}), **more}.items())

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Map(name, inputs[0], outputs[0], expressions)

        return _made("map", (self,), make)

    def select(self, *fields: str, **more: str) -> Stream:
        """The tuples with some of their fields, and with new ones: `select("a", b="x + 1")`."""
        return self.map({**{name: name for name in fields}, **more})

    def union(self, *others: Stream) -> Stream:
        """The tuples of all these streams, in the order of their time."""

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Union(name, inputs, outputs[0])

        return _made("union", (self, *others), make)

    def window(self, size: Span, advance: Span | None = None) -> Windows:
        """Windows of the stream's time: `window("1 minute", "10 seconds")`.

        Args:
            size, advance: a length of time, like `"10 seconds"`, or a timedelta. advance: from the
                beginning of one window to that of the next; None: as long as the size. Raises:
                InvalidInputError: a text is no length of time.
        """
        size_us = span_us(size)
        advance_us = size_us if advance is None else span_us(advance)
        length_us = size_us if size_us == advance_us else None
        return Windows(self, Aggregate, (size_us, advance_us), length_us)

    def instants(self) -> Windows:
        """Windows that each hold the tuples of one stime; all results of a window have the same
        stime."""
        return self.window(timedelta(microseconds=1))

    def sessions(self, gap: Span, longest: Span | None = None) -> Windows:
        """Sessions: each tuple comes no more than `gap` after the one before.

        Args:
            longest: where longer sessions are cut; None: an hour, or the gap if that is longer.

        Raises:
            InvalidInputError: a text is no length of time.
        """
        gap_us = span_us(gap)
        longest_us = longest_session(gap_us) if longest is None else span_us(longest)
        return Windows(self, Sessions, (gap_us, longest_us))

    def cumulate(self, step: Span, size: Span) -> Windows:
        """Windows of a size that emit a result at each step, over all of their tuples so far.
        Raises: InvalidInputError: a text is no length of time.
        """
        return Windows(self, Cumulate, (span_us(step), span_us(size)))

    def tuple_windows(
        self, size: int, advance: int | None = None, *, partial: bool = False
    ) -> WindowsOfTuples:
        """Windows of `size` tuples that follow each other: `tuple_windows(10, 3)`.

        Args:
            size: the number of tuples of a window. advance: the number of tuples from the beginning
                of one window to that of the next; None: as many as the size.
            partial: whether windows that begin before the first tuple are emitted as well, with the
                tuples that they have.

        Raises:
            InvalidInputError: a size is no whole number.

        Example:
            `s.tuple_windows(1).group_by("k").numbered("n").aggregate(x="lastval(x)")` gives each
            tuple its number in its group.
        """
        sizes = (_whole(size), _whole(size if advance is None else advance))
        return WindowsOfTuples(self, sizes, partial)

    def group_by(self, *fields: str, table: bool = False) -> Groups:
        """The tuples, grouped by the values of these fields, for tables over all tuples so far.
        Args: table: whether this stream is read as a table: only the newest tuple of each key
        counts.
        """
        return Groups(self, fields, table)

    def match(
        self,
        pattern: str,
        *,
        within: Span,
        where: Mapping[str, str] | None = None,
        measures: Mapping[str, str] | None = None,
        partition_by: Iterable[str] = (),
        contiguity: str = "strict",
    ) -> Stream:
        """Sequences of tuples that fit a pattern, like `"A B+ C{2,5}"`.

        Args:
            within: how much later than its first tuple the last one of a match may be.
            where: the conditions of variables; one without a condition takes any tuple.
            measures: fields of the result: names, and calls like `"last(B.price)"`.
            partition_by: fields; all tuples of a match have equal values in them.
            contiguity: strict, or skip_till_next_match.

        Raises:
            InvalidInputError: the pattern, a measure or `within` is invalid, or a variable of
                `where` is not in the pattern.
        """
        if contiguity not in set(Contiguity):
            known = ", ".join(Contiguity)
            raise InvalidInputError(f"contiguity {contiguity[:40]!a} is not one of {known}")
        conditions = dict(where or {})
        steps = conditioned(read_pattern(pattern), [*conditions], [*conditions.values()])
        made = tuple(measure_of(call, output) for output, call in (measures or {}).items())
        parts = (tuple(partition_by), steps, span_us(within), made, Contiguity(contiguity))

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Match(name, inputs[0], outputs[0], *parts)

        return _made("match", (self,), make)

    def join(
        self,
        other: Stream,
        *,
        within: tuple[Span, Span],
        select: Mapping[str, str],
        on: str = "true",
        kind: str = "inner",
    ) -> Stream:
        """Pairs of a tuple of this stream, `left`, and one of another, `right`.

        Args:
            within: how much later than the left tuple the right one is, at least and at most:
                `("-10 seconds", "5 seconds")`.
            select: the fields of the result: names, and expressions over `left.f` and `right.f`.
            on: a predicate over the same fields. kind: inner, left, right, full, semi, anti, asof
                or left_asof.

        Raises:
            InvalidInputError: there is no such kind, or a bound of `within` is no length of time.
        """
        least, most = map(span_us, within)
        return self._joined(other, kind, (-least, most), on, select)

    def asof_join(
        self,
        other: Stream,
        *,
        on: str,
        within: Span,
        select: Mapping[str, str],
        kind: str = "asof",
        direction: str = "backward",
    ) -> Stream:
        """Each tuple of this stream, `left`, with one of another, `right`: the newest up to its
        time, or the first from its time on.

        Args:
            on: equalities, like `left.symbol = right.symbol`.
            within: how much earlier, or later, the right tuple may be.
            select: see `join`.
            kind: asof; or left_asof: left tuples without a right one are emitted as well.
            direction: backward or forward.

        Raises:
            InvalidInputError: as `join`; or there is no such direction.
        """
        none, span = timedelta(0), _timed(within)
        bounds = {"backward": (-span, none), "forward": (none, span)}.get(direction)
        if bounds is None:
            raise InvalidInputError(f"direction is backward or forward, not {direction[:40]!a}")
        return self.join(other, within=bounds, select=select, on=on, kind=kind)

    def table_join(
        self, other: Stream, *, on: str, select: Mapping[str, str], kind: str = "inner"
    ) -> Stream:
        """Each tuple of this stream, `left`, with the rows of a table, `right`, at its time.

        Args:
            other: the table: the newest tuple of each key of its schema counts.
            on, select: see `join`.
            kind: inner, left, semi or anti.

        Raises:
            InvalidInputError: there is no such kind.
        """
        return self._joined(other, kind, (0, 0), on, select, table=True)

    def _joined(
        self,
        other: Stream,
        kind: str,
        bounds: tuple[int, int],
        on: str,
        select: Mapping[str, str],
        *,
        table: bool = False,
    ) -> Stream:
        if kind not in set(JoinKind):
            raise InvalidInputError(f"kind {kind[:40]!a} is not one of {', '.join(JoinKind)}")
        expressions = tuple(select.items())

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            left, right = inputs
            output, of_kind = outputs[0], JoinKind(kind)
            return Join(name, left, right, output, of_kind, *bounds, on, expressions, table)

        return _made("join", (self, other), make)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a stream, before their functions are known.

    Attributes:
        _spans_us: the box's two lengths of time, microseconds.
        _length_us: the length of windows that follow each other without overlap; None for other
            windows.
    """

    _of: Stream
    _kind: type[Aggregate] | type[Sessions] | type[Cumulate]
    _spans_us: tuple[int, int]
    _length_us: int | None = None
    _groups: tuple[str, ...] = ()

    def group_by(self, *fields: str) -> Windows:
        """The windows, with their tuples grouped by the values of these fields."""
        return replace(self, _groups=(*self._groups, *fields))

    def aggregate(self, functions: Mapping[str, str] | None = None, /, **more: str) -> Stream:
        """A tuple for each window and group: `aggregate(conns="count()", most="max(bytes)")`.

        Its fields are `window_start`, for sessions and growing windows also `window_end`, the
        fields of the group, and these results. Raises: InvalidInputError: a text is no call of an
        aggregate function.
        """
        made = _functions(functions, more)

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return self._kind(name, inputs[0], outputs[0], *self._spans_us, self._groups, made)

        return _made(self._kind.__name__.lower(), (self._of,), make)

    def first(self, most: int, *, order: Iterable[str] = (), place: str = "") -> Stream:
        """The first `most` tuples of each window and group, unchanged.

        Args:
            order: fields, each with `desc` behind it if the greatest is first, and with `nulls
                first` or `nulls last`; none: the order of the stream. place: the name of a new
                field for the tuple's place, from 1; "": no such field.

        Raises:
            InvalidInputError: the windows overlap, or are sessions, or the order is invalid.
        """
        if self._length_us is None:
            raise InvalidInputError("the first tuples are those of windows that follow each other")
        parts = (self._length_us, self._groups, tuple(map(order_of, order)), most, place)

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Rank(name, inputs[0], outputs[0], *parts)

        return _made("rank", (self._of,), make)


@dataclass(frozen=True, slots=True)
class WindowsOfTuples:
    """Count windows of a stream, before their functions are known.

    Attributes:
        _sizes: the box's size and its advance, tuples.
    """

    _of: Stream
    _sizes: tuple[int, int]
    _partial: bool
    _groups: tuple[str, ...] = ()
    _number: str = ""

    def group_by(self, *fields: str) -> WindowsOfTuples:
        """The windows, with tuples grouped by the values of these fields: each group has its own
        windows."""
        return replace(self, _groups=(*self._groups, *fields))

    def numbered(self, field: str) -> WindowsOfTuples:
        """The windows with one more field in their results: the number of their last tuple in its
        group, from 1."""
        return replace(self, _number=field)

    def aggregate(self, functions: Mapping[str, str] | None = None, /, **more: str) -> Stream:
        """A tuple for each window, with the stime of its last one: `aggregate(most="max(bytes)")`.

        Its fields are the fields of the group, these results, and the number. Raises:
        InvalidInputError: a text is no call of an aggregate function.
        """
        made = _functions(functions, more)

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            parts = (*self._sizes, self._groups, made, self._partial, self._number)
            return TupleWindows(name, inputs[0], outputs[0], *parts)

        return _made("tuple_windows", (self._of,), make)


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a stream; its methods make a table with a few rows for each group."""

    _of: Stream
    _fields: tuple[str, ...]
    _table: bool = False

    def totals(self, functions: Mapping[str, str] | None = None, /, **more: str) -> Stream:
        """A table of the totals of each group so far: `totals(conns="count()")`.

        Raises:
            InvalidInputError: a text is no call of an aggregate function.
        """
        made = _functions(functions, more)

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Totals(name, inputs[0], outputs[0], self._fields, made, self._table)

        return _made("totals", (self._of,), make)

    def first(self, most: int, *, order: Iterable[str], place: str = "") -> Stream:
        """A table of the first `most` tuples of each group so far.

        Args:
            order: see `Windows.first`. place: the name of the field for the place, from 1; needed
                if `most` is over 1. Raises: InvalidInputError: the order is invalid, or the stream
                is read as a table.
        """
        if self._table:
            raise InvalidInputError("the first tuples are those of a stream, not of a table")
        parts = (self._fields, tuple(map(order_of, order)), most, place)

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Top(name, inputs[0], outputs[0], *parts)

        return _made("top", (self._of,), make)


def _functions(
    functions: Mapping[str, str] | None, more: Mapping[str, str]
) -> tuple[AggregateCall, ...]:
    calls = {**(functions or {}), **more}
    return tuple(function_of(call, output) for output, call in calls.items())


def stream(name: str) -> Stream:
    """A stream that exists already.

    Args:
        name: `medusa://participant/path`.

    Raises:
        InvalidInputError: it is no such name.
    """
    return Stream(str(ObjectName.parse(name)))


def step_of(made: Stream) -> tuple[Step | None, int]:
    """The box that makes a stream, and the number of its output; None: the stream exists
    already."""
    return made._step, made._port


def _whole(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidInputError(f"{str(number)[:40]!a} is no whole number of tuples")
    return number


def _timed(span: Span) -> timedelta:
    return timedelta(microseconds=span_us(span))


def _made(word: str, inputs: tuple[Stream, ...], make: Make) -> Stream:
    return Stream(_step=Step(word, inputs, make))
