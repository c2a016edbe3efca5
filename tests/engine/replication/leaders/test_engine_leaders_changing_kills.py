"""Streams with replicas at three real peers are reopened or deleted: kill -9 ends leaders before or
during the call; after another call the stream is reopened or deleted at every peer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
from crashing_peer import Order
from deadline import DEADLINE_S
from engine_peers import rows, schema_of, send_rows, to_the_end, until
from kill_sweeps import DELETING_LEADERS, REOPENING_LEADERS
from killed_peers import PARTICIPANT, QUIET_S, STREAM, Victim, let_crash, stable_leader
from leaders_cluster import once_confirmed
from msgspec import structs
from revised_streams import deletions

from medusa.engine.objects.definitions import StreamDefinition
from medusa.overlay.errors import ConflictError, NotFoundError, UnavailableError
from medusa.testnet.kit.peers import CONFIG, Peer, open_federation
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

SCHEMA = structs.replace(schema_of(PARTICIPANT), key=("t",))


@pytest.fixture(autouse=True)
def _crashing_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_crash(tmp_path, monkeypatch, interpreting=True)


async def reopen(client: AsyncMedusaClient) -> None:
    await once_confirmed(client.reopen_stream, STREAM)


async def end(client: AsyncMedusaClient, number: int) -> None:
    """Post a tuple and a revision of it, and end the stream."""
    time = 10 * number
    await client.post_event(STREAM, rows([(time, number)]), boundary=time)
    assert await client.post_revisions(STREAM, deletions([time])) == []
    await send_rows(client, STREAM, end=True)


@asynccontextmanager
async def three() -> AsyncIterator[tuple[list[Peer], AsyncMedusaClient]]:
    """Give peers of one participant with the schema, and a client of each."""
    async with open_federation() as federation:
        engine = f"[engine]\nepoch_s = 0.05\nleader_silence_s = {QUIET_S}\nlease_s = 2.0\n"
        federation.config = CONFIG + engine
        voters = [await federation.found(PARTICIPANT)]
        voters += [await federation.admit_sibling(voters[0]) for _ in range(2)]
        for peer in voters:
            await peer.ready()
        await federation.together()
        folders = [peer.home.folder for peer in voters]
        async with open_medusa(folders[0], also=folders[1:]) as client:
            await client.create_schema(SCHEMA)
            yield voters, client


async def reopened_while_killing(
    voters: list[Peer], client: AsyncMedusaClient, steps: list[Order]
) -> None:
    await client.create_stream(StreamDefinition(STREAM, SCHEMA.name, k_safety=1))
    with trio.fail_after(DEADLINE_S * (1 + len(steps))):
        await end(client, 1)
        leader = await stable_leader(voters)
        await leader.kill_9()  # the leader dies between the end and the reopening
        second = await stable_leader(voters)
        assert second is not leader
        with pytest.raises(UnavailableError):  # the leader may have sent the end to a reader
            await client.reopen_stream(STREAM)
        await start(leader)
        await reopen(client)
        for number, step in enumerate(steps, 2):
            await end(client, number)
            victim = Victim(await stable_leader(voters))
            victim.arm(step)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reopen, client)
                await victim.revive()
        last = len(steps) + 2
        await end(client, last)
        found = await to_the_end(client.subscribe(STREAM))
        assert found == [(10 * number, number) for number in range(1, last + 1)]
        with pytest.raises(ConflictError, match="was told a subscriber of"):
            await reopen(client)
        beside = [epoch.table async for epoch in client.subscribe(f"{STREAM}/revisions")]
        assert sum(table.num_rows for table in beside) == last


async def deleted_while_killing(
    voters: list[Peer], client: AsyncMedusaClient, steps: list[Order]
) -> None:
    for number, step in enumerate(steps):
        stream = f"medusa://{PARTICIPANT}/d{number}"
        with trio.fail_after(DEADLINE_S):
            await client.create_stream(StreamDefinition(stream, SCHEMA.name, k_safety=1))
            await client.post_event(stream, rows([(10, 1)]), boundary=10)
            assert await client.post_revisions(stream, deletions([10])) == []
            await client.flush()
            victim = Victim(await stable_leader(voters, stream))
            victim.arm(step)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(delete, client, stream)
                await victim.revive()
            for peer in voters:
                await gone(peer, stream)


async def delete(client: AsyncMedusaClient, stream: str) -> None:
    with suppress(NotFoundError):
        await once_confirmed(client.delete_stream, stream, ConflictError)


async def gone(peer: Peer, stream: str) -> None:
    """Whether the stream's files and its record in the catalog are gone."""
    folders = peer.home.data / "streams"
    path = stream.rpartition("/")[2]
    async with open_medusa(peer.home.folder) as client:

        async def is_gone() -> bool:
            listed = (await client.list_objects()).names.get("stream", ())
            left = [each for each in listed if each.startswith(stream)]
            left += [each.name for each in folders.glob(f"*,{path}[@,]*")]
            return not left

        await until(is_gone)


async def start(peer: Peer) -> None:
    await peer.start()
    await peer.ready()


@pytest.mark.process
async def test_leaders_are_killed_while_they_reopen_and_delete() -> None:
    """One leader is killed between the end and the reopening; others at two steps of each
    operation."""
    async with three() as (voters, client):
        await reopened_while_killing(voters, client, REOPENING_LEADERS[2:5:2])
        await deleted_while_killing(voters, client, [DELETING_LEADERS[0], DELETING_LEADERS[4]])


@pytest.mark.soak
@pytest.mark.process
async def test_leaders_are_killed_at_every_step_of_a_deletion() -> None:
    async with three() as (voters, client):
        await deleted_while_killing(voters, client, DELETING_LEADERS)


@pytest.mark.soak
@pytest.mark.process
async def test_leaders_are_killed_at_every_step_of_a_reopening() -> None:
    async with three() as (voters, client):
        await reopened_while_killing(voters, client, REOPENING_LEADERS)
