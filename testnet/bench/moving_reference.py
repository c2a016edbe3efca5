"""The reference for moves, with stock Structured Streaming: stop a windowed query, copy its
checkpoint, start it from the copy in another process.

The setup favours the reference: the new worker's process has a started Spark, the sink drops the
rows, and a batch starts as soon as its file is there. A consumer's arrivals are the commits of
batches.

The module also is the program of those processes,
`python -m medusa.testnet.bench.moving_reference FOLDER NAME`: each line of its standard input has a
checkpoint from which to start the query, or is empty to stop it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import trio

from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.session import Spark
from medusa.overlay.errors import InternalError
from medusa.testnet.bench.minutes import EPOCH_S, MINUTE_S, Act, Minutes, Run, Schedule

PARTS: Final = round(MINUTE_S / EPOCH_S)
"""Files in a minute: one for each epoch."""

_SCHEMA: Final = "time_us BIGINT, src_ip STRING, dst_port INT, bytes BIGINT"
_SQL: Final = (
    "SELECT window(time, '60 seconds') AS w, src_ip, count(*) AS conns, "
    "size(collect_set(dst_port)) AS ports, sum(bytes) AS bytes "
    "FROM minutes GROUP BY window(time, '60 seconds'), src_ip"
)


def measure_reference(minutes: Minutes, moves: int) -> Run:
    """Make `moves` moves, measured by commits of batches; about half a minute each."""
    acts = (Act.WARM_UP, Act.WARM_UP, *(Act.OUT, Act.QUIET) * moves)
    with tempfile.TemporaryDirectory() as name:
        return trio.run(_measure, Path(name), minutes, acts)


class Process:
    """A process with a Spark of its own."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._said = process.stdout

    async def done(self) -> None:
        """Wait for the line that ends the last command."""
        if not await self._said.receive_some():
            raise InternalError("the reference's Spark process has ended")

    async def notify(self, checkpoint: str) -> None:
        """Send a command: start the query from a checkpoint, or stop it ("")."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{checkpoint}\n".encode())
        await self.done()

    async def end(self) -> None:
        """Close the process's input: the process ends, and its JVM with it."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()


@dataclass
class Query:
    """The query, in any of the processes.

    Attributes:
        seen: commit times of its batches, seconds since the epoch.
    """

    folder: Path
    nursery: trio.Nursery
    seen: set[float] = field(default_factory=set)
    moves: int = 0

    async def start(self) -> None:
        """Start the query in a first process."""
        self._now = await self._open()
        await self._now.notify(str(self._checkpoint))

    async def prepare(self) -> None:
        """Start the process for the next move."""
        self._next = await self._open()

    async def move(self) -> None:
        """Move the query to the prepared process."""
        await self._now.notify("")
        self.look()
        before = self._checkpoint
        self.moves += 1
        await trio.to_thread.run_sync(copy_checkpoint, before, self._checkpoint)
        await self._next.notify(str(self._checkpoint))
        await self._now.end()
        self._now = self._next

    def look(self) -> None:
        """Note the commits so far: often enough, because Spark keeps only the last hundred."""
        commits = self._checkpoint.glob("commits/*")
        self.seen |= {path.stat().st_mtime for path in commits if path.name.isdecimal()}

    @property
    def _checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.moves}"

    async def _open(self) -> Process:
        module, name = "medusa.testnet.bench.moving_reference", f"spark-{self.moves}-{time.time()}"
        command = [sys.executable, "-m", module, str(self.folder), name]
        pipes = partial(trio.run_process, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = Process(await self.nursery.start(pipes, command))
        await process.done()
        return process


def copy_checkpoint(before: Path, after: Path) -> None:
    """Copy the committed files: a stopped query's state store still cleans up, and its temporary
    files disappear meanwhile."""
    shutil.copytree(before, after, ignore=shutil.ignore_patterns("*.tmp", "*.tmp.crc"))


async def _measure(folder: Path, minutes: Minutes, acts: Sequence[Act]) -> Run:
    source = folder / "source"
    source.mkdir()
    async with trio.open_nursery() as nursery:
        query = Query(folder, nursery)
        await query.start()
        run = Run(time.time(), query.seen, acts)
        schedule = Schedule(trio.current_time())
        nursery.start_soon(_feed, source, minutes, schedule)
        for minute, act in enumerate(acts):
            if act is Act.OUT:
                await query.prepare()
                await schedule.until_move(minute)
                await query.move()
            await schedule.until_seen(minute)
            query.look()
        nursery.cancel_scope.cancel()
    return run


async def _feed(source: Path, minutes: Minutes, schedule: Schedule) -> None:
    """Write a file each second; each appears complete."""
    for minute in count():
        for number in range(PARTS):
            part = minutes.part(minute, PARTS, number)
            hidden = source / f".{minute:03}-{number:03}"
            await trio.to_thread.run_sync(pq.write_table, part, hidden)
            await schedule.until_part(minute, PARTS, number)
            hidden.rename(source / f"{minute:03}-{number:03}.parquet")


def main(folder: Path, name: str) -> None:
    """Run one of the two processes."""
    spark = Spark(SparkConfig(), folder / name)
    spark.start()
    try:
        _obey(spark, folder / "source")
    finally:
        spark.stop()


def _obey(spark: Spark, source: Path) -> None:
    print("ready", flush=True)
    query: Any = None
    for line in sys.stdin:
        if line.strip():
            query = spark.run(partial(_start, source=source, checkpoint=line.strip()))
        else:
            query.stop()
        print("done", flush=True)


def _start(session: Any, source: Path, checkpoint: str) -> Any:  # noqa: ANN401 (pyspark's)
    stream = session.readStream.schema(_SCHEMA).parquet(f"file://{source}")
    timed = stream.selectExpr("*", "timestamp_micros(time_us) AS time")
    timed.withWatermark("time", "0 seconds").createOrReplaceTempView("minutes")
    writer = session.sql(_SQL).writeStream.format("noop").option("checkpointLocation", checkpoint)
    return writer.start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
