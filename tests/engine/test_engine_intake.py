"""The intake writes posts into the log, and stands still while the disk refuses them."""

from __future__ import annotations

import shutil
from pathlib import Path

import trio
from engine_peers import make_stream, open_town, rows, until

from engine.streams.config import Timing
from engine.streams.stream_state import LogKey

AGAIN_S = 0.05


async def test_a_folder_that_was_removed_is_told_as_that(
    tmp_path: Path,
) -> None:
    async with open_town(tmp_path, timing=Timing(store_again_s=AGAIN_S)) as town:
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
