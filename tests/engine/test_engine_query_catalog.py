"""What a peer tells the catalog of its queries is what is so when it tells it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from engine_interpreted import interpret
from engine_modified import Edition, Reader, answers, sieve_and_sums
from engine_peers import make_stream, open_town, rows, until

from dht.catalog import Catalog
from engine.objects.definitions import Producer, StreamEntry
from engine.objects.schema import END
from engine.replication.producers import Producers
from engine.replication.query_catalog import QueryCatalog
from engine.replication.running_query import RunningQuery
from engine.replication.term import Term
from overlay.errors import ConflictError
from overlay.events import Events

STREAM = "medusa://mit.edu/out"


class SlowProducers:
    """Publishes streams when it is let; remembers who was named as their producers."""

    def __init__(self) -> None:
        self.named: list[Producer] = []
        self.publishing = trio.Event()
        self.published = trio.Event()

    async def publish_entry(self, _: object) -> None:
        self.publishing.set()
        await self.published.wait()

    async def name_producer(self, producer: Producer) -> None:
        await trio.lowlevel.checkpoint()
        self.named.append(producer)


class NoCatalog:
    async def publish(self, *_: object) -> None:
        await trio.lowlevel.checkpoint()


def placed_at(worker: str) -> SimpleNamespace:
    return SimpleNamespace(term=Term(STREAM, 1, worker))


async def test_a_task_that_moves_while_its_query_is_published_is_published_where_it_is() -> None:
    producers = SlowProducers()
    placed = SimpleNamespace(name=STREAM, kept=SimpleNamespace(entry=None), current=placed_at(""))
    entry = SimpleNamespace(edition=0)
    stored = SimpleNamespace(
        name="medusa://mit.edu/q", term=Term("q", 7, "aa", ("bb",)), entry=entry, published=entry
    )
    running = cast("RunningQuery", SimpleNamespace(tasks=[placed], stored=stored))
    async with trio.open_nursery() as nursery:
        catalog = QueryCatalog(
            cast("Catalog", NoCatalog()),
            cast("Producers", producers),
            Events(lambda: 0.0),
            nursery,
        )
        nursery.start_soon(catalog.publish, running)
        await producers.publishing.wait()
        placed.current = placed_at("cc")
        await catalog.name_worker(running, placed)  # type: ignore[arg-type]
        producers.published.set()
    assert producers.named == [Producer(STREAM, worker="cc", secondary="bb", fence=7)] * 2


async def test_a_restart_goes_on_while_another_peer_publishes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that took it over, say: which of the two counts is decided by their fences."""
    interpret(monkeypatch)
    monkeypatch.setattr("engine.replication.query_catalog.PUBLISH_AGAIN_S", 0.05)
    publish, refused, published = Producers.publish_entry, 0, 0

    async def refuse_twice(self: Producers, entry: StreamEntry) -> None:
        nonlocal refused, published
        if entry.stream.query and refused < 2:
            refused += 1
            raise ConflictError("another peer of ours keeps publishing newer versions")
        await publish(self, entry)
        published += bool(entry.stream.query)

    async with open_town(tmp_path) as town:
        one = await town.settle("mit.edu")
        async with one.client() as client:
            source = await make_stream(client, one, "s")
            query = sieve_and_sums(one, source)
            await client.create_query(query)
            await client.start_query(query.name)
        monkeypatch.setattr(Producers, "publish_entry", refuse_twice)
        await town.restart(one)
        async with one.client() as client:
            sums = Reader(client, one.name("sums"), "total", "number")
            await client.post_event(source, rows((t, t) for t in range(300)), end=True)
            await sums.take(END)
        await until(lambda: published > 0, "it is published again")
    assert refused == 2
    everything = ([Edition(query)], source, range(300))
    assert sums.rows == answers(*everything, one.name("sums"), "total", "number")
