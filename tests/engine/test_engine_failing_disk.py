"""A disk fails under a running peer (EIO, EROFS): the peer lives, acknowledges nothing that it has
not written, names the file, and has all acknowledged tuples after a restart."""

from __future__ import annotations

import errno
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import next_rows, schema_of, send_rows, to_the_end
from failing_peer import FILE, NAMES, READS, SYNCS, WRITES, Order, fail, possible

from medusa.engine.objects.definitions import StreamDefinition
from medusa.overlay.errors import MedusaError, NotRetainedError, StorageError
from medusa.testnet.kit.peers import Launch, Peer
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer

pytestmark = pytest.mark.skipif(not possible(), reason="seccomp on x86-64 alone")

PROGRAM = (sys.executable, str(Path(__file__).with_name("failing_peer.py")))
STREAM = "medusa://mit.edu/s"
EVERYTHING = (*WRITES, *SYNCS, *NAMES, "ftruncate", "mkdir")


@asynccontextmanager
async def running(peer: Peer) -> AsyncIterator[AsyncMedusaClient]:
    await peer.start()
    try:
        await peer.ready()
        async with open_medusa(peer.home.folder, patience_s=0.5) as client:
            yield client
    finally:
        await peer.kill_9()


def made(tmp_path: Path, *, fsync: bool) -> Peer:
    home = Home(tmp_path / "home")
    make_peer(home, "mit.edu", "cluster")
    engine = f"epoch_s = 0.05\nfsync = {str(fsync).lower()}"
    home.config.write_text(f'[overlay]\npreset = "local"\n[engine]\n{engine}\n')
    launch = Launch(listen="127.0.0.1:0", program=PROGRAM)
    return Peer("mit.edu", home, tmp_path / "log", launch)


async def failing(peer: Peer, order: Order) -> None:
    fail(peer.home.folder, order)
    with trio.fail_after(DEADLINE_S):
        while (peer.home.folder / FILE).exists():  # noqa: ASYNC110 - the peer tells nobody
            await trio.sleep(0.01)
    await trio.sleep(0.1)


async def said(client: AsyncMedusaClient) -> str:
    snapshot = await client.status()
    return "\n".join(event.text for peer in snapshot.peers for event in peer.events)


@pytest.mark.parametrize(
    ("order", "fsync"),
    [
        (Order(WRITES), False),
        (Order(SYNCS), True),
        (Order(("ftruncate", *SYNCS)), True),
        (Order(NAMES), False),
        (Order(EVERYTHING, errno.EROFS), False),
    ],
    ids=["writes", "syncs", "syncs and truncation", "names", "read-only"],
)
async def test_a_disk_that_takes_nothing(tmp_path: Path, order: Order, fsync: bool) -> None:
    peer = made(tmp_path, fsync=fsync)
    accepted: list[int] = []
    async with running(peer) as client:
        await client.create_schema(schema_of("mit.edu"))
        await client.create_stream(StreamDefinition(STREAM, schema_of("mit.edu").name))
        await send_rows(client, STREAM, [(n, n) for n in range(10)], boundary=9)
        accepted += range(10)
        async with client.subscribe(STREAM) as reader:
            assert (await next_rows(reader)).num_rows == 10
        await failing(peer, order)
        refusals = 0
        for number in range(10, 12):
            home = peer.home.folder
            async with open_medusa(home, producer=f"p{number}", patience_s=0.3) as poster:
                try:
                    await send_rows(poster, STREAM, [(number, number)], boundary=number)
                except StorageError as error:
                    assert ".journal" in str(error)  # noqa: PT017
                    refusals += 1
                else:
                    accepted.append(number)
        writes_fail = order.calls in (WRITES, EVERYTHING)
        syncs_fail = fsync and set(SYNCS) <= set(order.calls)
        assert refusals == (2 if writes_fail or syncs_fail else 0)
        # the peer goes on to serve streams, to answer questions, and to refuse posts
        with pytest.raises(MedusaError):
            await client.create_stream(StreamDefinition(f"{STREAM}2", schema_of("mit.edu").name))
        async with client.subscribe(STREAM) as reader:
            assert (await next_rows(reader)).num_rows >= 10
        with trio.fail_after(DEADLINE_S):
            while str(peer.home.folder) not in await said(client):  # noqa: ASYNC110 - as above
                await trio.sleep(0.1)
        assert peer.alive
    peer.launch = Launch(listen="127.0.0.1:0")
    async with running(peer) as client:
        await send_rows(client, STREAM, [], end=True)
        async with client.subscribe(STREAM) as reader:
            found = await to_the_end(reader)
    values = [value for _, value in found]
    assert sorted(set(values)) == sorted(values), "once"
    assert set(accepted) <= set(values)
    assert len(accepted) + 2 >= len(values)


async def test_a_disk_that_gives_nothing(tmp_path: Path) -> None:
    peer = made(tmp_path, fsync=False)
    async with running(peer) as client:
        await client.create_schema(schema_of("mit.edu"))
        await client.create_stream(StreamDefinition(STREAM, schema_of("mit.edu").name))
        for number in range(5):
            await send_rows(client, STREAM, [(number, number)], boundary=number)
        # rows that only the journal has are read before the disk fails
        with trio.fail_after(DEADLINE_S):
            rows_in_log = partial(peer.home.folder.glob, "data/streams/*/log/*_4.parquet")
            while not list(rows_in_log()):  # noqa: ASYNC110 - the disk tells nobody
                await trio.sleep(0.01)
    async with running(peer) as client:
        await failing(peer, Order(READS))
        with trio.fail_after(DEADLINE_S), pytest.raises(NotRetainedError, match="are damaged"):
            async with client.subscribe(STREAM, -1) as reader:
                await anext(reader)
        assert "is damaged or missing" in await said(client)
        await send_rows(client, STREAM, [(5, 5)], boundary=5)
        assert peer.alive
    async with running(peer) as client:
        await send_rows(client, STREAM, [], end=True)
        async with client.subscribe(STREAM) as reader:
            assert await to_the_end(reader) == [(n, n) for n in range(6)]
