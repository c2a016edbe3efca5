"""A real peer is killed with -9 while a stream is altered, deleted or reopened: after its restart
another call completes the change, once, and nothing is half done."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import trio
from crashing_peer import Order
from engine_peers import schema_of, send_rows, to_the_end, until
from kill_sweeps import ALTERING_STREAMS, DELETING_STREAMS, REOPENING_STREAMS
from killed_peers import Victim, let_crash

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import END
from medusa.overlay.errors import NotFoundError
from medusa.testnet.kit.peers import CONFIG, open_federation
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

PARTICIPANT = "mit.edu"


@pytest.fixture(autouse=True)
def _crashing_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_crash(tmp_path, monkeypatch, interpreting=True)


async def until_ended(client: AsyncMedusaClient, stream: str) -> None:
    # a subscription that waits for the end would prevent the reopening
    async def has_ended() -> bool:
        (peer,) = (await client.status(federation=False)).peers
        return any(each.name == stream and each.boundary == END for each in peer.streams)

    await until(has_ended)


async def kill_at(altering: list[Order], deleting: list[Order], reopening: list[Order]) -> None:
    async with open_federation() as federation:
        federation.config = CONFIG + "[engine]\nepoch_s = 0.05\n"
        peer = await federation.found(PARTICIPANT)
        victim = Victim(peer)
        schema = schema_of(PARTICIPANT)

        async def make(path: str) -> str:
            name = f"medusa://{PARTICIPANT}/{path}"
            await client.create_stream(StreamDefinition(name, schema.name, slack_us=50))
            return name

        async with open_medusa(peer.home.folder) as client:
            await client.create_schema(schema)
            stream = await make("s")
            for number, step in enumerate(altering, 1):
                await send_rows(client, stream, [(number * 100, number)])
                victim.arm(step)
                async with trio.open_nursery() as nursery:
                    wish = Alteration(slack_us=50 - number, readers=(f"n{number}.edu",))
                    nursery.start_soon(client.alter_stream, stream, wish)  # until it is
                    await victim.revive()
                now = (await client.stream_entry(stream)).stream
                assert (now.edition, now.slack_us) == (number, 50 - number), step
                assert now.readers == (f"n{number}.edu",), step
            await send_rows(client, stream, end=True)
            assert await to_the_end(client.subscribe(stream)) == [
                (n * 100, n) for n in range(1, len(altering) + 1)
            ]
            for number, step in enumerate(deleting):
                name = await make(f"d{number}")
                await send_rows(client, name, [(5, 5)], boundary=9)
                victim.arm(step)

                async def delete(name: str = name) -> None:
                    # the client asks again, and the peer has deleted the object already
                    with suppress(NotFoundError):
                        await client.delete_stream(name)

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(delete)
                    await victim.revive()
                listed = (await client.list_objects()).names["stream"]
                assert not [each for each in listed if each.startswith(name)], step
                async with open_medusa(peer.home.folder) as anew:
                    assert await make(f"d{number}") == name
                    await send_rows(anew, name, [(1, 1)], end=True)
                    assert await to_the_end(anew.subscribe(name)) == [(1, 1)], step
            for number, step in enumerate(reopening):
                name = await make(f"r{number}")
                await send_rows(client, name, [(5, 5)], end=True)
                await until_ended(client, name)
                victim.arm(step)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.reopen_stream, name)
                    await victim.revive()
                await send_rows(client, name, [(5, 6), (6, 7)], end=True)
                assert await to_the_end(client.subscribe(name)) == [(5, 5), (6, 7)], step


@pytest.mark.process
async def test_a_killed_peer_leaves_nothing_half_done() -> None:
    await kill_at(ALTERING_STREAMS[1:2], DELETING_STREAMS[2:3], REOPENING_STREAMS[1:2])


@pytest.mark.soak
@pytest.mark.process
async def test_a_killed_peer_leaves_nothing_half_done_anywhere() -> None:
    await kill_at(ALTERING_STREAMS, DELETING_STREAMS, REOPENING_STREAMS)
