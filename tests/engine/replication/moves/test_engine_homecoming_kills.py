"""A peer that runs a chain of tasks is killed with -9: the results continue at once, not after the
owner's patience for each stage in turn."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
from engine_peers import begin, rows, schema_of
from killed_peers import let_crash

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Filter, Query
from medusa.engine.streams.config import EngineConfig
from medusa.testnet.bench.moving import move_task
from medusa.testnet.kit.peers import open_federation
from medusa.tools.client.async_client import AsyncMedusaClient, Subscription, open_medusa

pytestmark = pytest.mark.process

SOURCE = "medusa://mit.edu/s"
STAGES = ("one", "two", "three")


async def take(subscription: Subscription, boundary: int) -> None:
    while subscription.boundary < boundary:
        await anext(subscription)


async def feed(client: AsyncMedusaClient, last: Subscription, stimes: range) -> None:
    await client.post_event(SOURCE, rows((at, at) for at in stimes), boundary=stimes[-1])
    await take(last, stimes[-1])


async def test_three_stages_at_a_killed_peer_come_home_within_one_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_crash(tmp_path, monkeypatch, interpreting=True)
    async with open_federation() as federation:
        owner = await federation.found("mit.edu")
        worker = await federation.admit_sibling(owner)
        await federation.together()
        async with open_medusa(owner.home.folder) as client:
            schema = schema_of("mit.edu")
            await client.create_schema(schema)
            await client.create_stream(StreamDefinition(SOURCE, schema.name))
            source = SOURCE
            for stage in STAGES:
                output = f"medusa://mit.edu/{stage}"
                box = Filter("all", source, (output,), ("value >= 0",))
                await begin(client, Query(f"medusa://mit.edu/q/{stage}", (box,)))
                source = output
            last = client.subscribe(source)
            await feed(client, last, range(100))
            for stage in STAGES:
                await move_task(owner.home, f"medusa://mit.edu/{stage}", worker.id)
            await feed(client, last, range(100, 200))
            os.kill(worker.pid, signal.SIGKILL)
            with trio.fail_after(EngineConfig().patience_s):
                await feed(client, last, range(200, 300))
