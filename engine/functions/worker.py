"""The process of one function: `python -m medusa.engine.functions.worker`.

It reads columns from its standard input, and writes the column of results. It has its own limit of
memory; the peer ends it when a call takes too long. The function's standard output is /dev/null.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import mmap
import os
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, BinaryIO, Final

import msgspec
import psutil
import pyarrow as pa

from medusa.engine.functions.code import digest, read_code

HEAD: Final = struct.Struct("<cQQ")
"""The head of an answer: kind, CPU nanoseconds, bytes that follow."""

LENGTH: Final = struct.Struct("<Q")
"""The head of a request: bytes that follow."""

READY: Final = b"S"
RESULTS: Final = b"R"
FAILED: Final = b"E"

SPARE_BYTES: Final = 2**26
"""Memory beyond the limit, in which the process reports that it passed the limit."""

ORPHAN_S: Final = 1.0
"""Seconds between two checks whether the peer still runs."""

SAID: Final = 500
"""Most characters of an error."""


class Start(msgspec.Struct, frozen=True):
    """The function that the process runs, and its limits.

    Attributes:
        path, module, name: of the code; see `medusa.engine.functions.allowed.Code`.
        fingerprint, version: what the code must have; the package's name and version.
        form: value, arrow or pandas. nulls: for each argument, whether it takes a null one.
        result: the type of results, as one field of Arrow's schema; serialised.
        memory_bytes: beyond what the process has at its start.
    """

    path: str
    module: str
    name: str
    fingerprint: str
    version: str
    form: str
    nulls: tuple[bool, ...]
    result: bytes
    memory_bytes: int


class Failure(msgspec.Struct, frozen=True):
    """Why there are no results.

    Attributes:
        row: the tuple's number among those of the request; -1: no single one.
    """

    row: int
    text: str


def main() -> None:
    """Serve until the standard input ends."""
    progress_fd = int(sys.argv[1])
    progress = memoryview(mmap.mmap(progress_fd, 8)).cast("q")
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # the function must not read or write our pipes
        os.dup2(nothing, number)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    start = msgspec.json.decode(_request(source), type=Start)
    kind = pa.ipc.read_schema(pa.py_buffer(start.result)).field(0).type
    try:
        _warm(kind, start.form)
        _limit_memory(start.memory_bytes)
        function = _load(start)
    except BaseException as error:  # noqa: BLE001 - whatever the file does as it is loaded
        _answer(sink, FAILED, msgspec.json.encode(Failure(-1, _in_words(error))))
        return
    call = _Caller(function, start, kind, progress)
    _answer(sink, READY, b"")
    while True:
        batch = _read(_request(source))
        try:
            results = _serialised(call.results(batch.columns, batch.num_rows))
        except _RowError as error:
            _spare_memory(error.error)
            _answer(sink, FAILED, msgspec.json.encode(Failure(error.row, _in_words(error.error))))
        else:
            _answer(sink, RESULTS, results)


class _RowError(Exception):
    """A call that failed, and the number of its row."""

    def __init__(self, row: int, error: BaseException) -> None:
        super().__init__()
        self.row = row
        self.error = error


class _Caller:
    """Calls a function over the columns of its arguments.

    Args:
        kind: the kind of the results. progress: shared with the peer: the number of the row at
            work.
    """

    def __init__(
        self, function: Callable[..., Any], start: Start, kind: pa.DataType, progress: memoryview
    ) -> None:
        self._function = function
        self._strict = [place for place, takes in enumerate(start.nulls) if not takes]
        self._form = start.form
        self._kind = kind
        self._progress = progress

    def results(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """The column of results. Raises: _RowError."""
        if self._form == "value":
            return self._of_values(columns)
        self._progress[0] = -1
        try:
            return self._of_columns(columns, rows)
        except BaseException as error:  # noqa: BLE001 - whatever the function raises
            raise self._first_failing(columns, rows, error) from None

    def _of_values(self, columns: Sequence[pa.Array]) -> pa.Array:
        function, strict, progress = self._function, self._strict, self._progress
        number = 0
        made: list[Any] = []
        try:
            lists = [column.to_pylist() for column in columns]
            for number, values in enumerate(zip(*lists, strict=True)):
                progress[0] = number
                skipped = any(values[place] is None for place in strict)
                made.append(None if skipped else function(*values))
        except BaseException as error:  # noqa: BLE001 - whatever the function raises
            raise _RowError(number, error) from None
        try:
            return pa.array(made, self._kind)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError, MemoryError) as error:
            raise self._first_wrong(made, error) from None

    def _first_wrong(self, made: Sequence[Any], error: BaseException) -> _RowError:
        """The first result that is not of the type."""
        for number, value in enumerate(made):
            try:
                pa.array([value], self._kind)
            except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as wrong:
                text = f"it gave {value!r:.80}, which is no {self._kind}"
                return _RowError(number, TypeError(f"{text} ({wrong})"))
        return _RowError(-1, error)

    def _of_columns(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        if self._form == "pandas":
            series = self._function(*(column.to_pandas() for column in columns))
            made = pa.Array.from_pandas(series, type=self._kind)
        else:
            made = self._function(*columns)
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if not isinstance(made, pa.Array):
            raise TypeError(f"it gave a {type(made).__name__}, and not an array")
        if len(made) != rows:
            raise TypeError(f"it gave {len(made)} results for {rows} tuples")
        return made.cast(self._kind)

    def _first_failing(
        self, columns: Sequence[pa.Array], rows: int, error: BaseException
    ) -> _RowError:
        """The first row that fails: a call over the rows before it succeeds."""
        passes, fails = 0, rows
        while fails - passes > 1:
            middle = (passes + fails) // 2
            try:
                self._of_columns([column.slice(0, middle) for column in columns], middle)
                passes = middle
            except BaseException as other:  # noqa: BLE001 - as above
                fails, error = middle, other
        return _RowError(fails - 1, error)


class _Loader(SourceFileLoader):
    """Loads a file from the bytes that were compared with the fingerprint."""

    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """The compiled text; files of compiled code are not read."""
        return self.source_to_code(self._text, self.get_filename(fullname))


def _load(start: Start) -> Callable[..., Any]:
    text = read_code(Path(start.path))
    if digest(text, start.version) != start.fingerprint:
        raise ImportError(f"{start.path} has changed since the peer read it")
    if start.module:
        module = importlib.import_module(start.module)
    else:
        loader = _Loader("user_functions", start.path, text)
        spec = importlib.util.spec_from_loader("user_functions", loader)
        assert spec is not None, "of a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules["user_functions"] = module
        loader.exec_module(module)
    function = getattr(module, start.name)
    if not callable(function):
        raise TypeError(f"{start.name} is no function")
    return function  # type: ignore[no-any-return]


def _warm(kind: pa.DataType, form: str) -> None:
    """Load the modules that the first call needs besides the function, so that loading does not
    count as the function's time."""
    column = pa.array([None], kind)
    column.to_pylist()
    _read(_serialised(column))
    if form == "pandas":
        column.to_pandas()


def _limit_memory(memory_bytes: int) -> None:
    """Let this process take that much more memory than it has."""
    most = _taken() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most + SPARE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _taken() -> int:
    """The bytes of this process's address space."""
    return int(psutil.Process().memory_info().vms)


def _spare_memory(error: BaseException) -> None:
    if isinstance(error, MemoryError):
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _in_words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of the function's own kind
        text = ""
    return f"{type(error).__name__}: {text}"[:SAID] if text else type(error).__name__


def _read(body: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_next_batch()


def _serialised(results: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([results], names=["result"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _request(source: BinaryIO) -> bytes:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        os._exit(0)  # the peer has ended, or sends no further request
    (length,) = LENGTH.unpack(head)
    return source.read(length)


_began: Final = [0]


def _answer(sink: BinaryIO, kind: bytes, body: bytes) -> None:
    used = time.process_time_ns()
    spent, _began[0] = used - _began[0], used
    with contextlib.suppress(BrokenPipeError):
        sink.write(HEAD.pack(kind, spent, len(body)) + body)
        sink.flush()


def _end_with(parent: int) -> None:
    """End when the peer does, also in the middle of a call."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_S)
    os._exit(0)


if __name__ == "__main__":
    main()
