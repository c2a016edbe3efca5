"""The trace of a run: a line for each event, with the virtual time and the peer in columns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from overlay.log import LOGGER
from testnet.virtual.hosts import running_process


class Trace:
    """Lines in the order in which they happened.

    Args:
        elapsed: the virtual time, seconds since the start.
        heard: told of each line.
        folder: removed from texts, because it differs in every run.
    """

    def __init__(
        self, elapsed: Callable[[], float], heard: Callable[[str], None], folder: str
    ) -> None:
        self.lines: list[str] = []
        self._elapsed = elapsed
        self._heard = heard
        self._folder = folder

    def add(self, kind: str, text: str, peer: str = "") -> None:
        """Add a line with the present time."""
        text = text.replace(self._folder, "")
        line = f"{self._elapsed():12.6f}  {peer:<16} {kind:<8} {text}"
        self.lines.append(line)
        self._heard(line)

    @contextmanager
    def hearing_peers(self) -> Iterator[None]:
        """Add a line for every event that a living peer notes."""
        handler, level = _Heard(self), LOGGER.level
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        try:
            yield
        finally:
            LOGGER.setLevel(level)
            LOGGER.removeHandler(handler)


class _Heard(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        process = running_process()
        if process is not None and process.alive:
            self._trace.add(record.levelname.lower(), record.getMessage(), process.name)
