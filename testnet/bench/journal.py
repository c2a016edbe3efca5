"""A leader alone, without network: posts -> journal -> log -> feed -> assembled epochs.

Ten million connection-like rows pass through one source stream in a process of its own, which
reports its rate and its peak memory.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import trio

from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.memory import ENVIRONMENT
from medusa.engine.streams.messages import Post
from medusa.engine.streams.reading.assembling import Assembler
from medusa.engine.streams.reading.feed import Cursor, parts_of
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.leader import Leader, open_leader
from medusa.engine.streams.source.post_request import PostRequest
from medusa.overlay.errors import BusyError
from medusa.testnet.bench import Entry, entry

ROWS: Final = 10_000_000
_POST_ROWS: Final = 50_000
"""Rows in one post: 3 MB."""
_SCHEMA: Final = Schema(
    "medusa://bench.example/connection",
    (
        Field("ts", FieldType.TIMESTAMP),
        Field("source", FieldType.STRING),
        Field("target", FieldType.STRING),
        Field("port", FieldType.INT),
        Field("bytes_in", FieldType.INT),
        Field("bytes_out", FieldType.LONG),
    ),
    time="ts",
)


def measure() -> Iterator[Entry]:
    """Run the passage in a subprocess: rates, CPU time and peak memory."""
    folder = Path(tempfile.mkdtemp(prefix="medusa-bench-"))
    try:
        command = [sys.executable, "-m", "medusa.testnet.bench.journal", str(folder), str(ROWS)]
        output = subprocess.run(
            command, check=True, capture_output=True, env={**ENVIRONMENT, **os.environ}
        ).stdout
    finally:
        shutil.rmtree(folder)
    found = msgspec.json.decode(output, type=dict[str, float])
    yield entry("one home, post to feed: rows", found["rows_per_s"], "rows/s")
    yield entry("one home, post to feed: bytes", found["mb_per_s"], "MB/s", ">= 150")
    yield entry("one home, post to feed: CPU per million rows", found["cpu_s"], "s")
    yield entry("one home: peak memory of 10 million rows", found["peak_mb"], "MB", "<= 300")


def _columns() -> list[pa.Array]:
    """A post's columns except its times: addresses repeat as they do in traffic."""
    numbers = [(n * 2_654_435_761) % 2**32 for n in range(_POST_ROWS)]
    return [
        pa.array([f"10.{n % 7}.{n >> 8 & 255}.{n >> 16 & 255}" for n in numbers]),
        pa.array([f"192.168.{n >> 4 & 63}.{n >> 20 & 255}" for n in numbers]),
        pa.array([n & 0xFFFF for n in numbers], pa.int32()),
        pa.array([n & 0xFFFFF for n in numbers], pa.int32()),
        pa.array([n * 3 for n in numbers], pa.int64()),
    ]


async def _post(leader: Leader, rows: int) -> None:
    columns = _columns()
    for number in range(rows // _POST_ROWS):
        start = number * _POST_ROWS
        times = pa.arange(start, start + _POST_ROWS).cast(_SCHEMA.fields[0].type.arrow)
        body = encode(pa.Table.from_arrays([times, *columns], schema=_SCHEMA.payload))
        last = start + _POST_ROWS >= rows
        while True:
            try:
                await leader.post(
                    PostRequest(Writer("bench"), Post(number + 1, end=last), body), now=0.0
                )
                break
            except BusyError:  # as a client does: wait until there is room
                await leader.logs.stream.wait_beyond(leader.logs.stream.boundary)


async def _move(leader: Leader) -> None:
    while leader.logs.stream.boundary < END:
        await leader.wait_ready()
        await leader.advance(0.0)


async def _subscribe(log: StreamLog) -> int:
    rows = 0
    assembler = Assembler(_SCHEMA.source, BEGINNING)
    async with aclosing(parts_of(Cursor(log, BEGINNING))) as messages:
        async for message, part in messages:
            if (epoch := assembler.add(message, bytes(part.body()))) is not None:
                rows += epoch.table.num_rows
    return rows


async def _pass(folder: Path, rows: int) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    async with open_leader(
        folder, "medusa://bench.example/s", _SCHEMA, SourceConfig(), history_us=10**15, now=0.0
    ) as leader:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_post, leader, rows)
            nursery.start_soon(_move, leader)
            received = await _subscribe(leader.logs.stream)
        assert received == rows, f"{received} of {rows} rows arrived"
    elapsed = time.perf_counter() - began
    size = sum(column.nbytes for column in _columns()) + 8 * _POST_ROWS
    return {
        "rows_per_s": rows / elapsed,
        "mb_per_s": size / _POST_ROWS * rows / elapsed / 1e6,
        "cpu_s": (time.process_time() - cpu) / rows * 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }


if __name__ == "__main__":
    result = trio.run(_pass, Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(msgspec.json.encode(result).decode())
