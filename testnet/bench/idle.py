"""Measures an idle peer, and the time from there to the first answer of a new query.

* Idle: two peers with the settings of a real one. One has source streams that once had rows, then
  also queries over them. CPU is counted by process. The references are a bare trio process that
  wakes each second, and a Spark session of stock settings that does nothing.
* The first answer: rows are posted at 2,500/s. The clock runs from `query start` to the first row
  at a subscriber. The reference is a new Python process with stock Spark: from its start to the
  result of its first job over as many rows.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import trio

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query, QueryStatus
from medusa.overlay.concurrency import one_error
from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.path import resident_bytes
from medusa.testnet.connections.conn import ARROW, conn_schema, fit
from medusa.testnet.kit.cast import publish, until_status
from medusa.testnet.kit.peers import Federation, Peer, open_federation, participant_name
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

STREAMS: Final = 100
QUERIES: Final = 40
WINDOW_S: Final = 40.0
"""Seconds for which an idle process is watched."""
QUIET_S: Final = 30.0
"""Seconds until a peer is idle: by then it has published 100 new streams and the deletion of
100."""
ROWS: Final = 100
"""Rows of each idle stream."""
POST_ROWS: Final = 250
POST_S: Final = 0.1
POSTED_S: Final = 4.0
"""Seconds of rows that are stored when the first query starts."""
ANSWERS: Final = 7
"""New queries at a peer whose JVM runs."""
SECOND_US: Final = 1_000_000
START: Final = 1_600_000_000.0
"""Stime of the first row, seconds."""

TRIO: Final = """
import trio

async def main():
    while True:
        await trio.sleep(1)

trio.run(main)
"""

SPARK: Final = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").getOrCreate()
spark.read.parquet(sys.argv[1]).filter("dst_port = 80").toArrow()
print("answered", flush=True)
sys.stdin.read()
"""


def measure() -> Iterator[Entry]:
    """Idle CPU, memory, and the times to first answers."""
    bare = _idle_trio()
    stock = _stock_spark()
    with one_error():
        found = trio.run(_measure)
    yield _beside(f"idle peer with {STREAMS} streams", found.streams, "% of a core", 0.5, bare)
    yield entry("memory by stream", round(found.stream_mb, 3), "MB", "<= 0.2")
    yield entry("memory by query, beside Spark", round(found.query_mb, 3), "MB", "<= 0.5")
    name = f"idle peer with {QUERIES} queries and {STREAMS} streams, without its JVM"
    yield _beside(name, found.queries, "% of a core", 0.75, bare)
    yield _beside("idle JVM of that peer", found.jvm, "% of a core", 0.5, stock.idle)
    yield _beside("first answer of a query, without a JVM", found.cold_s, "s", 4.0, stock.first_s)
    yield _beside("first answer of a new query, with a JVM", found.warm_s, "s", 0.5, None)


def _beside(name: str, value: float, unit: str, most: float, reference: float | None) -> Entry:
    """Return a figure that is judged by an absolute goal, and shown with the reference's value."""
    made = entry(name, round(value, 3), unit, f"<= {most:g}")
    return {**made, "reference": None if reference is None else round(reference, 3)}


# -- references -------------------------------------------------------------------------------


def _idle_trio() -> float:
    """% of a core of a trio process that wakes each second."""
    with subprocess.Popen([sys.executable, "-c", TRIO]) as process:
        try:
            time.sleep(1.0)
            before = _cpu_s(process.pid)
            time.sleep(WINDOW_S)
            return _percent(_cpu_s(process.pid) - before)
        finally:
            process.kill()


@dataclass(frozen=True)
class Stock:
    """Stock Spark. first_s: to its first result, seconds. idle: % of a core of its JVM."""

    first_s: float
    idle: float


def _stock_spark() -> Stock:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "rows.parquet")
        pq.write_table(_rows(START, round(POSTED_S / POST_S) * POST_ROWS), path)
        began = time.perf_counter()
        command = [sys.executable, "-c", SPARK, str(path)]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=name,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            first_s = time.perf_counter() - began
            (jvm,) = _jvms(process.pid)
            time.sleep(QUIET_S)
            before = _cpu_s(jvm)
            time.sleep(WINDOW_S)
            return Stock(first_s, _percent(_cpu_s(jvm) - before))


# -- our peers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """The figures of our peers: idle in % of a core, memory in MB, times in seconds."""

    streams: float
    queries: float
    jvm: float
    stream_mb: float
    query_mb: float
    cold_s: float
    warm_s: float


async def _measure() -> Found:
    async with open_federation() as federation:
        federation.config = ""  # a real peer's
        peer = await federation.found(participant_name(0))
        await (await federation.admit(participant_name(1))).ready()
        await federation.together()
        return await _measure_peer(federation, peer)


async def _measure_peer(federation: Federation, peer: Peer) -> Found:
    owner = peer.participant
    await publish(peer, (conn_schema(f"medusa://{owner}/conn"),))
    idle = [f"medusa://{owner}/idle{number}" for number in range(2 * STREAMS)]
    async with open_medusa(peer.home.folder) as client:
        memory = []
        for part in (idle[:STREAMS], idle[STREAMS:]):
            await _make_streams(client, owner, part)
            await trio.sleep(QUIET_S)
            memory.append(resident_bytes(peer.pid))
        for name in idle[STREAMS:]:
            await client.delete_stream(name)
    await trio.sleep(QUIET_S)
    streams, _ = await _idle(peer)
    cold_s, *warm_s = await _first_answers(peer)
    before = resident_bytes(peer.pid)
    await _start_queries(peer, idle[:QUERIES])
    await trio.sleep(QUIET_S)
    grown = resident_bytes(peer.pid) - before
    queries, jvm = await _idle(peer)
    return Found(
        streams=streams,
        queries=queries,
        jvm=jvm,
        stream_mb=(memory[1] - memory[0]) / STREAMS / 2**20,
        query_mb=grown / QUERIES / 2**20,
        cold_s=cold_s,
        warm_s=statistics.median(warm_s),
    )


async def _make_streams(client: AsyncMedusaClient, owner: str, names: list[str]) -> None:
    """Create source streams with some rows each."""
    for name in names:
        schema = f"medusa://{owner}/conn"
        await client.create_stream(StreamDefinition(name, schema, max_ahead_us=None))
        boundary = round((START + 60) * SECOND_US)
        await client.post_event(name, _rows(START, ROWS), boundary=boundary)
    await client.flush()


async def _start_queries(peer: Peer, streams: list[str]) -> None:
    """Start a query over each of these streams, and wait until all have computed."""
    made = [_query(peer, "idle", number, name) for number, name in enumerate(streams)]
    await publish(peer, queries=made)
    outputs = {f"{query.name}/out" for query in made}
    async with open_medusa(peer.home.folder) as client:
        await until_status(
            client,
            lambda seen: (
                sum(
                    stream.name in outputs and stream.boundary > START * SECOND_US
                    for each in seen.peers
                    for stream in each.streams
                )
                == len(outputs)
            ),
        )


def _query(peer: Peer, kind: str, number: int, stream: str) -> Query:
    """A query: by turns a filter and a windowed count."""
    name = f"medusa://{peer.participant}/{kind}-{number}"
    output = f"{name}/out"
    if number % 2 == 0:
        return Query(name, (Filter("web", stream, (output,), ("dst_port = 80",)),))
    count = AggregateCall("count", None, "conns")
    box = Aggregate("count", stream, output, SECOND_US, SECOND_US, ("src_ip",), (count,))
    return Query(name, (box,))


async def _idle(peer: Peer) -> tuple[float, float]:
    """% of a core of an idle peer's Python, and of its JVM."""
    pids = (peer.pid, *_jvms(peer.pid))
    before = [_cpu_s(pid) for pid in pids]
    await trio.sleep(WINDOW_S)
    used = [_percent(_cpu_s(pid) - was) for pid, was in zip(pids, before, strict=True)]
    return used[0], sum(used[1:])


async def _first_answers(peer: Peer) -> list[float]:
    """Seconds from the start of each new query to its first row at a subscriber; the first of them
    starts the JVM."""
    stream = f"medusa://{peer.participant}/busy"
    schema = f"medusa://{peer.participant}/conn"
    await publish(peer, streams=(StreamDefinition(stream, schema, max_ahead_us=None),))
    async with open_medusa(peer.home.folder) as client, trio.open_nursery() as nursery:
        nursery.start_soon(_post, client, stream)
        await trio.sleep(POSTED_S)
        found = []
        for number in range(1 + ANSWERS):
            found.append(await _first_answer(client, _query(peer, "first", number, stream)))
            # so that starts fall on every phase of an epoch
            await trio.sleep(1.0 + number / ANSWERS)
        nursery.cancel_scope.cancel()
    return found


async def _first_answer(client: AsyncMedusaClient, query: Query) -> float:
    await client.create_query(query)
    began = trio.current_time()
    await client.start_query(query.name)
    async for epoch in client.subscribe(f"{query.name}/out"):
        if epoch.table.num_rows:
            break
    answered_s = trio.current_time() - began
    await client.set_query_status(query.name, QueryStatus.STOPPED)
    return answered_s


async def _post(client: AsyncMedusaClient, stream: str) -> None:
    """Post rows of the present, for ever."""
    while True:
        await client.post_event(stream, _rows(time.time(), POST_ROWS))
        await trio.sleep(POST_S)


def _rows(since: float, count: int) -> pa.Table:
    """Connections from some stime on, seconds: as many per second as are posted."""
    step = POST_S / POST_ROWS
    columns = {
        "ts": pa.array([since + number * step for number in range(count)]),
        "src_ip": pa.array([f"10.0.0.{number % 20}" for number in range(count)]),
        "dst_port": pa.array([80 + number % 3 for number in range(count)], pa.int32()),
    }
    return fit(columns, count).cast(ARROW)


def _jvms(pid: int) -> tuple[int, ...]:
    """Process ids of the JVMs below a process."""
    below = psutil.Process(pid).children(recursive=True)
    return tuple(each.pid for each in below if each.name() == "java")


def _cpu_s(pid: int) -> float:
    """CPU seconds of one process, its children not counted."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _percent(cpu_s: float) -> float:
    """% of a core, of CPU seconds in the watched time."""
    return 100 * cpu_s / WINDOW_S
