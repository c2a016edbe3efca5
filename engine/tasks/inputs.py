"""The logs that a task reads: its waits for them, its holds, and the rows that it takes for an
epoch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.shared.step import Interval
from medusa.engine.streams.log.epochs import JOB_BYTES, EpochDamagedError
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import needed_after, read_from, whole_after
from medusa.overlay.errors import MedusaError, NotRetainedError


class TaskInputs:
    """The inputs of one task, as seen from the boundary of its output.

    Args:
        logs: the logs of the inputs by stream; the task only holds and reads them, and others
            keep them.
        output: the log of the output, whose boundary is the task's whole position.

    Attributes:
        task: the present form of the task.
    """

    def __init__(self, task: Task, logs: Mapping[str, StreamLog], output: StreamLog) -> None:
        self.task = task
        self.logs = logs
        self.output = output

    @property
    def boundary(self) -> int:
        """The boundary that all inputs have, microseconds; at most the task's end."""
        return min(self.task.until, *(log.boundary for log in self.logs.values()))

    @property
    def oldest(self) -> int:
        """The boundary after which all inputs are kept, and are to be read."""
        return max(self.task.after, *(log.oldest for log in self.logs.values()))

    @property
    def first_stime(self) -> int | None:
        """The least stime of all inputs; None without rows."""
        known = (log.files.first_stime for log in self.logs.values())
        return min((stime for stime in known if stime is not None), default=None)

    @property
    def bytes(self) -> int:
        """The bytes of their logs, on disk."""
        return sum(log.files.bytes for log in self.logs.values())

    def reach(self, after: int, rows: int) -> int:
        """The smallest boundary of the inputs, within one job's limits and the task's end."""
        rows, size = max(1, rows // len(self.logs)), JOB_BYTES // len(self.logs)
        reach = min(log.files.reach(after, rows, size) for log in self.logs.values())
        return min(reach, self.task.until)

    async def wait(self, boundary: int) -> None:
        """Wait until all inputs have that boundary or the task's end; ClosedError if one closes."""
        for log in self.logs.values():
            await log.wait_beyond(min(boundary, self.task.until) - 1)

    async def wait_for_more(self) -> None:
        """Wait until all inputs are beyond the output's boundary (SUnion), or have reached the
        task's end."""
        for log in self.logs.values():
            await log.wait_beyond(min(self.output.boundary, self.task.until - 1))

    def hold(self) -> None:
        """Keep the part of the inputs that the next epoch may need."""
        for name, log in self.logs.items():
            log.retention.hold(self._consumer, self.needed(name))

    def needed(self, stream: str) -> int:
        """The boundary after which the next epoch may need an input."""
        return max(needed_after(self.task, self.output.boundary, stream), self.task.after)

    def release(self) -> None:
        """Release the inputs."""
        for log in self.logs.values():
            log.retention.release(self._consumer)

    @property
    def _consumer(self) -> Hold:
        return Hold("task", self.task.name)

    def count(self, after: int, upto: int) -> int:
        """The number of input tuples with after < stime <= upto that the task reads.

        Raises:
            NotRetainedError: some of these tuples are not here any more, or not yet.
        """
        return sum(_count(self.task, log, after, upto) for log in self.logs.values())

    def count_kept(self, after: int, upto: int) -> int:
        """Count as `count` does, but only tuples that this peer has."""
        return sum(log.reader.count(max(after, log.start), upto) for log in self.logs.values())

    def files(self, pins: ExitStack, after: int, interval: Interval) -> dict[str, list[Path]]:
        """The files with the tuples that the output after a boundary needs; they stay while `pins`
        is open."""
        files: dict[str, list[Path]] = {}
        for name, log in self.logs.items():
            since = max(read_from(self.task, name, after, interval), log.start)
            files[name] = pins.enter_context(log.reader.pinned(since, interval.hi))
        if self.task.recalls:
            own = self.output.reader.pinned(self.output.start, after)
            files[self.task.output] = pins.enter_context(own)
        return files

    def check_kept(self, after: int, upto: int) -> None:
        """Check that the inputs of the output over (after, upto] are here.

        Raises:
            NotRetainedError: some of the inputs are not kept any more, or are not here yet.
        """
        gone = any(
            log.start > needed_after(self.task, after, name) for name, log in self.logs.items()
        )
        if gone or self.boundary < min(upto, self.task.until):
            raise NotRetainedError(f"the inputs of {self.task.name} are not kept for {after}")

    @property
    def begins_whole(self) -> int | None:
        """If the inputs lack tuples for the next output: the boundary from which on the output can
        be computed again; else None."""
        begins = [
            log.start
            for name, log in self.logs.items()
            if name not in self.task.tables and log.start > self.needed(name) > BEGINNING
        ]
        return whole_after(self.task, max(begins)) if begins else None

    def find_damaged(self, error: EpochDamagedError) -> None:
        """Note that a job has met that damaged file."""
        for log in self.logs.values():
            log.damage.find(error.path)

    async def verify(self) -> None:
        """Read all tuples that the next epoch may need, to find damage."""
        needed = needed_after(self.task, self.output.boundary)
        for log in self.logs.values():
            with suppress(MedusaError):  # the next reader reports a failing disk
                await log.damage.verify(max(needed, log.start), END)


def _count(task: Task, log: StreamLog, after: int, upto: int) -> int:
    """The number of tuples of one input with after < stime <= upto that the task reads.

    Raises:
        NotRetainedError: the log has dropped some, or does not have all yet. A worker is paid by
            this number, so missing tuples must not count as none.
    """
    after, upto = max(after, task.after), min(upto, task.until)
    if after >= upto:
        return 0
    if log.boundary < upto:
        raise NotRetainedError(f"the stream is here up to {log.boundary}, not up to {upto}")
    return log.reader.count(log.start if after == BEGINNING else after, upto)
