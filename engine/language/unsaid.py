"""The bounds that hold where a text names none, and that may change its answers: each is told once,
in the remarks of the document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from engine.objects.definitions import DEFAULT_HISTORY_US

_LATENESS: Final = "lateness"
_HISTORY: Final = "history"

BOUNDS_OF_STREAMS: Final = (_LATENESS, _HISTORY)
"""The options of a source stream without which a bound of ours holds."""


class Unsaid:
    """What one text leaves unsaid."""

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}
        self._streams: dict[str, list[str]] = {each: [] for each in BOUNDS_OF_STREAMS}

    def sessions(self, stream: str, longest_us: int) -> None:
        """Sessions of a stream last no longer than this."""
        self._sessions[stream] = longest_us

    def stream(self, name: str, given: Iterable[str]) -> None:
        """A source stream has these options."""
        said = set(given)
        for option, names in self._streams.items():
            if option not in said and name not in names:
                names.append(name)

    def remarks(self) -> tuple[str, ...]:
        """A sentence for each bound."""
        return tuple(self._told())

    def _told(self) -> Iterator[str]:
        for stream, longest in self._sessions.items():
            yield (
                f"a session of {stream} lasts {_span(longest)} at most, then another one begins: "
                "`within` (in XML: `longest`) says another length"
            )
        late, short = (self._streams[each] for each in (_LATENESS, _HISTORY))
        if late:
            yield (
                f"rows of {_listed(late)} that are later than the slack are not counted, and go to "
                "NAME/late: `lateness` says how much later they may be"
            )
        if short:
            yield (
                f"{_span(DEFAULT_HISTORY_US)} of {_listed(short)} is kept for queries that are "
                "created later: `history` says another length"
            )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _span(microseconds: int) -> str:
    seconds = microseconds / 1e6
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            number = int(seconds // size)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{seconds:g} s"
