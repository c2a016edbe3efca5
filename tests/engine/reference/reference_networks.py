"""Random well-typed queries, data and cuts for properties."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from medusa.engine.objects.query import Box, Query, Top, Totals, TupleWindows
from medusa.engine.objects.schema import DELETED, END, Field, FieldType, Schema
from medusa.engine.operators.typing import type_box
from medusa.testnet.simulation.networks import CONSTANTS, DRAWN, Networks, Words

F = FieldType

SOURCE_FIELDS = (
    Field("a", F.INT, nullable=True),
    Field("b", F.LONG),
    Field("c", F.STRING, nullable=True),
    Field("d", F.DOUBLE),
)

SOURCES = {name: Schema(name, SOURCE_FIELDS) for name in ("s0", "s1")}

TABLES = {
    "k0": Schema("k0", (*SOURCE_FIELDS, Field(DELETED, F.BOOL, nullable=True)), key=("b",)),
    "k1": Schema("k1", SOURCE_FIELDS, key=("c", "a")),
}
"""The tables that `queries_of_tables` read besides `SOURCES`."""


class Drawn(Random):
    """A random generator whose choices Hypothesis makes. `st.randoms` shrinks much worse, and finds
    a box over a box of its kind flaky."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(0)
        self._draw = draw

    def choice(self, seq: Any) -> Any:
        return self._draw(st.sampled_from(seq))

    def randint(self, a: int, b: int) -> int:
        return self._draw(st.integers(a, b))

    def sample(self, population: Any, k: int, *, counts: Any = None) -> Any:
        del counts
        places = st.sampled_from(range(len(population)))
        chosen = st.lists(places, min_size=k, max_size=k, unique=True)
        return [population[place] for place in self._draw(chosen)] if k else []


generators = st.composite(Drawn)()


def predicates(field: Field) -> list[str]:
    name = field.name
    if field.type is F.STRING:
        return [
            f"{name} = 'x.y'",
            f"lower({name}) in ('', 'x')",
            f"{name} is null",
            f"length({name}) < 2",
        ]
    if field.type is F.TIMESTAMP:
        return [f"{name} <= stime", f"{name} is not null"]
    if field.type is F.BOOL:
        return [name, f"{name} is null"]
    return [
        f"{name} > 2",
        f"not {name} between -1 and 3",
        f"{name} % 2 = 1",
        f"{name} * {name} / 3 < 1.5",
        f"{name} is null or {name} = 0",
    ]


def projections(field: Field) -> list[str]:
    name = field.name
    if field.type is F.STRING:
        return [
            name,
            f"substring_index({name}, '.', 1)",
            f"length({name})",
            f"{name} || '.' || lower({name})",
        ]
    if field.type is F.TIMESTAMP:
        return [name, "stime"]
    if field.type is F.BOOL:
        return [name, f"not {name}"]
    return [
        name,
        f"{name} + 1",
        f"case when {name} > 1 then {name} end",
        f"coalesce({name}, 2)",
        f"- {name}",
    ]


PLAIN: Final = Words(predicates, projections, CONSTANTS, gaps=False)

KINDS: Final = [kind for kind in DRAWN if kind not in {Totals, Top, TupleWindows}]
"""The kinds that keep no table."""


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Draw a query over `SOURCES`."""
    rng = draw(generators)
    networks, schemas, made = Networks(rng, PLAIN), dict(SOURCES), []
    for number in range(rng.randint(1, 7)):
        box = networks.box(rng.choice(KINDS), f"box{number}", f"t{number}", schemas)
        made.append(box)
        schemas.update(type_box(box, {stream: schemas[stream] for stream in box.inputs}).schemas)
    return Query("q", tuple(networks.some(made, len(made))))


def _of_tables(networks: Networks, number: int, streams: Any, tables: Any) -> tuple[Box, bool]:
    """A box, and whether it makes a table."""
    names = (f"box{number}", f"t{number}")
    match networks.rng.choice(("stream", "tuples", "totals", "top", "changes", "map", "join")):
        case "stream":
            return networks.box(networks.rng.choice(KINDS), *names, streams), False
        case "tuples":
            return networks.tuple_windows(*names, streams), False
        case "join":
            return networks.table_join(*names, streams, tables), False
        case "totals":
            return networks.totals(*names, streams), True
        case "top":
            return networks.top(*names, streams), True
        case "changes":
            return networks.totals(*names, tables, changes=True), True
        case _:
            return networks.map_of_table(*names, tables), True


@st.composite
def queries_of_tables(draw: st.DrawFn) -> Query:
    """Draw a query over `SOURCES` and `TABLES` that keeps and reads tables; also with count
    windows, which Medusa computes from a table."""
    rng = draw(generators)
    networks, made = Networks(rng, PLAIN), []
    streams, tables = dict(SOURCES), dict(TABLES)
    for number in range(rng.randint(1, 6)):
        box, keeps = _of_tables(networks, number, streams, tables)
        made.append(box)
        both = streams | tables
        typed = type_box(box, {name: both[name] for name in box.inputs})
        (tables if keeps else streams).update(typed.schemas)
    return Query("q", tuple(networks.some(made, len(made))))


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw the rows of one source stream, in order."""
    payload = st.fixed_dictionaries(
        {
            "stime": st.integers(-40, 60),
            "a": st.none() | st.integers(-3, 5),
            "b": st.integers(-3, 5) | st.sampled_from([2**63 - 1, -(2**63)]),
            "c": st.none() | st.sampled_from(["", "x", "X", "x.y", "é.1.2"]),
            "d": st.integers(-8, 8).map(lambda n: n / 4),
        }
    )
    found: list[dict[str, Any]] = draw(st.lists(payload, max_size=25))
    found.sort(key=lambda row: row["stime"])
    return [{**row, "seq": number} for number, row in enumerate(found)]


cuts = st.lists(st.integers(-120, 150), max_size=6).map(lambda c: [*sorted(set(c)), END])
