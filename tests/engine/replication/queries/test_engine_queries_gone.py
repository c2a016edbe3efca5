"""A query that was deleted, or that failed, leaves nothing behind."""

from __future__ import annotations

import pytest
import trio
from engine_interpreted import interpret
from engine_peers import Cluster, begin, files, known, make_stream, passing, rows, to_the_end, until

from medusa.engine.expressions.typer import typed_short_text
from medusa.engine.objects.query import QueryStatus
from medusa.engine.replication.records.stored_query import QueryFiles
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    StorageFullError,
)
from medusa.overlay.troubles import Reason
from medusa.tools.client.async_client import AsyncMedusaClient


async def test_deleting_leaves_nothing_and_the_name_is_free(cluster: Cluster) -> None:
    _mit, utah, client, other, source = await cluster.owner_and_guest()
    before = await known(other), files(utah)
    query = passing(utah, "q", source, utah.name("out"))
    reading = passing(utah, "reading", utah.name("out"), utah.name("final"))
    await other.create_query(query)
    await other.create_query(reading)
    assert source in {state.name for state in utah.up.engine.store.all()}
    with pytest.raises(ConflictError, match=r"out is read by medusa://utah\.edu/reading"):
        await other.delete_query(query.name)
    await other.delete_query(reading.name)
    told: list[MedusaError] = []

    async def read(reader: AsyncMedusaClient) -> None:
        with pytest.raises(NotFoundError, match=r"utah\.edu/out") as caught:
            await anext(reader.subscribe(utah.name("out")))
        told.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, client)
        nursery.start_soon(read, other)
        await until(lambda: utah.state("out").subscribers == 2)
        await other.delete_query(query.name)
    assert len(told) == 2, "those that read it are told that it is gone"
    assert (await known(other), files(utah)) == before
    with pytest.raises(NotFoundError):
        await other.delete_query(query.name)
    await other.create_query(passing(utah, "q", source, utah.name("new"), "value > 2"))
    with pytest.raises(InvalidInputError, match="SETUP"):
        await other.set_query_status(query.name, QueryStatus.SETUP)


async def test_a_creation_that_fails_at_its_end_leaves_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, client, source = await cluster.founder_with_stream()
    before = await known(client), files(mit)
    query = passing(mit, "q", source, mit.name("out"))

    def full(*_: object) -> None:
        raise StorageFullError("no room for the query's file")

    with monkeypatch.context() as patch:
        patch.setattr(QueryFiles, "save", full)
        with pytest.raises(StorageFullError, match="no room for the query"):
            await client.create_query(query)
    assert (await known(client), files(mit)) == before
    await client.create_query(query)


async def test_remains_of_a_query_after_a_crash_are_undone(cluster: Cluster) -> None:
    """A query exists if its file exists: without the file, the peer removes its outputs and its
    entry at the start."""
    _mit, utah, _client, other, source = await cluster.owner_and_guest()
    before = await known(other), files(utah)
    await other.create_query(passing(utah, "q", source, utah.name("out")))
    await cluster.stop(utah)
    QueryFiles(utah.home.data / "queries").remove(utah.name("q"))
    await cluster.start(utah)
    await until(lambda: files(utah) == before[1], "what nobody follows is dropped")
    assert (await known(other), files(utah)) == before


async def test_a_stored_query_over_a_new_limit_is_reported_and_can_be_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer starts, and runs its other queries."""
    interpret(monkeypatch)
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        source = await make_stream(client, mit, "s")
        many, few = (
            passing(mit, name, source, mit.name(f"out/{name}"), predicate)
            for name, predicate in (("many", "value between 1 and 2"), ("few", "value > 1"))
        )
        for query in (many, few):
            await begin(client, query)
    monkeypatch.setattr("medusa.engine.expressions.typer.MAX_NODES", 5)
    typed_short_text.cache_clear()  # another program would have no cache
    await cluster.restart(mit)
    said = [event for event in mit.up.engine.overlay.events.recent() if event.level == "error"]
    (text,) = [event.text for event in said]
    assert text.startswith(f"does not run {many.name} any more: query {many.name}: box 'pass'")
    assert text.endswith("at character 1; delete it")
    (trouble,) = mit.up.engine.overlay.troubles.now()
    assert (trouble.reason, trouble.thing) == (Reason.QUERY_REFUSED, many.name)
    assert trouble.sentence.startswith(f"{many.name} does not run any more: query {many.name}: box")
    assert trouble.sentence.endswith("at character 1; delete it")
    async with mit.client() as client:
        await client.post_event(source, rows([(10, 2)]), end=True)
        assert await to_the_end(client.subscribe(mit.name("out/few"))) == [(10, 2)]
        with pytest.raises(ConflictError, match=r"many does not run: .*; delete it first"):
            await client.start_query(many.name)
        with pytest.raises(ConflictError, match=r"many does not run: .*; delete it first"):
            await client.stop_query(many.name)
        await client.delete_query(many.name)
        with pytest.raises(NotFoundError):
            await client.lookup_object(many.name)
        assert mit.up.engine.store.get(mit.name("out/many")) is None
    await cluster.restart(mit)
    assert not mit.up.engine.queries.unfit
    assert not mit.up.engine.overlay.troubles.now()
