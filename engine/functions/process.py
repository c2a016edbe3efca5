"""The peer's side of a function's process: it starts the process with the first call, ends it when
a call takes too long, and starts it again with the next call."""

from __future__ import annotations

import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from medusa.engine.functions.allowed import AllowedFunction, Form, entry_point, version_of
from medusa.engine.functions.worker import FAILED, HEAD, LENGTH, READY, SAID, Failure, Start
from medusa.overlay.errors import InternalError, printable

ROWS: Final = 8_192
"""Rows of one request: some hundred microseconds of the simplest function."""

START_S: Final = 60.0
"""How long a process may take to import its code, seconds: a model is loaded there."""

LOOK_S: Final = 0.05
"""Seconds between two checks whether the process has gone on to another row, or has exceeded its
time."""

MAX_RESULT_BYTES: Final = 2**26
"""Bytes of one answer: eight thousand results of 8 KiB."""

_PASSED: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
)
"""Environment variables that a function's process gets."""

_OWN: Final = {
    "PYTHONSAFEPATH": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # the order of a set is the same in each process
    "MALLOC_ARENA_MAX": "2",  # an arena reserves 64 MiB, which would count as taken
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve more than they use
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_NUM_THREADS": "1",
}


class CallError(InternalError, code=None):
    """A function has no results for some rows.

    Attributes:
        row: the number of the row that it failed at; -1: no single one.
    """

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


class FunctionProcess:
    """One function's process. Its methods block; they may be called from many threads."""

    def __init__(self, allowed: AllowedFunction) -> None:
        self._allowed = allowed
        self._calling = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._progress_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._progress_file.truncate(8)
        self._progress = mmap.mmap(self._progress_file.fileno(), 8)
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process's id, if it runs."""
        return None if self._process is None else self._process.pid

    def call(self, columns: pa.RecordBatch) -> tuple[pa.Array, float]:
        """The results over these arguments, and the CPU seconds they took.

        Raises:
            CallError: the function failed, took too long or too much memory, or its process ended.
        """
        with self._calling:
            self._ensure_running()
            kind, body, cpu_s = self._ask(_serialised(columns), self._allowed.time_s)
            if kind == FAILED:
                raise self._failure(body, self._at())
            results = _read(body)
            if results.type != self._allowed.function.result.arrow or len(results) != len(columns):
                self._kill()
                raise CallError(-1, "its process gave no results of that type and number")
            return results, cpu_s

    def close(self) -> None:
        """End the process; calls under way fail, and later ones."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        with self._calling:
            self._kill()
            self._progress.close()
            self._progress_file.close()

    def _ensure_running(self) -> None:
        if self._closed:
            raise CallError(-1, "the peer ends")
        if self._process is not None and self._process.poll() is None:
            return
        self._kill()
        progress = self._progress_file.fileno()
        try:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "medusa.engine.functions.worker", str(progress)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                pass_fds=(progress,),
                start_new_session=True,  # the peer handles a Ctrl-C on the terminal
            )
        except OSError as refused:  # for example, there are too many processes
            raise CallError(-1, f"its process did not start: {refused}") from None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None, "asked for"
            os.set_blocking(pipe.fileno(), False)
        kind, body, _ = self._ask(msgspec.json.encode(_start(self._allowed)), START_S)
        if kind != READY:
            failure = self._failure(body, -1)
            self._kill()
            raise CallError(-1, f"its code cannot be loaded: {failure}")

    def _failure(self, body: bytes, at: int) -> CallError:
        try:
            failure = msgspec.json.decode(body, type=Failure)
        except msgspec.DecodeError:
            self._kill()
            return CallError(at, "its process said nothing that makes sense")
        text = printable(failure.text)[:SAID]
        if text.startswith(("MemoryError", "ArrowMemoryError")):
            self._kill()  # the process has used up its memory limit, so it must end
            text = f"it takes more than {self._allowed.memory_bytes:,} bytes of memory"
        return CallError(failure.row, text)

    def _ask(self, request: bytes, limit_s: float) -> tuple[bytes, bytes, float]:
        """The kind and the body of the answer, and its CPU seconds."""
        process = self._process
        assert process is not None, "it runs"
        assert process.stdin is not None
        assert process.stdout is not None
        self._progress[:] = (0).to_bytes(8, "little")
        patience = _Patience(limit_s, self._at, lambda: self._closed)
        try:
            _write(process.stdin.fileno(), LENGTH.pack(len(request)) + request, patience)
            head = _take(process.stdout.fileno(), HEAD.size, patience)
            kind, cpu_ns, length = HEAD.unpack(head)
            if length > MAX_RESULT_BYTES:
                raise _LostError(f"its results have more than {MAX_RESULT_BYTES:,} bytes")
            return kind, _take(process.stdout.fileno(), length, patience), cpu_ns * 1e-9
        except _LostError as error:
            row = self._at() if self._allowed.form is Form.VALUE else -1
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
            self._kill()
            raise CallError(row, f"{error}{_ended(process)}") from None

    def _at(self) -> int:
        """The number of the row that the process computes now."""
        return int.from_bytes(self._progress[:8], "little", signed=True)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


class _LostError(Exception):
    """The process sends no answer any more; the text says why."""


class _Patience:
    """Waits for a process as long as it advances from row to row.

    Args:
        limit_s: seconds that one row may take. at: returns the number of the row at work. over:
            whether the peer ends.
    """

    def __init__(self, limit_s: float, at: Callable[[], int], over: Callable[[], bool]) -> None:
        self._over = over
        self._limit_s = limit_s
        self._at = at
        self._row = at()
        self._since = time.monotonic()

    def look(self) -> None:
        """Raises: _LostError: a row takes too long, or the peer ends."""
        if self._over():
            raise _LostError("the peer ends")
        row, now = self._at(), time.monotonic()
        if row != self._row:
            self._row, self._since = row, now
        elif now - self._since > self._limit_s:
            raise _LostError(f"it took longer than {self._limit_s:g} s, and was ended")


def _write(pipe: int, data: bytes, patience: _Patience) -> None:
    rest = memoryview(data)
    while rest:
        _, ready, _ = select.select([], [pipe], [], LOOK_S)
        if not ready:
            patience.look()
            continue
        try:
            rest = rest[os.write(pipe, rest) :]
        except BlockingIOError:
            continue
        except OSError:
            raise _LostError("its process ended") from None


def _take(pipe: int, length: int, patience: _Patience) -> bytes:
    parts, missing = [], length
    while missing:
        ready, _, _ = select.select([pipe], [], [], LOOK_S)
        if not ready:
            patience.look()
            continue
        try:
            part = os.read(pipe, min(missing, 2**20))
        except BlockingIOError:
            continue
        except OSError:
            part = b""
        if not part:
            raise _LostError("its process ended")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _ended(process: subprocess.Popen[bytes]) -> str:
    """Say how a process ended by itself."""
    code = process.returncode
    if code is None or code == -signal.SIGKILL:
        return ""
    return f" ({signal.Signals(-code).name})" if code < 0 else f" (with {code})"


def _environment() -> dict[str, str]:
    """The environment variables of a function's process: they have none of the peer's secrets."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    here = str(Path(__file__).parents[3])  # the process runs the same release of Medusa
    paths = [here, *filter(None, [passed.get("PYTHONPATH")])]
    return {**passed, **_OWN, "PYTHONPATH": os.pathsep.join(paths)}


def _start(allowed: AllowedFunction) -> Start:
    code, function = allowed.code, allowed.function
    version = version_of(entry_point(function.source.rpartition(":")[2])) if code.module else ""
    kind = pa.schema([pa.field("result", function.result.arrow)])
    return Start(
        str(code.path),
        code.module,
        code.name,
        function.fingerprint,
        version,
        allowed.form,
        allowed.nulls,
        kind.serialize().to_pybytes(),
        allowed.memory_bytes,
    )


def _serialised(columns: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_batch(columns)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _read(body: bytes) -> pa.Array:
    """The results of an answer. They come from code that is not ours: all of it is checked."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, StopIteration, TypeError) as error:
        raise CallError(
            -1, f"its process gave no results: {printable(str(error))[:SAID]}"
        ) from None
    if batch.num_columns != 1:
        raise CallError(-1, "its process gave no results")
    return batch.column(0)
