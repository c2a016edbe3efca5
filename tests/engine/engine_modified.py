"""A query to modify, clients that do it and read it, and what must come out: by the reference
interpreter, edition by edition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import trio
from engine_peers import DEADLINE_S, Place, schema_of
from moving_tasks import Reader
from reference_interpreter import run_query

from engine.language.check import check_query
from engine.language.modification import BoxChange, Modified
from engine.objects.availability import Availability
from engine.objects.query import Aggregate, AggregateFunction, Filter, Function, Query
from engine.objects.schema import BEGINNING, END
from tools.client.async_client import AsyncMedusaClient

Answer = tuple[int, ...]


def sieve_and_sums(
    place: Place, source: str, *, size: int = 100, availability: Availability | None = None
) -> Query:
    """The odd values, `state`, and their sums and number by window, `sums`."""
    boxes = (
        Filter("sieve", source, (place.name("kept"),), ("value % 2 = 1",)),
        Aggregate(
            "sum",
            place.name("kept"),
            place.name("sums"),
            size,
            size,
            (),
            (
                AggregateFunction(Function.SUM, "value", "total"),
                AggregateFunction(Function.COUNT, None, "number"),
            ),
        ),
    )
    query = Query(place.name("q"), boxes, (place.name("kept"),))
    if availability is None:
        return query
    return msgspec.structs.replace(query, availability=availability)


def change(box: str, **parameters: str) -> BoxChange:
    """expression_0='...' is the parameter expression.0, window_size='...' is window-size."""
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
    """What a query was, from a boundary on."""

    def __init__(self, query: Query, since: int = BEGINNING) -> None:
        self.query, self.since = query, since


def answers(
    editions: Sequence[Edition], source: str, stimes: range, stream: str, *columns: str
) -> list[Answer]:
    """What must come out of a stream, if the source has (t, t) for all of these times."""
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
