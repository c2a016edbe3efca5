"""The newest files of an output are gone: the peer computes them again, or names them, and never
omits them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from engine_peers import Cluster, Place, make_stream, received, send_rows, until

from medusa.engine.objects.query import Filter, Query
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import NotRetainedError

pytestmark = pytest.mark.usefixtures("interpreted")

FIVE = [(at, at) for at in (10, 20, 30, 40, 50)]


def files_of(place: Place, stream: str) -> list[Path]:
    """Return the files of the log, the oldest first."""
    folder = place.home.data / "streams" / f"mit.edu,{stream}" / "log"
    return sorted(folder.glob("*.parquet"), key=lambda file: int(file.stem.split("_")[1]))


@pytest.mark.cluster(timing=Timing(maintenance_s=0.05))
async def test_the_newest_files_of_an_output_are_made_again_or_named(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    query, made = mit.name("q"), mit.name("d")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s")
        await client.create_query(Query(query, (Filter("f", stream, (made,), ("value > 0",)),)))
        await client.start_query(query)
        for at, value in FIVE:
            await send_rows(client, stream, [(at, value)], boundary=at)
            await until(lambda at=at: mit.state("d").log.boundary == at)
    await cluster.stop(mit)
    newest = files_of(mit, "d")[-1]
    newest.unlink()
    await cluster.start(mit)
    await until(lambda: mit.state("d").log.boundary == 50)
    async with mit.client() as client:
        assert await received(client.subscribe(made), 5) == FIVE
    assert mit.errors() == []

    mit.state("s").log.retention.history_us = 0
    await until(lambda: mit.state("s").log.start == 40)  # the newest file stays
    await cluster.stop(mit)
    before, newest = files_of(mit, "d")[-2:]
    before.unlink()
    newest.unlink()
    await cluster.start(mit)
    await until(lambda: mit.state("d").log.boundary == 50)
    assert mit.errors() == [
        f"misses rows of {made}: {before} is damaged or missing: the rows after boundary 30 up to "
        "40 are lost until another peer gives them again, or a copy of the file is put in its place"
    ]
    async with mit.client() as client:
        reader = client.subscribe(made)
        assert await received(reader, 3) == FIVE[:3]
        with (
            pytest.raises(NotRetainedError, match="after boundary 30 up to 40"),
            trio.fail_after(9),
        ):
            await received(reader, 1)
        assert await received(client.subscribe(made, after=40), 1) == FIVE[4:]
    await cluster.restart(mit)  # the files say the same after a restart
    assert len(mit.errors()) == 1
    assert [file.after for file in mit.state("d").log.files.lost] == [30]
