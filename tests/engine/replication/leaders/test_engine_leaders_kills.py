"""kill -9 ends real peers during posts and revisions: every acknowledged tuple is stored, once."""

from __future__ import annotations

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import rows, schema_of, send_rows
from killed_peers import PARTICIPANT, QUIET_S, STREAM, stable_leader
from msgspec import structs
from revised_streams import changes_of, deletions

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import END
from medusa.testnet.kit.peers import CONFIG, open_federation
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa


async def read_all(client: AsyncMedusaClient, found: list[tuple[int, int]]) -> None:
    async for epoch in client.subscribe(STREAM):
        table = epoch.table
        columns = (table.column("stime").to_pylist(), table.column("value").to_pylist())
        found += zip(*columns, strict=True)


async def posted_while_killing(kills: int, posts_between: int) -> list[float]:
    """Return the seconds from each kill to the acknowledgement of a later post."""
    took: list[float] = []
    found: list[tuple[int, int]] = []
    async with open_federation() as federation:
        federation.config = CONFIG + f"[engine]\nepoch_s = 0.1\nleader_silence_s = {QUIET_S}\n"
        peers = [await federation.found(PARTICIPANT)]
        peers += [await federation.admit_sibling(peers[0]) for _ in range(3)]
        for peer in peers:
            await peer.ready()
        *voters, side = peers
        await federation.together()
        also = [peer.home.folder for peer in voters]
        async with (
            open_medusa(side.home.folder, also=also) as reader,
            open_medusa(voters[0].home.folder, also=[*also[1:], side.home.folder]) as client,
            trio.open_nursery() as nursery,
        ):
            schema = structs.replace(schema_of(PARTICIPANT), key=("t",))
            await client.create_schema(schema)
            await client.create_stream(StreamDefinition(STREAM, schema.name, k_safety=1))
            nursery.start_soon(read_all, reader, found)
            number, deleted = 0, []
            with trio.fail_after(DEADLINE_S):
                for _ in range(kills):
                    for _ in range(posts_between):
                        number += 1
                        await client.post_event(STREAM, rows([(number, number)]), boundary=number)
                    deleted += [number - 1, number - 2]
                    assert await client.post_revisions(STREAM, deletions([number - 1])) == []
                    home = await stable_leader(peers)
                    await home.kill_9()
                    killed_at = trio.current_time()
                    assert await client.post_revisions(STREAM, deletions([number - 2])) == []
                    number += 1
                    await send_rows(client, STREAM, [(number, number)], boundary=number)
                    took.append(trio.current_time() - killed_at)
                    await home.start()
                    await home.ready()
                number += 1
                await send_rows(client, STREAM, [(number, number)], end=True)
                poster = await client.poster(STREAM)
                assert poster.boundary == END
                while len(found) < number:  # noqa: ASYNC110 - nor does the reader
                    await trio.sleep(0.05)
            await trio.sleep(0.3)
            assert found == [(n, n) for n in range(1, number + 1)]
            beside = [epoch.table async for epoch in reader.subscribe(f"{STREAM}/revisions")]
            changes = [change for table in beside for change in changes_of(table)]
            assert [change[1:] for change in changes] == [("DELETION", n, n) for n in deleted]
    return took


@pytest.mark.process
async def test_two_leaders_die_one_after_the_other() -> None:
    assert max(await posted_while_killing(2, 40)) < 60


@pytest.mark.soak
@pytest.mark.process
async def test_ten_leaders_die() -> None:
    await posted_while_killing(10, 200)
