"""The home of a source stream moves posted tuples into the stream's log."""

from __future__ import annotations

from pathlib import Path

from engine_peers import make_stream, open_town, rows, until

PENDING_BYTES = 2**20
ROWS = 10_000
"""Of one post: they take more than the share of `PENDING_BYTES` at which a log hurries."""


async def test_a_stream_is_not_silent_after_a_burst_that_its_memory_could_not_hold(
    tmp_path: Path,
) -> None:
    """Each of these posts needs an epoch at once; the one after them waits for its own alone."""
    async with open_town(tmp_path, epoch_s=1.0, pending_bytes=PENDING_BYTES) as town:
        place = await town.settle("mit.edu")
        async with place.client() as client:
            stream = await make_stream(client, place, "s")
            for number in range(40):
                await client.post_event(stream, rows([(number, 1)] * ROWS), boundary=number)
            await client.post_event(stream, rows([(100, 1)]), boundary=100)
            await client.flush()
            kept = place.up.engine.store.serving(stream)
            assert kept is not None
            await until(lambda: kept.log.boundary == 100, "the last post is served")
