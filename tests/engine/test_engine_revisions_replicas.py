"""The revisions of what a query makes go on at its secondary, and at a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from engine_peers import Place, Town, begin, open_town, rows, until
from replicated_queries import LOSSLESS, QUICK, Made, asked, die, stands_by
from revised_streams import Told, counted, deletions, keyed_stream, logged, replacements, window_of

from engine.objects.availability import Mode
from engine.objects.query import Query
from engine.objects.schema import END
from tools.client.async_client import AsyncMedusaClient, Corrections


@asynccontextmanager
async def town_of(folder: Path) -> AsyncIterator[tuple[Town, list[Place]]]:
    async with open_town(folder, timing=QUICK) as town:
        yield town, await town.siblings(4)


async def some_revisions(client: AsyncMedusaClient, stream: str, at: int) -> None:
    """Tuples of value 1 at every tenth of the hundred before `at`, of which two are revised."""
    times = range(at - 100, at, 10)
    await client.post_event(stream, rows((time, 1) for time in times), boundary=at - 5)
    await client.flush()
    assert await client.post_revisions(stream, replacements([(at - 100, 5)])) == []
    assert await client.post_revisions(stream, deletions([at - 90]), boundary=at - 1) == []


EXPECTED = [window_of(start, 9, 13) for start in (0, 100, 200)]


@pytest.mark.parametrize("mode", LOSSLESS)
async def test_a_dead_primary(tmp_path: Path, made: Made, mode: Mode) -> None:
    async with (
        town_of(tmp_path) as (town, (leader, primary, secondary, reader)),
        leader.client() as poster,
        primary.client() as owner,
        reader.client() as client,
    ):
        stream = await keyed_stream(poster, leader)
        query = Query(leader.name("q"), (counted("sums", stream, leader.name("sums")),))
        await begin(owner, asked(query, mode, secondary))
        subscription, told = client.follow(leader.name("sums"), Corrections.REVISIONS), Told()
        await some_revisions(poster, stream, 100)
        await told.follow(subscription, 99)
        await stands_by(primary, secondary, "q")
        await some_revisions(poster, stream, 200)
        await told.follow(subscription, 199)
        await die(made, primary, town, leader, secondary, reader)
        await some_revisions(poster, stream, 300)
        await poster.post_event(stream, None, end=True)
        await told.follow(subscription, END)
        assert sorted(told.tuples) == EXPECTED


async def test_moved_to_a_worker_and_home(tmp_path: Path, made: Made) -> None:
    async with (
        town_of(tmp_path) as (_, (leader, owner, worker, _)),
        leader.client() as poster,
        owner.client() as client,
    ):
        stream = await keyed_stream(poster, leader)
        query = Query(leader.name("q"), (counted("sums", stream, leader.name("sums")),))
        await begin(client, query)
        await some_revisions(poster, stream, 100)
        await client.move_task(leader.name("sums/revisions"), worker.id)
        await some_revisions(poster, stream, 200)
        await client.move_task(leader.name("sums/revisions"))
        await some_revisions(poster, stream, 300)
        await poster.post_event(stream, None, end=True)
        name = leader.name("sums/revisions")
        await until(lambda: owner.state(name).log.boundary == END)
        changes = logged(owner, name)
        assert changes.column("stime").to_pylist() == [99, 99, 199, 199, 299, 299]
        told = Told()
        await told.follow(poster.follow(leader.name("sums"), Corrections.REVISIONS), END)
        assert sorted(told.tuples) == EXPECTED
