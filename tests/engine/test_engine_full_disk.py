"""A whole peer on a full disk: it says so to whoever wants to store, serves on, and recovers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from engine_peers import make_stream, open_town, received, rows, to_the_end, until

from engine.streams.config import Timing
from overlay.errors import StorageFullError


def fill(disk: Path) -> Path:
    """Leave no room at all."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                break
    with filler.open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"x")
            except OSError:
                return filler


async def test_a_full_disk(small_disk: Path) -> None:
    async with open_town(small_disk, timing=Timing(tend_s=0.02)) as town:
        mit, utah = await town.settle_all("mit.edu", "utah.edu")
        async with mit.client(producer="p") as client, utah.client() as other:
            stream = await make_stream(client, mit, "s", writers=("*",))
            await client.post_event(stream, rows([(1, 1)]), boundary=1)
            reader = other.subscribe(stream, subscriber="me")
            assert await received(reader, 1) == [(1, 1)]
            filler = fill(small_disk)
            for where in (mit, utah):
                async with where.client(patience_s=0.2) as impatient:
                    await impatient.post_event(stream, rows([(n, n) for n in range(2, 5_000)]))
                    with pytest.raises(StorageFullError):
                        await impatient.flush()
            with pytest.raises(StorageFullError):
                await make_stream(client, mit, "t")
            await client.post_event(stream, rows([(n, n) for n in range(2, 6_000)]))
            newcomer = other.subscribe(stream, subscriber="newcomer")
            assert await received(newcomer, 1) == [(1, 1)]
            # both live on: they tend their streams, exchange news, renew what they published
            tended = trio.current_time() + 1.5
            while trio.current_time() < tended:
                snapshot = await client.status()
                assert [peer.state for peer in snapshot.peers] == ["running", "running"]
                await other.lookup_object(stream)
                await trio.sleep(0.1)
            assert mit.state(stream).log.boundary == 1
            assert any("could not save" in e.text for e in mit.up.engine.overlay.events.recent())
            os.unlink(filler)
            await client.flush()
            await client.post_event(stream, None, end=True)
            assert await to_the_end(reader) == [(n, n) for n in range(2, 6_000)]
            await make_stream(client, mit, "t")
            leases = mit.home.data / "leases.json"
            await until(lambda: b"newcomer" in leases.read_bytes())
