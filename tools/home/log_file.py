"""A peer's log: files of bounded size in `logs/`, one line for each note, its traceback below.

* The log is not written to the terminal: a daemon would block if nobody read its output.
* Lines hold untrusted texts, so no text can begin a new line, and the lines of each kind are
  limited.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias, cast

from medusa.overlay.errors import InvalidInputError, printable
from medusa.overlay.files import SECRET_MODE, storing
from medusa.overlay.log import LEVELS, LOGGER, bound_fields

FORMS: Final = ("console", "json")

FOLDER_MODE: Final = 0o700
"""The mode of `logs/`: a log names queries, streams and their readers."""

MAX_FILE_BYTES: Final = 16 * 2**20
"""Bytes of the file before it is put aside; with `OLD_FILES` some weeks of a healthy peer."""

OLD_FILES: Final = 7
"""Files put aside: medusa.log.1, the newest, to medusa.log.7."""

MAX_TRACEBACK: Final = 16 * 2**10
"""Characters of a traceback; the middle of a longer one is left out."""

MAX_FIELD: Final = 300
"""Characters of a field: somewhat more than the longest name."""

MAX_KINDS: Final = 4096
"""Kinds of lines that are counted, by line of code and participant; the one unused longest is
dropped."""

BURST: Final = 1000
"""Lines of one kind that are written at once: a restarting peer writes one for each of its
queries."""

PER_LINE_S: Final = 10.0
"""Seconds for each further line of a kind after a burst: so another participant can cause at most 3
MB a day."""

_Kind: TypeAlias = tuple[str, int, object]


@dataclass(frozen=True)
class LogConfig:
    """The settings of the log.

    Attributes:
        level: the lowest level that is written: debug, info, warning or error.
        format: console, for people and grep, or json, an object on each line.
    """

    level: str = "info"
    format: str = "console"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("level", self.level, LEVELS),
            ("format", self.format, FORMS),
        ):
            if value not in known:
                raise InvalidInputError(f"log.{name} is one of {', '.join(known)}: {value!r}")


@contextmanager
def open_log(file: Path, config: LogConfig) -> Iterator[Callable[[LogConfig], None]]:
    """Write this process's notes to `file`, until the block ends; also the libraries' notes and
    warnings, from level warning on.

    Yields:
        a function that changes the settings.

    Raises:
        StorageError: the file cannot be written.
    """
    with storing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.parent.chmod(FOLDER_MODE)
        handler = _LogFile(file, _lines(config))
    root = logging.getLogger()
    before = LOGGER.level

    def write_as(config: LogConfig) -> None:
        LOGGER.setLevel(LEVELS[config.level])
        handler.setFormatter(_lines(config))

    write_as(config)
    LOGGER.addHandler(handler)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield write_as
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
        handler.close()


def _lines(config: LogConfig) -> logging.Formatter:
    return JsonLines() if config.format == "json" else ConsoleLines()


class ConsoleLines(logging.Formatter):
    """Time, level, fields, text: the text, which may be untrusted, comes last. A traceback is
    indented."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in _fields_of(record).items())
        line = f"{_time_of(record)} {record.levelname:<7} [{fields}] {_text_of(record)}"
        return "\n".join((line, *(f"    {each}" for each in _traceback_of(record))))


class JsonLines(logging.Formatter):
    """One JSON object, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "text": _text_of(record),
            "code": f"{record.module}:{record.lineno}",
            **_fields_of(record),
        }
        if told := _traceback_of(record):
            line["traceback"] = "\n".join(told)
        return json.dumps(line)


def _time_of(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text_of(record: logging.LogRecord) -> str:
    return printable(record.getMessage()[:MAX_TRACEBACK])


def _fields_of(record: logging.LogRecord) -> dict[str, str | int]:
    """The fields of a line of ours; a library's line has the context's fields and its logger's
    name."""
    library = "" if record.name == LOGGER.name else record.name
    fields = getattr(record, "fields", {**bound_fields(), "library": library})
    return {
        name: value if isinstance(value, int) else printable(str(value)[:MAX_FIELD])
        for name, value in cast("Mapping[str, object]", fields).items()
        if value != ""
    }


def _quoted(value: str | int) -> str:
    text = str(value)
    return json.dumps(text) if set(text) & set(' "=[]') else text


def _traceback_of(record: logging.LogRecord) -> list[str]:
    if not record.exc_info or record.exc_info[1] is None:
        return []
    told = "".join(traceback.format_exception(record.exc_info[1]))
    if len(told) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        told = f"{told[:half]}\n... {len(told) - MAX_TRACEBACK} characters ...\n{told[-half:]}"
    return [printable(line) for line in told.splitlines()]


@dataclass(slots=True)
class _Count:
    """left: lines that may be written now. more: lines left out since the last one."""

    left: float
    at: float
    more: int = 0


@dataclass
class FloodGate:
    """Limits the lines of each kind: `BURST`, then one in `PER_LINE_S`; the others are counted. A
    kind is a line of code and the participant at the other end, so one participant's lines do not
    suppress another's."""

    _counts: OrderedDict[_Kind, _Count] = field(default_factory=OrderedDict)

    def admit(self, kind: _Kind, now: float) -> int | None:
        """The number of lines of that kind left out since the last one; None: leave this one out
        too.

        Args:
            now: seconds, on a steady clock.
        """
        count = self._counts.setdefault(kind, _Count(BURST, now))
        self._counts.move_to_end(kind)
        if len(self._counts) > MAX_KINDS:
            self._counts.popitem(last=False)
        count.left = min(BURST, count.left + (now - count.at) / PER_LINE_S)
        count.at = now
        if count.left < 1:
            count.more += 1
            return None
        count.left -= 1
        more, count.more = count.more, 0
        return more

    def left_out(self) -> int:
        """Lines of any kind left out that no line has reported yet."""
        return sum(count.more for count in self._counts.values())


class _LogFile(RotatingFileHandler):
    """The log file, readable by its owner alone. If the disk refuses it, the process continues; a
    later line has the number of lost ones."""

    def __init__(
        self, file: Path, lines: logging.Formatter, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(file, maxBytes=MAX_FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
        self.setFormatter(lines)
        self._clock = clock
        self._gate = FloodGate()
        self._lost = 0

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, SECRET_MODE)
        os.fchmod(descriptor, SECRET_MODE)
        return os.fdopen(descriptor, "a", encoding=self.encoding)

    def emit(self, record: logging.LogRecord) -> None:
        participant = getattr(record, "fields", bound_fields()).get("participant")
        kind = (record.pathname, record.lineno, participant)
        more = self._gate.admit(kind, self._clock())
        if more is None:
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            super().emit(_line_of_our_own(f"{lost} lines before this one could not be written"))
        super().emit(record)
        if more:
            super().emit(_line_of_our_own(f"and {more} more like it, since the last of its kind"))

    def handleError(self, _: logging.LogRecord) -> None:
        self._lost += 1

    def close(self) -> None:
        if self.stream is not None and (more := self._gate.left_out()):
            super().emit(_line_of_our_own(f"{more} lines like others were left out, and not told"))
        super().close()


def _line_of_our_own(text: str) -> logging.LogRecord:
    return LOGGER.makeRecord(LOGGER.name, logging.WARNING, __file__, 0, text, (), None)
