"""Queries whose traffic travels, and the peers to which the market moves them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from engine_peers import Place, send_rows, until

from medusa.engine.objects.schema import BEGINNING
from medusa.tools.client.async_client import AsyncMedusaClient

MANUAL = Path(__file__).parents[2] / "docs" / "reference"

THREE = 1_521_903_600
"""2018-03-24T15:00:00Z, in seconds since 1970."""

MINUTE_S = 60


def examples(language: str, heading: str) -> Iterator[str]:
    """Return the blocks of history.md in that language, under that heading."""
    level = heading.split(" ", 1)[0]
    text = (MANUAL / "history.md").read_text().split(f"\n{heading}\n", 1)[1]
    part = re.split(rf"\n#{{2,{len(level)}}} ", text, maxsplit=1)[0]
    yield from re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)


async def world(client: AsyncMedusaClient, place: Place, minutes: int = 120) -> None:
    """Create the stream and query of queries.md; post a tuple every ten seconds from 14:00 on."""
    document = (MANUAL / "queries.md").read_text().split("```xml\n", 1)[1].split("```", 1)[0]
    document = document.replace("conns > 100", "conns > 1")
    names = await client.create_query_xml(document)
    assert "medusa://mit.edu/busy_sources" in names
    await client.start_query("medusa://mit.edu/busy_sources")
    begin = THREE - 60 * MINUTE_S
    numbers = range(minutes * 6)
    table = pa.table(
        {
            "ts": pa.array([float(begin + 10 * n) for n in numbers]),
            "src_ip": pa.array([f"10.0.0.{n % 4}" for n in numbers]),
            "dst_port": pa.array([n % 7 for n in numbers], pa.int32()),
        }
    )
    for first in range(0, len(numbers), 100):
        await client.post_event("medusa://mit.edu/conns", table.slice(first, 100))
        # otherwise all tuples may be one epoch, which is kept whole until the last tuple
        if not first:
            await client.flush()
            await until(lambda: place.state("conns").log.boundary > BEGINNING)
    last = (begin + minutes * MINUTE_S) * 1_000_000
    await send_rows(client, "medusa://mit.edu/conns", boundary=last)
    for path in ("conns", "busy"):
        await until(lambda p=path: place.state(p).log.boundary >= last)
