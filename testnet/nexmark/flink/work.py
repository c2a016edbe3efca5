"""The process with Flink: its orders, its reports, and its end when it hangs."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Final, TypeVar

import msgspec
import trio

from medusa.overlay.errors import UnavailableError

T = TypeVar("T")

JAVA_OPTIONS: Final = "JAVA_TOOL_OPTIONS"
"""The variable whose options every Java takes."""

LONGEST_LINE: Final = 1 << 16
"""Most bytes of a report."""


@dataclass(frozen=True)
class Limits:
    """Limits of Flink's time, seconds. Attributes: start: the limit for starting Java and creating
    the tables. query: the limit for each of the two runs of a query; after that its job is
    cancelled. grace: the limit for the steps around the runs; after that the process is ended.
    """

    start: float = 180.0
    query: float = 300.0
    grace: float = 60.0


class Text(msgspec.Struct, frozen=True):
    """A query. text: its text in SQL. written: the sink of the run whose answer is compared."""

    text: str
    written: str


class Work(msgspec.Struct, frozen=True):
    """The work of one process.

    Attributes:
        cores: the number of tasks that run at a time.
        tables: the statements that create the tables. dropped: the sink of the run whose time is
        measured.
        limit_s: seconds for each run of a query.
    """

    settings: dict[str, str]
    cores: int
    tables: list[str]
    queries: dict[str, Text]
    dropped: str
    limit_s: float


class Started(msgspec.Struct, frozen=True):
    """The first report. start_s: seconds until the process was ready."""

    start_s: float


class Ran(msgspec.Struct, frozen=True):
    """A query's report.

    Attributes:
        seconds: the time from its submission to the end of its job.
        job_s: seconds in which the job ran, by Flink's own count.
        refused: why Flink refuses the query. failed: why its run ended without an answer.
    """

    query: str
    seconds: float = 0.0
    job_s: float = 0.0
    refused: str = ""
    failed: str = ""


async def run_work(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: Path,
    work: Work,
    *,
    say: Callable[[str], None],
    limits: Limits,
) -> list[Ran]:
    """Run the queries, in order. When one hangs or ends its process, the next ones get another.

    Args:
        command: the program; it gets the folder as its last argument.
        folder: the folder for the work, the log, and temporary files, which a killed process
            leaves. say: called with the name of the next query.

    Raises:
        UnavailableError: the program does not start.
    """
    done: list[Ran] = []
    around = _keeping_in(folder, environment)
    while waiting := dict(list(work.queries.items())[len(done) :]):
        left = msgspec.structs.replace(work, queries=waiting)
        (folder / "work.json").write_bytes(msgspec.json.encode(left))
        async with _open_program([*command, folder], around, folder / "log") as program:
            await program.report(Started, limits.start + limits.query)
            for query in waiting:
                say(query)
                try:
                    ran = await program.report(Ran, 2 * limits.query + limits.grace)
                except UnavailableError as error:
                    done.append(Ran(query, failed=str(error)))
                    break
                done.append(msgspec.structs.replace(ran, query=query))
    return done


def _keeping_in(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables with which Python and Java put temporary files into a folder."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    java = f"{environment.get(JAVA_OPTIONS, '')} -Djava.io.tmpdir='{temporary}'".strip()
    return {**environment, "TMPDIR": str(temporary), JAVA_OPTIONS: java}


class _Program:
    """A running program, which reports in lines of JSON.

    Args: log: the file of its errors.
    """

    def __init__(self, process: trio.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._given = b""

    async def report(self, kind: type[T], limit_s: float) -> T:
        """The next report.

        Raises:
            UnavailableError: no report came in time, the program ended, or it sent something else.
        """
        with trio.move_on_after(limit_s) as limit:
            line = await self._line()
        if limit.cancelled_caught:
            raise UnavailableError(f"no answer within {limit_s:g} s: its process was ended")
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            raise UnavailableError(f"its process said {line[:80]!r}: {error}") from None

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._given:
            more = await self._process.stdout.receive_some()
            if not more or len(self._given) > LONGEST_LINE:
                raise UnavailableError(f"its process ended: {self._last_words()}")
            self._given += more
        line, _, self._given = self._given.partition(b"\n")
        return line

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip() and not line.startswith("\tat ")]
        return said[-1][:200] if said else "it said nothing"


@asynccontextmanager
async def _open_program(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path
) -> AsyncIterator[_Program]:
    """Start a program as the first of a group of processes; in the end the group is killed."""
    with log.open("wb") as errors:
        process = await trio.lowlevel.open_process(
            [str(each) for each in command],
            stdout=PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    try:
        yield _Program(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Flink's JVM is in the group
        with trio.CancelScope(shield=True):
            await process.wait()
