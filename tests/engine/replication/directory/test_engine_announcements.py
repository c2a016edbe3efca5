"""A peer announces its queries to the catalog as they are at that moment."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from engine_interpreted import interpret
from engine_peers import begin, make_stream, open_cluster, until
from modified_queries import Edition, ModifiedReader, sieve_and_sums

from medusa.dht.catalog import Catalog, Kind
from medusa.engine.objects.catalog_records import STREAM as STREAMS
from medusa.engine.objects.definitions import Producer, StreamEntry
from medusa.engine.replication.copies.copy import Workshop
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.records.query_record import QueryRecord
from medusa.engine.replication.records.stored_query import QueryFiles, StoredQuery
from medusa.engine.replication.records.term import Term
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import ConflictError
from medusa.overlay.events import Events
from medusa.overlay.names import NO_PEER, ObjectName, PeerId

STREAM = "medusa://mit.edu/out"


class SlowCatalog:
    """Publishes streams when the test lets it; remembers the published producers."""

    def __init__(self) -> None:
        self.named: list[Producer] = []
        self.publishing = trio.Event()
        self.published = trio.Event()

    async def publish(self, kind: Kind[Any], _: ObjectName, value: object) -> None:
        await trio.lowlevel.checkpoint()
        if kind is STREAMS:
            self.publishing.set()
            await self.published.wait()
        elif isinstance(value, Producer):
            self.named.append(value)


def placed_at(worker: PeerId) -> SimpleNamespace:
    return SimpleNamespace(term=Term(STREAM, 1, worker))


async def test_a_task_that_moves_while_its_query_is_published_is_published_where_it_is() -> None:
    catalog, believed = SlowCatalog(), list[Term]()
    entry = SimpleNamespace(stream=SimpleNamespace(name=STREAM))
    placed: Any = SimpleNamespace(
        name=STREAM, state=SimpleNamespace(entry=entry), current=placed_at(NO_PEER)
    )
    query = SimpleNamespace(edition=0)
    name = "medusa://mit.edu/q"
    stored = SimpleNamespace(
        name=name, term=Term(name, 7, PeerId(b"a"), (PeerId(b"b"),)), entry=query, published=query
    )
    record = QueryRecord(cast("QueryFiles", None), cast("StoredQuery", stored))
    running = QueryCopy(cast("Workshop", None), record, ())
    running.tasks.append(placed)
    directory = SimpleNamespace(believe=believed.append)
    async with trio.open_nursery() as nursery:
        announcements = Announcements(
            cast("Catalog", catalog),
            cast("Directory", directory),
            Events(lambda: 0.0),
            nursery,
            Timing(),
        )
        nursery.start_soon(running.publish, announcements)
        await catalog.publishing.wait()
        placed.current = placed_at(PeerId(b"c"))
        await running.publish_term(placed, announcements)
        catalog.published.set()
    assert catalog.named == [Producer(STREAM, worker="63", secondary="62", term_number=7)] * 2
    assert believed == [Term(STREAM, 7)] * 2


async def test_a_restart_goes_on_while_another_peer_publishes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other peer may have taken the query over: the terms decide which of the two counts."""
    interpret(monkeypatch)
    publish, refused, published = Announcements.publish_entry, 0, 0

    async def refuse_twice(self: Announcements, entry: StreamEntry) -> None:
        nonlocal refused, published
        if entry.stream.query and refused < 2:
            refused += 1
            raise ConflictError("another peer of ours keeps publishing newer versions")
        await publish(self, entry)
        published += bool(entry.stream.query)

    async with open_cluster(tmp_path, timing=Timing(announce_again_s=0.05)) as cluster:
        one = await cluster.settle("mit.edu")
        async with one.client() as client:
            source = await make_stream(client, one, "s")
            query = sieve_and_sums(one, source)
            await begin(client, query)
        monkeypatch.setattr(Announcements, "publish_entry", refuse_twice)
        await cluster.restart(one)
        async with one.client() as client:
            sums = ModifiedReader(client, one.name("sums"), "total", "number")
            await sums.end(client, source, range(300))
        await until(lambda: published > 0, "it is published again")
    assert refused == 2
    everything = ([Edition(query)], source, range(300))
    sums.check(*everything)
