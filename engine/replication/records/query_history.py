"""The stored form of a query before and after a modification: pure functions of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import (
    MAX_EDITIONS,
    Edition,
    affected,
    changing,
    check_history,
    restored,
)
from medusa.overlay.encoding import encode
from medusa.overlay.errors import BusyError, InvalidInputError

MAX_BYTES: Final = 2**19
"""Bytes of a query with its editions, so that one message, which holds twice as much, can have all
of it."""


def modified(stored: StoredQuery, query: Query, upto: int) -> StoredQuery:
    """The query with a modification: the edition `query` holds after the boundary.

    Raises:
        BusyError: there are too many editions, or too large ones.
    """
    if len(stored.editions) >= MAX_EDITIONS:
        raise BusyError(
            f"{stored.name}: its last {MAX_EDITIONS} editions may all still be computed: let its "
            "consumers and its standby catch up first"
        )
    before = {box.name: box for box in stored.entry.query.boxes}
    boxes = tuple(before[box.name] for box in query.boxes if before[box.name] != box)
    known = stored.entry
    entry = msgspec.structs.replace(known, query=query, edition=known.edition + 1, since=upto)
    editions = (*stored.editions, Edition(upto, boxes))
    try:
        check_history(query, editions)
    except InvalidInputError as error:
        raise BusyError(f"{stored.name}: {error}") from None
    made = msgspec.structs.replace(stored, entry=entry, editions=editions)
    if len(encode(made)) > MAX_BYTES:
        raise BusyError(f"{stored.name}: with its editions it would have over {MAX_BYTES} bytes")
    return made


def postponed(stored: StoredQuery, upto: int) -> StoredQuery:
    """The query with its last modification moved to a later boundary."""
    *older, last = stored.editions
    editions = (*older, msgspec.structs.replace(last, upto=upto))
    entry = msgspec.structs.replace(stored.entry, since=upto)
    return msgspec.structs.replace(stored, entry=entry, editions=editions)


def withdrawn(stored: StoredQuery) -> StoredQuery:
    """The query without its last modification."""
    *older, last = stored.editions
    since = older[-1].upto if older else max(stored.since.values(), default=BEGINNING)
    entry = msgspec.structs.replace(
        stored.entry,
        query=restored(stored.entry.query, last),
        edition=stored.entry.edition - 1,
        since=since,
    )
    return msgspec.structs.replace(stored, entry=entry, editions=tuple(older))


def settled(
    stored: StoredQuery, tasks: tuple[Task, ...], computed: Mapping[str, int]
) -> StoredQuery:
    """The query without the editions that no peer computes any more.

    Args:
        tasks: its own, with all editions.
        computed: for each task, the boundary up to which no peer will compute its output again.
    """
    editions, since = list(stored.editions), dict(stored.since)
    while editions:
        upto = editions[0].upto
        names = changing(tasks, upto)
        if any(computed[name] < upto for name in names):
            break
        since |= dict.fromkeys(affected(tasks, names), upto)
        del editions[0]
    return msgspec.structs.replace(stored, editions=tuple(editions), since=since)


def follows(known: StoredQuery, told: StoredQuery) -> bool:
    """Whether a secondary that has `known` can continue with `told` from its boundary: `told` is
    the same query, with at most one more modification, and perhaps without some editions."""
    more = told.entry.edition - known.entry.edition
    if more not in {0, 1} or len(told.editions) < more:
        return False
    editions, query = told.editions, told.entry.query
    if more:
        editions, query = editions[:-1], restored(query, editions[-1])
    if (
        query != known.entry.query
        or editions != known.editions[len(known.editions) - len(editions) :]
    ):
        return False
    if not _same_streams(known.inputs, told.inputs):
        return False
    as_known = msgspec.structs.replace(
        known,
        entry=told.entry,
        inputs=told.inputs,
        editions=told.editions,
        since=told.since,
        positions=told.positions,
        variant=told.variant,
        written_placements=told.written_placements,
        parted=told.parted,
    )
    return as_known == told and told.entry.outputs == known.entry.outputs


def _same_streams(known: Mapping[str, StreamEntry], told: Mapping[str, StreamEntry]) -> bool:
    """Whether the streams are the same, apart from alterations by their owners."""
    fixed = {name: (entry.schema, entry.stream.query) for name, entry in known.items()}
    return fixed == {name: (entry.schema, entry.stream.query) for name, entry in told.items()}
