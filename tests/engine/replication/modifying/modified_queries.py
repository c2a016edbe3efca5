"""Queries before and after a modification, clients that modify and read, and the expected answers:
by the reference interpreter, edition by edition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import trio
from engine_peers import DEADLINE_S, Place, schema_of
from hypothesis import strategies as st
from moving_tasks import Reader
from reference_networks import SOURCES, predicates, projections

from medusa.engine.language.check import check_query
from medusa.engine.language.modification import BoxChange, Modified, modified_query
from medusa.engine.objects.availability import Availability
from medusa.engine.objects.definitions import QueryEntry, StreamDefinition, StreamEntry
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Cumulate,
    Filter,
    Join,
    Map,
    Match,
    Query,
    QueryStatus,
    Rank,
    Sessions,
    Top,
    Totals,
    Union,
)
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.reference.interpreter import run_query
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.tools.client.async_client import AsyncMedusaClient

Answer = tuple[int, ...]


def sieve_and_sums(
    place: Place, source: str, *, size: int = 100, availability: Availability | None = None
) -> Query:
    """Return a query of the odd values, `state`, and of their sums and number by window, `sums`."""
    boxes = (
        Filter("sieve", source, (place.name("kept"),), ("value % 2 = 1",)),
        Aggregate(
            "sum",
            place.name("kept"),
            place.name("sums"),
            size,
            size,
            (),
            (AggregateCall("sum", "value", "total"), AggregateCall("count", None, "number")),
        ),
    )
    query = Query(place.name("q"), boxes, (place.name("kept"),))
    if availability is None:
        return query
    return msgspec.structs.replace(query, availability=availability)


def rolling_sums(place: Place, source: str, *, size: int = 600, advance: int = 100) -> Query:
    """Return a query of sums and numbers of the odd values by windows that are folded from panes,
    `sums`."""
    plain = sieve_and_sums(place, source)
    sieve, sums = plain.boxes
    assert isinstance(sums, Aggregate)
    windows = msgspec.structs.replace(sums, size_us=size, advance_us=advance)
    return Query(plain.name, (sieve, windows))


def change(box: str, **parameters: str) -> BoxChange:
    """Return a change: expression_0='...' is the parameter expression.0, window_size='...' is
    window-size."""
    named = {name.replace("_0", ".0").replace("_", "-"): v for name, v in parameters.items()}
    return BoxChange(box, tuple(named.items()))


async def modify(
    client: AsyncMedusaClient,
    query: str,
    *changes: BoxChange,
    at: int | None = None,
    alone: bool = False,
) -> Modified:
    with trio.fail_after(DEADLINE_S):
        return await client.modify_query(query, changes, at, alone=alone)


class Edition:
    """A query's form from a boundary on."""

    def __init__(self, query: Query, since: int = BEGINNING) -> None:
        self.query, self.since = query, since


def answers(
    editions: Sequence[Edition], source: str, stimes: range, stream: str, *columns: str
) -> list[Answer]:
    """Return the expected tuples of a stream, if the source has (t, t) for all of these times."""
    participant = source.removeprefix("medusa://").split("/")[0]
    schemas = {source: schema_of(participant)}
    given: dict[str, list[dict[str, Any]]] = {
        source: [
            {"stime": at, "t": at, "name": "x", "value": at, "seq": number}
            for number, at in enumerate(stimes)
        ]
    }
    found: list[Answer] = []
    ends = [each.since for each in editions[1:]] + [END]
    for each, upto in zip(editions, ends, strict=True):
        made = run_query(each.query, given, check_query(each.query, schemas))[stream]
        found += [
            tuple(row[name] for name in ("stime", *columns))
            for row in made
            if each.since < row["stime"] <= upto
        ]
    return found


class ModifiedReader(Reader):
    """A subscriber to a stream of a query that is modified."""

    def check(self, editions: Sequence[Edition], source: str, stimes: range) -> None:
        assert self.rows == answers(editions, source, stimes, self.stream, *self.columns)


MORE = change("sieve", expression_0="value % 3 = 1")


LONGER = change("sum", window_size="0.00016")


SHORTER = change("sum", window_size="0.00002")


def stored(place: Place) -> StoredQuery:
    return place.up.engine.queries.get(place.name("q")).stored


def edition(before: Query, since: int, *changes: BoxChange) -> Edition:
    return Edition(modified_query(before, changes), since)


def other_box(draw: st.DrawFn, box: Box, schemas: dict[str, Schema]) -> Box | None:
    """Draw the box with other parameters; these may change its schema, and be refused."""
    match box:
        case Filter():
            schema = schemas[box.input]
            texts = tuple(
                draw(st.sampled_from(predicates(draw(_any(schema.fields))))) for _ in box.predicates
            )
            return msgspec.structs.replace(box, predicates=texts)
        case Map():
            fields = schemas[box.input].fields
            pairs = []
            for name, text in box.expressions:
                again = draw(st.booleans())
                pairs.append(
                    (
                        name,
                        text if again else draw(st.sampled_from(projections(draw(_any(fields))))),
                    )
                )
            return msgspec.structs.replace(box, expressions=tuple(pairs))
        case Aggregate():
            size = draw(st.sampled_from([1, 5, 10, 20, 30, 60]))
            advance = draw(st.sampled_from([size, size, max(1, size // 2), max(1, size // 3)]))
            functions = tuple(
                msgspec.structs.replace(each, argument=draw(_any(schemas[box.input].fields)).name)
                if each.argument is not None and draw(st.booleans())
                else each
                for each in box.functions
            )
            return msgspec.structs.replace(
                box, size_us=size, advance_us=advance, functions=functions
            )
        case Union():
            return None
        case _:
            return other_state(draw, box)


def other_state(
    draw: st.DrawFn, box: Rank | Sessions | Cumulate | Join | Match | Totals | Top
) -> Box:
    match box:
        case Rank():
            return msgspec.structs.replace(
                box, most=draw(st.integers(1, 4)), size_us=draw(st.sampled_from([1, 5, 20]))
            )
        case Sessions():
            gap = draw(st.sampled_from([1, 2, 6]))
            return msgspec.structs.replace(box, gap_us=gap, longest_us=gap * 3)
        case Cumulate():
            step = draw(st.sampled_from([1, 5]))
            return msgspec.structs.replace(box, step_us=step, size_us=step * 4)
        case Join():
            before = draw(st.sampled_from([0, 1, 6]))
            return msgspec.structs.replace(box, before_us=max(before, -box.after_us))
        case Match():
            return msgspec.structs.replace(box, within_us=draw(st.sampled_from([3, 15])))
        case Totals() | Top():
            raise AssertionError("it is not drawn")


def _any(fields: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(list(fields))


def stored_query(query: Query) -> StoredQuery:
    inputs = {
        name: StreamEntry(StreamDefinition(name, name), schema)
        for name, schema in SOURCES.items()
        if any(name in box.inputs for box in query.boxes)
    }
    entry = QueryEntry(query, QueryStatus.RUNNING, "", ())
    stored = StoredQuery(entry, inputs, ())
    outputs = tuple(task.output for task in stored.network.tasks())
    return msgspec.structs.replace(stored, entry=msgspec.structs.replace(entry, outputs=outputs))


@st.composite
def chains(draw: st.DrawFn) -> Query:
    """Draw a filter whose output is stored, windows over that, and windows over those."""
    total = (AggregateCall("sum", "a", "a"), AggregateCall("count", None, "n"))
    sizes = st.sampled_from([5, 10, 20])
    first, second = draw(sizes), draw(sizes)
    boxes = (
        Filter("f", "s0", ("t0",), (draw(st.sampled_from(["a > 2", "a % 2 = 1", "b > 0"])),)),
        Aggregate("w", "t0", "t1", first, first, (), total),
        Aggregate("v", "t1", "t2", second, second, (), total),
    )
    return Query("q", boxes, ("t0",))


@st.composite
def folded(draw: st.DrawFn) -> Query:
    """Draw windows that are folded from panes, most of them overlapping, with a filter before and
    one behind."""
    functions = (
        AggregateCall("sum", "a", "a"),
        AggregateCall("count", None, "n"),
        AggregateCall("count_distinct", "b", "bs"),
    )
    size, parts = draw(st.sampled_from([(10, 2), (20, 2), (30, 3), (30, 6), (20, 1)]))
    grouped = ("b",) if draw(st.booleans()) else ()
    boxes = (
        Filter(
            "f", "s0", ("medusa://p/t0",), (draw(st.sampled_from(["a > 2", "a % 2 = 1", "b > 0"])),)
        ),
        Aggregate("w", "medusa://p/t0", "medusa://p/t1", size, size // parts, grouped, functions),
        Filter("g", "medusa://p/t1", ("medusa://p/t2",), ("n > 1",)),
    )
    return Query("q", boxes, panes=(("w", 5),))
