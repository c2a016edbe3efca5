"""The intake writes posts into the log, and stands still while the disk refuses them."""

from __future__ import annotations

import shutil

import pytest
import trio
from engine_peers import Town, make_stream, rows, until

from engine.streams.config import Timing
from engine.streams.stream_state import LogKey

AGAIN_S = 0.05
pytestmark = pytest.mark.town(timing=Timing(store_again_s=AGAIN_S))


async def test_a_folder_that_was_removed_is_told_as_that(town: Town) -> None:
    mit = await town.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s")
        await client.post_event(stream, rows([(1, 1)]), boundary=1)
        await client.flush()
        await until(lambda: mit.state("s").log.boundary == 1)
        folder = mit.up.engine.store.folder_of(LogKey(stream)) / "log"
        shutil.rmtree(folder)
        await client.post_event(stream, rows([(2, 2)]), boundary=2)
        await client.flush()
        await until(lambda: bool(mit.errors()))
        await trio.sleep(5 * AGAIN_S)
    assert mit.errors() == [
        f"stands still with {stream}, and its posts wait: {folder}: there is no such "
        "folder: make it, or put it back"
    ]
    await town.restart(mit)
    await until(lambda: mit.state("s").log.boundary == 2)
