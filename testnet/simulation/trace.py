"""What a run prints: one line an event, with the virtual time and who it concerns in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from overlay.events import Events, Level
from testnet.simulation.hosts import running_process


class Trace:
    """Lines in the order in which they happened.

    Args:
        elapsed: the virtual time, seconds since the start.
        heard: told of each line.
        folder: left out of texts: it is another one in every run.
    """

    def __init__(
        self, elapsed: Callable[[], float], heard: Callable[[str], None], folder: str
    ) -> None:
        self.lines: list[str] = []
        self._elapsed = elapsed
        self._heard = heard
        self._folder = folder

    def add(self, kind: str, text: str, peer: str = "") -> None:
        """A line of now."""
        text = text.replace(self._folder, "")
        line = f"{self._elapsed():12.6f}  {peer:<16} {kind:<8} {text}"
        self.lines.append(line)
        self._heard(line)

    @contextmanager
    def hearing_peers(self) -> Iterator[None]:
        """Every event that a living peer notes is a line, too."""
        real = Events.note

        def note(events: Events, level: Level, text: str) -> None:
            process = running_process()
            if process is not None and process.alive:
                self.add(level, text, process.name)
            real(events, level, text)

        with mock.patch.object(Events, "note", note):
            yield
