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

from engine.language.aggregates import function_of
from engine.language.check import check_shape, ordered_boxes
from engine.language.classes import applied
from engine.language.history_range import check_history_range
from engine.language.spans import Span, span_us
from engine.objects.availability import AvailabilityRequest, parse_mode, parse_recovery
from engine.objects.query import (
    Aggregate,
    Box,
    Filter,
    Join,
    JoinKind,
    Map,
    Query,
    Union,
    inputs_of,
    outputs_of,
)
from engine.objects.schema import BEGINNING, END
from overlay.errors import InvalidInputError
from overlay.names import ObjectName

Make = Callable[[str, tuple[str, ...], tuple[str, ...]], Box]
"""Makes a box of its name, its input streams and its output streams."""


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A box before its streams have names: two steps are never the same.

    Attributes:
        word: what it does; the beginning of its name if it is given none.
        ports: the number of its outputs.
    """

    word: str
    inputs: tuple[Stream, ...]
    make: Make
    ports: int = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a network: one that is there already, or the output of a box.

    Attributes:
        name: `medusa://participant/path`; "": `query` gives it one.
        box: the name of its box; "": the last part of the stream's name.
        readers: participants that may read it, if others than those of what it is made from.
    """

    name: str = ""
    box: str = ""
    readers: tuple[str, ...] | None = None
    _step: _Step | None = field(default=None, repr=False)
    _port: int = field(default=0, repr=False)

    def named(self, name: str, *, box: str = "", readers: Iterable[str] | None = None) -> Stream:
        """The same stream with a name.

        Args:
            name: `medusa://participant/path`. box: the name of its box, if another than the last
                part of `name`. readers: participants that may read it, of those that may read what
                it is made from; `["*"]`: all of those.

        Raises:
            InvalidInputError: it is no such name, or the stream is there already.
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
        """Streams of the tuples for which each predicate is true, and none before it.

        Args:
            rest: one stream more, of the tuples for which none is.
        """

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Filter(name, inputs[0], outputs, predicates, rest)

        step = _Step("filter", (self,), make, len(predicates) + rest)
        return tuple(Stream(_step=step, _port=port) for port in range(step.ports))

    def map(self, fields: Mapping[str, str] | None = None, /, **more: str) -> Stream:
        """Tuples of other fields: `map(a="x + 1")`, or `map({"a": "x + 1"})`."""
        expressions = tuple({**(fields or {}), **more}.items())

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Map(name, inputs[0], outputs[0], expressions)

        return _made("map", (self,), make)

    def select(self, *fields: str, **more: str) -> Stream:
        """Tuples of some of the fields, and of others: `select("a", b="x + 1")`."""
        return self.map({**{name: name for name in fields}, **more})

    def union(self, *others: Stream) -> Stream:
        """The tuples of all of them, in the order of their time."""

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            return Union(name, inputs, outputs[0])

        return _made("union", (self, *others), make)

    def window(self, size: Span, advance: Span | None = None) -> Windows:
        """Windows of the stream's time: `window("1 minute", "10 seconds")`.

        Args:
            size, advance: a length of time, like `"10 seconds"`, or a timedelta. advance: from the
                beginning of one window to that of the next; None: a size.

        Raises:
            InvalidInputError: one is no length of time.
        """
        size_us = span_us(size)
        return Windows(self, size_us, size_us if advance is None else span_us(advance))

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
            on: a predicate over the same.
            kind: inner, left, right, full, semi, anti, asof or left_asof.

        Raises:
            InvalidInputError: there is no such kind, or one of `within` is no length of time.
        """
        if kind not in set(JoinKind):
            raise InvalidInputError(f"kind {kind[:40]!a} is not one of {', '.join(JoinKind)}")
        least, most = map(span_us, within)
        expressions = tuple(select.items())

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            left, right = inputs
            bounds = (-least, most)
            return Join(name, left, right, outputs[0], JoinKind(kind), *bounds, on, expressions)

        return _made("join", (self, other), make)

    def asof_join(
        self,
        other: Stream,
        *,
        on: str,
        within: Span,
        select: Mapping[str, str],
        kind: str = "asof",
    ) -> Stream:
        """Each tuple of this stream, `left`, with the newest earlier one of another, `right`.

        Args:
            on: equalities, like `left.symbol = right.symbol`.
            within: how much earlier the right tuple may be.
            select: see `join`.
            kind: asof; or left_asof: left tuples without a right one come out as well.

        Raises:
            InvalidInputError: as `join`.
        """
        return self.join(
            other, within=(-_timed(within), timedelta(0)), select=select, on=on, kind=kind
        )


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a stream, before their functions are known; microseconds."""

    _of: Stream
    _size_us: int
    _advance_us: int
    _groups: tuple[str, ...] = ()

    def group_by(self, *fields: str) -> Windows:
        """The windows' tuples apart by the values of these fields."""
        return replace(self, _groups=(*self._groups, *fields))

    def aggregate(self, functions: Mapping[str, str] | None = None, /, **more: str) -> Stream:
        """A tuple for each window and group: `aggregate(conns="count()", most="max(bytes)")`.

        Its fields are `window_start`, those grouped by, and these.

        Raises:
            InvalidInputError: one is no call of an aggregate function.
        """
        calls = {**(functions or {}), **more}
        made = tuple(function_of(call, output) for output, call in calls.items())

        def make(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Box:
            sizes = (self._size_us, self._advance_us)
            return Aggregate(name, inputs[0], outputs[0], *sizes, self._groups, made)

        return _made("aggregate", (self._of,), make)


def stream(name: str) -> Stream:
    """A stream that is there already.

    Args:
        name: `medusa://participant/path`.

    Raises:
        InvalidInputError: it is no such name.
    """
    return Stream(str(ObjectName.parse(name)))


def query(
    name: str,
    *streams: Stream,
    ha: str | None = None,
    recovery: str | None = None,
    bound: Span | None = None,
    checkpoint: Span | None = None,
    secondary: str | None = None,
    after: int = BEGINNING,
    until: int = END,
    version: int = 0,
) -> Query:
    """The query that makes the streams, as `create_query` takes it.

    Its fields and types are checked when it is created: only the catalog knows the streams.

    Args:
        name: `medusa://participant/path`; streams without a name get one that begins so.
        streams: its outputs.
        ha, recovery: a mode and a recovery, as `"active_standby"` and `"precise"`.
        bound, checkpoint: lengths of time, like `"2 seconds"`. secondary: a peer's id.
        after, until: boundaries, microseconds: it reads its inputs between them.
        version: 0; of a copy, one more than the original's.

    Raises:
        InvalidInputError: the network's shape is wrong, a stream has two names, or the availability
            is more than its boxes allow.
    """
    network = _Network(str(ObjectName.parse(name)))
    for each in streams:
        network.note(each)
    boxes = network.boxes()
    made = {each for box in boxes for each in outputs_of(box)}
    outputs = [network.name_of(each) for each in streams]
    read = {each for box in boxes for each in inputs_of(box)}
    for output in outputs:
        if output not in made:
            raise InvalidInputError(f"query {name}: it does not make {output}: say .union() of it")
    found = Query(
        network.name,
        boxes,
        tuple(dict.fromkeys(each for each in outputs if each in read)),
        after=after,
        until=until,
        version=version,
        readers=network.readers(),
    )
    ordered_boxes(found)
    for box in found.boxes:
        check_shape(box)
    request = AvailabilityRequest(
        None if ha is None else parse_mode(ha),
        None if recovery is None else parse_recovery(recovery),
        None if bound is None else span_us(bound) / 1e6,
        None if checkpoint is None else span_us(checkpoint) / 1e6,
        secondary,
    )
    found = applied(found, request)
    check_history_range(found)
    return found


def _timed(span: Span) -> timedelta:
    return timedelta(microseconds=span_us(span))


def _made(word: str, inputs: tuple[Stream, ...], make: Make) -> Stream:
    return Stream(_step=_Step(word, inputs, make))


class _Network:
    """The steps behind some streams, and their names.

    Attributes:
        name: the query's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[_Step, None] = {}
        self._streams: dict[tuple[_Step, int], Stream] = {}
        self._names: dict[tuple[_Step, int], str] = {}

    def note(self, given: Stream) -> None:
        """Note what a stream is made of. Raises: InvalidInputError: two names for one stream."""
        waiting = [given]
        while waiting:
            each = waiting.pop()
            step = each._step
            if step is None:
                continue
            self._note_name(step, each)
            if step not in self._steps:
                self._steps[step] = None
                waiting += reversed(step.inputs)

    def _note_name(self, step: _Step, each: Stream) -> None:
        known = self._streams.get((step, each._port))
        if known is None or not known.name:
            self._streams[step, each._port] = each
        elif each.name and each != known:
            raise InvalidInputError(
                f"query {self.name}: {known.name} has another name, box or readers elsewhere: "
                "name a stream once, and use what named() gives"
            )

    def boxes(self) -> tuple[Box, ...]:
        """The boxes, each before those that it reads."""
        self._name_all()
        return tuple(self._box(step) for step in self._steps)

    def name_of(self, each: Stream) -> str:
        return each.name if each._step is None else self._names[each._step, each._port]

    def readers(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The streams with readers of their own, and those."""
        return tuple(
            (self._names[key], each.readers)
            for key, each in self._streams.items()
            if each.readers is not None
        )

    def _name_all(self) -> None:
        taken = {each.name for each in self._streams.values()}
        for step in reversed(self._steps):
            for port in range(step.ports):
                known = self._streams.get((step, port))
                name = known.name if known is not None else ""
                number = 1
                while not name or (name in taken and (known is None or name != known.name)):
                    name = f"{self.name}/{step.word}_{number}"
                    number += 1
                taken.add(name)
                self._names[step, port] = name

    def _box(self, step: _Step) -> Box:
        outputs = tuple(self._names[step, port] for port in range(step.ports))
        told = {
            each.box
            for port in range(step.ports)
            if (each := self._streams.get((step, port))) is not None and each.box
        }
        if len(told) > 1:
            raise InvalidInputError(
                f"query {self.name}: the box of {outputs[0]} has several names: "
                f"{', '.join(sorted(told))}"
            )
        name = told.pop() if told else outputs[0].rpartition("/")[2]
        return step.make(name, tuple(self.name_of(each) for each in step.inputs), outputs)
