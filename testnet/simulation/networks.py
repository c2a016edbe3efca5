"""Draws networks of boxes from a random generator.

The simulator draws the queries of its federations here, and property tests draw theirs, with a
generator of Hypothesis. `DRAWN` has every kind of box.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from medusa.engine.aggregates.function import Constant
from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.objects.query import (
    WINDOW_END,
    WINDOW_START,
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
    Measure,
    OrderBy,
    PatternStep,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    order_by,
)
from medusa.engine.objects.schema import DELETED, Field, FieldType, Schema
from medusa.engine.operators.join.sides import AS_OF, OF_TABLES, ONE_SIDED
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.operator import State
from medusa.engine.operators.typing import type_box
from medusa.testnet.simulation.history import schema_of

T = TypeVar("T")

INTEGERS: Final = (FieldType.BYTE, FieldType.INT, FieldType.LONG)
FLOATS: Final = (FieldType.SINGLE, FieldType.DOUBLE)

SIZES: Final = (1, 7, 10, 30)
"""Lengths of windows, in units of `Words`."""

SPANS: Final = ((5, 0), (5, -1), (0, 0), (0, 5), (-1, 5), (-2, 3))
"""Bounds of as-of joins, units: they look back or forward."""

COUNTS: Final = ((1, 1), (0, 1), (1, None), (2, 3))
"""The least and the most tuples of a step of a pattern."""

CONSTANTS: Final[Mapping[str, Sequence[Constant]]] = {
    "percentile": (0, 0.25, 0.95, 0.333333, 1),
    "percentile_disc": (0, 0.25, 0.95, 0.333333, 1),
    "approx_percentile": (0.0, 0.5, 0.99, 1.0),
    "top_k": (1, 2, 1000),
    "string_agg": ("", ", '"),
    "histogram": (1, 3, 2**31),
}
"""Constants of the aggregate functions that have one."""


@dataclass(frozen=True, slots=True)
class Words:
    """The predicates, fields and sizes from which random boxes are drawn, over the streams of one
    world.

    Attributes:
        predicates, projections: conditions and expressions over a field. constants: see
            `CONSTANTS`. equal: whether joins compare two fields of one type. matched: the least
            comparisons in a join. ports: predicates of a filter, at most. gaps: whether windows
            leave gaps. unit_us: the length of one unit, microseconds.
    """

    predicates: Callable[[Field], Sequence[str]]
    projections: Callable[[Field], Sequence[str]]
    constants: Mapping[str, Sequence[Constant]] = field(default_factory=lambda: CONSTANTS)
    equal: Callable[[FieldType], bool] = lambda _: True
    matched: int = 0
    ports: int = 3
    gaps: bool = True
    unit_us: int = 1


class Choices:
    """Chooses streams, fields and orders. Args: rng: decides all."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def source(self, streams: Mapping[str, Schema]) -> tuple[str, Schema]:
        """Choose a stream."""
        name = self.rng.choice(sorted(streams))
        return name, streams[name]

    def coin(self) -> bool:
        return self.rng.choice((False, True))

    def some(self, items: Sequence[T], least: int, most: int | None = None) -> list[T]:
        """Choose different items. most: None: as many as the least."""
        count = self.rng.randint(least, least if most is None else most)
        return self.rng.sample(list(items), min(count, len(items)))

    def names(self, fields: Iterable[Field], least: int, most: int) -> tuple[str, ...]:
        return tuple(self.some([each.name for each in fields], least, most))

    def order(self, fields: Sequence[Field], least: int = 0) -> tuple[OrderBy, ...]:
        """Draw an order; the place of nulls may be open."""
        return tuple(
            order_by(
                each.name,
                descending=self.coin(),
                nulls_first=self.rng.choice((None, False, True)),
            )
            for each in self.some(fields, least, 2)
        )


class Networks(Choices):
    """Draws boxes. Args: rng: decides all. words: what the boxes are made of."""

    def __init__(self, rng: random.Random, words: Words) -> None:
        super().__init__(rng)
        self.words = words

    def box(self, kind: type[Box], name: str, out: str, streams: Mapping[str, Schema]) -> Box:
        """Draw a box of a kind. out: its output, or the beginning of its outputs' names. streams:
        what it may read."""
        return DRAWN[kind](self, name, out, streams)

    # -- tuple by tuple ----------------------------------------------------------------------------

    def filter(self, name: str, out: str, streams: Mapping[str, Schema]) -> Filter:
        source, schema = self.source(streams)
        texts = tuple(
            self.rng.choice(self.words.predicates(self.rng.choice(schema.fields)))
            for _ in range(self.rng.randint(1, self.words.ports))
        )
        false = self.words.ports > 1 and self.coin()
        outputs = tuple(f"{out}_{port}" for port in range(len(texts) + false))
        return Filter(name, source, outputs, texts, false)

    def map(self, name: str, out: str, streams: Mapping[str, Schema]) -> Map:
        source, schema = self.source(streams)
        fields = [self.rng.choice(schema.fields) for _ in range(self.rng.randint(1, 5))]
        texts = [self.rng.choice(self.words.projections(each)) for each in fields]
        return Map(name, source, out, tuple((f"m{n}", text) for n, text in enumerate(texts)))

    def map_of_table(self, name: str, out: str, tables: Mapping[str, Schema]) -> Map:
        """Draw a map that keeps the key, which alone distinguishes the rows of a table."""
        source, schema = self.source(tables)
        texts = list(schema.key)
        for _ in range(self.rng.randint(0, 5)):
            each = self.rng.choice([f for f in schema.fields if f.name != DELETED])
            texts.append(self.rng.choice(self.words.projections(each)))
        pairs = [(f"m{n}", text) for n, text in enumerate(texts)]
        pairs += [(DELETED, DELETED)] if schema.deletes else []
        return Map(name, source, out, tuple(self.some(pairs, len(pairs))))

    def union(self, name: str, out: str, streams: Mapping[str, Schema]) -> Union:
        _, schema = self.source(streams)
        shape = [(each.name, each.type) for each in schema.fields]
        alike = [
            stream
            for stream, other in sorted(streams.items())
            if [(each.name, each.type) for each in other.fields] == shape
        ]
        return Union(name, tuple(self.some(alike, 1, 3)), out)

    # -- windows -----------------------------------------------------------------------------------

    def aggregate(self, name: str, out: str, streams: Mapping[str, Schema]) -> Aggregate:
        source, schema = self.source(streams)
        size = self.rng.choice(SIZES)
        advance = self.rng.choice(
            [size, max(1, size // 2), max(1, size // 3), size + 5 * self.words.gaps]
        )
        lengths = (size * self.words.unit_us, advance * self.words.unit_us)
        return Aggregate(name, source, out, *lengths, *self._folded(name, schema))

    def sessions(self, name: str, out: str, streams: Mapping[str, Schema]) -> Sessions:
        source, schema = self.source(streams)
        gap = self.rng.choice([1, 2, 5])
        longest = max(gap, self.rng.choice([5, 10, 20, 1000]))
        lengths = (gap * self.words.unit_us, longest * self.words.unit_us)
        return Sessions(name, source, out, *lengths, *self._folded(name, schema))

    def cumulate(self, name: str, out: str, streams: Mapping[str, Schema]) -> Cumulate:
        source, schema = self.source(streams)
        step = self.rng.choice([1, 4, 10]) * self.words.unit_us
        size = step * self.rng.randint(1, 4)
        return Cumulate(name, source, out, step, size, *self._folded(name, schema))

    def tuple_windows(self, name: str, out: str, streams: Mapping[str, Schema]) -> TupleWindows:
        source, schema = self.source(streams)
        size = self.rng.choice([1, 2, 10, 1_000])
        advance = self.rng.choice([size, max(1, size // 7), min(size + 1, 1_000)])
        number = self.rng.choice(["", f"number_{name}"])
        parts = (*self._folded(name, schema), self.coin(), number)
        return TupleWindows(name, source, out, size, advance, *parts)

    def rank(self, name: str, out: str, streams: Mapping[str, Schema]) -> Rank:
        source, schema = self.source(streams)
        size = self.rng.choice([1, *SIZES]) * self.words.unit_us
        partition = self.names(schema.fields, 0, 2)
        order = self.order(schema.fields)
        place = self.rng.choice(["", f"place_{name}"])
        return Rank(name, source, out, size, partition, order, self.rng.randint(1, 3), place)

    def _folded(
        self, name: str, schema: Schema
    ) -> tuple[tuple[str, ...], tuple[AggregateCall, ...]]:
        """Groups, and functions."""
        made = {WINDOW_START, WINDOW_END}
        groups = self.names([each for each in schema.fields if each.name not in made], 0, 2)
        count = self.rng.randint(1, 4)
        return groups, tuple(self.call(schema, f"{name}_{n}") for n in range(count))

    def call(self, schema: Schema, output: str) -> AggregateCall:
        """Draw an aggregate function over a field."""
        over = self.rng.choice(schema.fields)
        function = self.rng.choice(functions_of(over))
        row = AGGREGATES[function]
        argument = None if function == "count" and self.coin() else over.name
        usual = None if row.constant is None else row.constant.value
        constants = self.words.constants.get(function, (usual,))
        down = row.ordered and self.coin()
        return AggregateCall(function, argument, output, self.rng.choice(constants), down)

    # -- several tuples ----------------------------------------------------------------------------

    def join(
        self,
        name: str,
        out: str,
        streams: Mapping[str, Schema],
        kinds: Sequence[JoinKind] = tuple(JoinKind),
    ) -> Join:
        left, right = (self.source(streams)[0] for _ in range(2))
        kind = self.rng.choice(kinds)
        return self.joined(name, out, (left, right), streams, kind)

    def joined(
        self,
        name: str,
        out: str,
        inputs: tuple[str, str],
        streams: Mapping[str, Schema],
        kind: JoinKind,
    ) -> Join:
        """Draw a join of two streams."""
        left, right = inputs
        both = (streams[left], streams[right])
        same = self._comparisons(*both)
        texts = self.some(same, self.words.matched, 2)
        if kind in AS_OF and not texts:
            texts = self.some(same, 1)
            kind = kind if texts else JoinKind.LEFT
        before, after = self._bounds(kind)
        less = [
            f"(left.{one.name} < right.{two.name} or right.{two.name} is null)"
            for one in both[0].fields
            for two in both[1].fields
            if one.type in INTEGERS and two.type in INTEGERS
        ]
        if less and kind not in AS_OF and self.coin():
            texts.append(self.rng.choice(less))
        fields = self._fields(name, kind, *both)
        on = " and ".join(texts) or "true"
        return Join(name, left, right, out, kind, before, after, on, fields)

    def _bounds(self, kind: JoinKind) -> tuple[int, int]:
        if kind in AS_OF:
            before, after = self.rng.choice(SPANS)
        else:
            before = self.rng.choice([0, 1, 5, -2])
            after = max(self.rng.choice([0, 3, 5]), -before)
        return before * self.words.unit_us, after * self.words.unit_us

    def table_join(
        self, name: str, out: str, streams: Mapping[str, Schema], tables: Mapping[str, Schema]
    ) -> Join:
        """Draw a join of a stream with a table."""
        left, right = self.source(streams)[0], self.source(tables)[0]
        both = (streams[left], tables[right])
        kind = self.rng.choice(sorted(OF_TABLES))
        texts = self.some([*self._comparisons(*both), "left.stime >= right.stime"], 0, 2)
        fields = self._fields(name, kind, *both)
        on = " and ".join(texts) or "true"
        return Join(name, left, right, out, kind, 0, 0, on, fields, table=True)

    def _comparisons(self, left: Schema, right: Schema) -> list[str]:
        return [
            f"left.{one.name} = right.{two.name}"
            for one in left.fields
            for two in right.fields
            if one.type == two.type and self.words.equal(one.type)
        ]

    def _fields(
        self, name: str, kind: JoinKind, left: Schema, right: Schema
    ) -> tuple[tuple[str, str], ...]:
        fields = [f"left.{each.name}" for each in left.fields]
        if kind not in ONE_SIDED:
            fields += [f"right.{each.name}" for each in right.fields]
        chosen = [self.rng.choice(fields) for _ in range(self.rng.randint(1, 4))]
        return tuple((f"{name}_{n}", text) for n, text in enumerate(chosen))

    def match(self, name: str, out: str, streams: Mapping[str, Schema]) -> Match:
        source, schema = self.source(streams)

        def condition() -> str:
            return self.rng.choice(self.words.predicates(self.rng.choice(schema.fields)))

        steps = [PatternStep("A", condition())]
        for variable in "BC"[: self.rng.randint(0, 2)]:
            least, most = self.rng.choice(COUNTS)
            steps.append(PatternStep(variable, condition(), least, most, self.coin()))
        over = self.rng.choice(schema.fields).name
        measures = (
            Measure("firstval", "A", over, f"{name}_0"),
            Measure("count", "", "", f"{name}_1"),
            Measure("max", steps[-1].variable, over, f"{name}_2"),
        )
        partition = self.names(schema.fields, 0, 1)
        within = self.rng.choice([2, 10]) * self.words.unit_us
        contiguity = self.rng.choice(list(Contiguity))
        return Match(name, source, out, partition, tuple(steps), within, measures, contiguity)

    # -- tables ------------------------------------------------------------------------------------

    def totals(
        self, name: str, out: str, streams: Mapping[str, Schema], *, changes: bool = False
    ) -> Totals:
        """Draw a group aggregate. changes: its input is a table."""
        source, schema = self.source(streams)
        groups = self.names([each for each in schema.fields if each.name != DELETED], 1, 2)
        calls = [AggregateCall("count", None, f"{name}_n")]
        for each in self.some(schema.fields, 0, 3):
            known = ["count", *([] if changes else ["count_distinct"])]
            known += [] if changes or each.type is FieldType.BOOL else ["min", "max"]
            known += ["sum", "avg"] if each.type in (*INTEGERS, *FLOATS) else []
            output = f"{name}_{len(calls)}"
            calls.append(AggregateCall(self.rng.choice(known), each.name, output))
        return Totals(name, source, out, groups, tuple(calls), changes)

    def top(self, name: str, out: str, streams: Mapping[str, Schema]) -> Top:
        source, schema = self.source(streams)
        partition = self.names(schema.fields, 1, 2)
        order = self.order(schema.fields, 1)
        most = self.rng.randint(1, 3)
        place = f"place_{name}" if most > 1 or self.coin() else ""
        return Top(name, source, out, partition, order, most, place)


DRAWN: Final[Mapping[type[Box], Callable[[Networks, str, str, Mapping[str, Schema]], Box]]] = {
    Filter: Networks.filter,
    Map: Networks.map,
    Union: Networks.union,
    Aggregate: Networks.aggregate,
    Sessions: Networks.sessions,
    Cumulate: Networks.cumulate,
    TupleWindows: Networks.tuple_windows,
    Rank: Networks.rank,
    Join: Networks.join,
    Match: Networks.match,
    Totals: Networks.totals,
    Top: Networks.top,
}
"""How each kind of box is drawn."""


def functions_of(over: Field) -> list[str]:
    """The aggregate functions that take a field."""
    return [name for name, row in AGGREGATES.items() if over.type in row.takes]


# -- the simulator's queries -----------------------------------------------------------------------

OF_POSTS: Final = Words(
    predicates=lambda each: (
        (f"{each.name} > 'm'",)
        if each.type is FieldType.STRING
        else (f"{each.name} > 1", f"{each.name} < 300")
    ),
    projections=lambda each: (
        (each.name,)
        if each.type is FieldType.STRING
        else (each.name, f"{each.name} * 2", f"{each.name} % 7")
    ),
    matched=1,
    ports=1,
    unit_us=50_000,
)
"""The choices for queries over the rows of posters."""

LAST: Final[Sequence[type[Box]]] = (*[Aggregate] * 3, Sessions, Cumulate, Rank, Match, TupleWindows)
"""The kinds among which the last box of a chain is drawn; a kind that is listed several times is
drawn as much more often."""


def stays(boxes: Sequence[Box]) -> bool:
    """Whether the last box keeps a table of all so far: its task is not moved, and its only standby
    is a passive one."""
    return any(operator_of(box).state is State.OUTPUT for box in boxes)


def draw_boxes(rng: random.Random, base: str, inputs: Sequence[str]) -> tuple[Box, ...]:
    """A chain of boxes over one stream or two.

    Args:
        base: the start of the names of its streams. inputs: what it may read.
    """
    drawn = Networks(rng, OF_POSTS)
    known = {name: schema_of(name) for name in inputs}
    at = {name: known[name] for name in [rng.choice(inputs)]}
    boxes: list[Box] = []

    def add(box: Box, *tables: Mapping[str, Schema]) -> None:
        read = {name: schema for each in (known, at, *tables) for name, schema in each.items()}
        typed = type_box(box, {name: read[name] for name in box.inputs})
        boxes.append(box)
        at.clear()
        at.update({box.outputs[0]: typed.schemas[box.outputs[0]]})

    if len(inputs) > 1 and rng.random() < 0.4:
        add(Union("both", tuple(rng.sample(list(inputs), 2)), f"{base}/both"))
    if rng.random() < 0.5:
        add(drawn.filter("some", f"{base}/some", at))
    if rng.random() < 0.25:
        pair = (next(iter(at)), rng.choice(inputs))
        kind = rng.choice(tuple(JoinKind))
        add(drawn.joined("pairs", f"{base}/pairs", pair, known | at, kind))
        return tuple(boxes)
    if rng.random() < 0.2:
        stream = dict(at)
        add(drawn.box(rng.choice((Totals, Totals, Top)), "table", f"{base}/table", stream))
        if rng.random() < 0.3:
            add(drawn.table_join("look", f"{base}/look", stream, dict(at)), stream)
        return tuple(boxes)
    if rng.random() < 0.5:
        add(drawn.map("shape", f"{base}/shape", at))
    if rng.random() < 0.7 or not boxes:
        add(drawn.box(rng.choice(LAST), "windows", f"{base}/windows", at))
    return tuple(boxes)
