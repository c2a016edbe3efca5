"""What a peer tells the catalog of its queries is what is so when it tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import trio

from dht.catalog import Catalog
from engine.definitions import Producer
from engine.producers import Producers
from engine.query_catalog import QueryCatalog
from engine.replicas.tenure import Tenure
from engine.running_query import RunningQuery
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


async def test_a_task_that_moves_while_its_query_is_published_is_published_where_it_is() -> None:
    producers = SlowProducers()
    placed = SimpleNamespace(
        name=STREAM, kept=SimpleNamespace(entry=None), current=SimpleNamespace(worker="")
    )
    entry = SimpleNamespace(query=SimpleNamespace(name="medusa://mit.edu/q"), edition=0)
    stored = SimpleNamespace(tenure=Tenure(7, "aa", "bb"), entry=entry)
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
        placed.current = SimpleNamespace(worker="cc")
        await catalog.name_worker(running, placed)  # type: ignore[arg-type]
        producers.published.set()
    assert producers.named == [Producer(STREAM, worker="cc", secondary="bb", fence=7)] * 2
