"""Default bounds that change the answers of a text which names none: the remarks of the document
name each once."""

from __future__ import annotations


class Unsaid:
    """The defaults that hold because a text does not mention them.

    Only bounds that change answers are noted. Lateness and retention change none silently: late
    rows are counted wherever they arrive, and a reader of dropped tuples gets an error.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}

    def sessions(self, stream: str, longest_us: int) -> None:
        """Note that sessions of a stream last no longer than this."""
        self._sessions[stream] = longest_us

    def remarks(self) -> tuple[str, ...]:
        """A sentence for each bound."""
        return tuple(
            f"a session of {stream} lasts {span_text(longest)} at most, then another one begins: "
            "`within` (in XML: `longest`) says another length"
            for stream, longest in self._sessions.items()
        )


def span_text(microseconds: int) -> str:
    """A length of time in words."""
    seconds = microseconds / 1e6
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            number = int(seconds // size)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{seconds:g} s"
