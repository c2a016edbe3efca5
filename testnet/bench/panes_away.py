"""The bytes that an owner receives when the panes of its window are made where the tuples are.

The panes' task moves to the source's leader. For some seconds its owner still reads the input,
until it need not (`medusa.engine.replication.moves.sparing`); from then on it receives the panes
alone.
"""

from __future__ import annotations

from typing import Final

import trio

from medusa.engine.operators.shared.panes import panes_name
from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.flows import SCHEMA, SECOND_US, STREAM, output, windows
from medusa.testnet.bench.running import Running
from medusa.testnet.kit.cast import publish
from medusa.testnet.kit.peers import open_federation, participant_name
from medusa.tools.client.async_client import open_medusa

RATE: Final = 2_500
SPAN_S: Final = 120
"""Stime of the rows that are counted each time, seconds: some MB."""
SPEED: Final = 10
"""The speed, as a multiple of real time."""


async def away_entry() -> Entry:
    """Bytes that the query's peer receives with the panes' task moved to the source's peer, against
    those that it receives with all tasks at home."""
    query = windows("moved", 600, 10)
    async with open_federation() as federation:
        owner = await federation.found(participant_name(0))
        source = await federation.admit_sibling(owner)
        await federation.together()
        await publish(source, (SCHEMA,), (STREAM,))
        await publish(owner, queries=(query,))
        async with (
            open_medusa(source.home.folder) as poster,
            open_medusa(owner.home.folder) as reader,
        ):
            there, here = Running(source, poster, reader), Running(owner, reader, reader)
            await here.until_ready()
            whole = await _received(there, here, 0)
            await reader.move_task(panes_name(output("moved")), source.id)
            await _received(there, here, SPAN_S)  # meanwhile the owner stops reading the input
            moved = await _received(there, here, 2 * SPAN_S)
    name = "bytes received with the panes made at the source, against the whole input"
    return entry(name, round(moved / 1024), "KB", None, round(whole / 1024))


async def _received(there: Running, here: Running, begin_s: int) -> int:
    """Bytes that the query's peer receives while its source gets rows."""
    end_us = (begin_s + SPAN_S) * SECOND_US
    before = (await here.status()).received_bytes
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.until, output("moved"), end_us - 1)
        await there.post(RATE * SPAN_S, RATE, begin_us=begin_s * SECOND_US, speed=SPEED)
        await there.post_one(end_us)
    return (await here.status()).received_bytes - before
