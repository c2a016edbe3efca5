"""Rows from a client through two peers to a client, against one plain TLS connection.

* The federation: a client posts at one peer (journal, log), another peer subscribes there and
  serves a second client: three TLS hops.
* The reference: the same Arrow batches, encoded and sent by one process, received and decoded by
  another, over one `trio.SSLStream`.
* Beside it: the same through two processes that do nothing but pass the bytes on, three plain TLS
  hops. The difference to the path is what journal, log and multiplexing cost.
* Also measured: the memory of the peers' Python processes meanwhile, and the time from a demo's
  start to its first answer.
"""

from __future__ import annotations

import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import trio

from medusa.engine.streams.ipc import decode
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import InternalError
from medusa.overlay.identity import Identity, Root
from medusa.testnet.bench import Entry, entry
from medusa.testnet.connections.conn import ARROW, conn_schema
from medusa.testnet.connections.query import source_stream
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.run import Options, run_intrusion
from medusa.testnet.kit.cast import publish
from medusa.testnet.kit.peers import Federation, Peer, open_federation, participant_name
from medusa.tools.client.async_client import open_medusa

ROWS: Final = 10_000_000
"""Rows that pass through the peers."""
PLAIN_ROWS: Final = 6_000_000
"""Rows over the plain connections, before the path and again after it."""
HOPS: Final = 3
"""TLS connections between the two clients."""
SEGMENT_ROWS: Final = 1_000_000
"""Rows in a segment; the reported rate is that of the median segment."""
MEMORY_GOAL_MB: Final = 300
RATE_GOAL: Final = 0.35


@dataclass
class Meter:
    """Rates of segments of rows, and memory at their ends."""

    clock: Callable[[], float] = time.perf_counter
    rows: int = 0
    rates: list[float] = field(default_factory=list)
    _from: int = 0

    def __post_init__(self) -> None:
        self._began = self.clock()

    def add(self, rows: int) -> bool:
        """Whether a segment ended with these rows."""
        self.rows += rows
        if self.rows - self._from < SEGMENT_ROWS:
            return False
        now = self.clock()
        self.rates.append((self.rows - self._from) / (now - self._began))
        self._began, self._from = now, self.rows
        return True

    @property
    def steady(self) -> list[float]:
        """Rows per second of the segments, without the first, which includes the start."""
        return self.rates[1:]

    @property
    def rate(self) -> float:
        """The median of the steady rates."""
        return statistics.median(self.steady)


def measure() -> Iterator[Entry]:
    """Rates, memory and the time to the first answer."""
    with one_error():
        rates = trio.run(measure_plain, PLAIN_ROWS)
        hop_rates = trio.run(measure_plain, PLAIN_ROWS, HOPS)
        path, memory = trio.run(measure_path, ROWS)
        # before and after, so that a machine that slows down favours neither
        hop_rates += trio.run(measure_plain, PLAIN_ROWS, HOPS)
        rates += trio.run(measure_plain, PLAIN_ROWS)
    plain, hops = statistics.median(rates), statistics.median(hop_rates)
    name = "client - peer - peer - client"
    moved = entry(name, round(path), "rows/s", f">= {RATE_GOAL}", round(plain))
    yield {**moved, "ratio": round(path / plain, 3)}
    name = "client - peer - peer - client, of three plain TLS hops"
    moved = entry(name, round(path), "rows/s", reference=round(hops))
    yield {**moved, "ratio": round(path / hops, 3)}
    name = "memory of a peer's Python while 10 million rows pass"
    yield entry(name, round(max(memory) / 2**20), "MB", f"< {MEMORY_GOAL_MB}")
    # growth: memory at the end against memory after a fifth of the rows
    last, early = memory[-1], memory[len(memory) // 5]
    name = "memory growth over the last 8 million rows"
    grown = entry(name, round(last / 2**20), "MB", reference=round(early / 2**20))
    yield {**grown, "ratio": round(last / early, 3)}
    yield _measure_demo()


def _measure_demo() -> Entry:
    """The time from the start of `make demo`'s command to the first row at the subscriber."""
    with tempfile.TemporaryDirectory() as out, one_error():
        result = trio.run(run_intrusion, Options(out=Path(out)), Board())
    return entry("demo: start to first answer", result.first_answer_seconds, "s")


async def measure_path(rows: int) -> tuple[float, list[int]]:
    """Rows per second through two peers; bytes of the larger peer at each segment's end."""
    meter, memory = Meter(), []
    async with open_federation() as federation:
        near, far = await _two_peers(federation)
        stream = source_stream(near.participant).name
        async with open_medusa(far.home.folder) as subscriber, sending("post", near, stream, rows):
            async for epoch in subscriber.subscribe(stream):
                ended = meter.add(epoch.table.num_rows)
                memory += [max(map(resident_bytes, (near.pid, far.pid)))] if ended else []
    if meter.rows != rows:
        raise InternalError(f"{meter.rows} of {rows} rows arrived")
    return meter.rate, memory


async def _two_peers(federation: Federation) -> tuple[Peer, Peer]:
    near = await federation.found(participant_name(0))
    far = await federation.admit(participant_name(1))
    await far.ready()
    stream = source_stream(near.participant)
    await publish(near, (conn_schema(stream.schema),), (stream,))
    return near, far


@asynccontextmanager
async def sending(how: str, where: Peer | int, what: str, rows: int) -> AsyncIterator[None]:
    """Run the sending end in its own process during the block."""
    place = str(where.home.folder) if isinstance(where, Peer) else str(where)
    command = [sys.executable, "-m", "medusa.testnet.bench.sender", how, place, what, str(rows)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.run_process, command))
        yield


async def measure_plain(rows: int, hops: int = 1) -> list[float]:
    """Rows per second over plain TLS connections, process to process, segment by segment.

    Args:
        hops: connections, one after the other; between two of them a process passes bytes on.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Identity.issue(Root.create(participant_name(0), time.time()), time.time()).save(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "peer.crt", folder / "peer.key")
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        async with listener, AsyncExitStack() as relays:
            for _ in range(hops - 1):
                port = await relays.enter_async_context(_relaying(port, folder))
            async with sending("tls", port, str(folder / "root.crt"), rows):
                stream = trio.SSLStream(await listener.accept(), context, server_side=True)
                async with stream:
                    meter = await _receive(stream)
    if meter.rows != rows:
        raise InternalError(f"{meter.rows} of {rows} rows arrived")
    return meter.steady


@asynccontextmanager
async def _relaying(port: int, folder: Path) -> AsyncIterator[int]:
    """Pass bytes on to that port in a process of its own during the block; gives its port."""
    command = [sys.executable, "-m", "medusa.testnet.bench.sender", "relay", str(port), str(folder)]
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, command, stdout=subprocess.PIPE)
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        yield int(await process.stdout.receive_some())


async def _receive(stream: trio.SSLStream[trio.SocketStream]) -> Meter:
    meter, pending = Meter(), bytearray()
    while piece := await stream.receive_some():
        pending += piece
        while len(pending) >= 4 and len(pending) >= 4 + (
            size := int.from_bytes(pending[:4], "big")
        ):
            meter.add(decode(bytes(memoryview(pending)[4 : 4 + size]), ARROW).num_rows)
            del pending[: 4 + size]
    return meter


def resident_bytes(pid: int) -> int:
    """Resident memory of one process, its children not counted."""
    return int(psutil.Process(pid).memory_info().rss)
