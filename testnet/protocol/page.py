"""A growing page of Markdown: headings, prose, tables, and messages with their fields."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from medusa.testnet.protocol.words import describe, inner

COLUMNS: Final = 100

NAMES: Final = {
    ("medusa.overlay.datagrams", "_Body"): "Datagram",
    ("medusa.overlay.peers", "_Body"): "PeerRecord",
}
"""Names of messages whose types are private to a module, by module and type."""


@dataclass
class Page:
    """The page. names: the page's name of each message, for headings and links."""

    names: Mapping[type[Struct], str]

    def __post_init__(self) -> None:
        self._lines: list[str] = []
        self._told: set[type[Struct]] = set()

    @property
    def text(self) -> str:
        """The Markdown so far."""
        return "\n".join(self._lines).rstrip() + "\n"

    def heading(self, level: int, text: str) -> None:
        self._lines += ["#" * level + " " + text, ""]

    def prose(self, text: str) -> None:
        """Paragraphs and lists, wrapped."""
        for paragraph in text.split("\n\n"):
            items = paragraph.split("\n* ")
            for number, item in enumerate(items):
                mark = "* " if number or item.startswith("* ") else ""
                self._lines += _wrapped(item.removeprefix("* "), mark)
            self._lines.append("")

    def code(self, text: str) -> None:
        self._lines += ["```", *text.split("\n"), "```", ""]

    def table(self, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        self._lines += [_row(head), _row(("---",) * len(head)), *map(_row, rows), ""]

    def link(self, kind: type[Struct]) -> str:
        name = self.names[kind]
        return f"[{name}](#{name.lower().replace(' ', '-')})"

    def message(self, kind: type[Struct], level: int = 3) -> None:
        """Add a message with its fields, unless the page has it already."""
        if kind in self._told:
            return
        self._told.add(kind)
        words = describe(kind, self.link)
        self.heading(level, self.names[kind])
        if words.text:
            self.prose(words.text)
        if not words.fields:
            self.prose(f"No fields; {words.encoding}.")
            return
        self.prose(f"Encoded as {words.encoding}.")
        self.table(
            ("field", "type", "default", "meaning"),
            ((f"`{each.name}`", each.type, each.default, each.meaning) for each in words.fields),
        )


def closure(kinds_told: Iterable[type[Struct]]) -> list[type[Struct]]:
    """Those messages and all messages that they contain, in order."""
    found: dict[type[Struct], None] = {}
    waiting = list(kinds_told)
    while waiting:
        kind = waiting.pop(0)
        if kind not in found:
            found[kind] = None
            waiting += inner(kind)
    return list(found)


def names_of(told: list[type[Struct]]) -> dict[type[Struct], str]:
    """A name for each message; if two have the same, their packages or modules are prefixed."""
    every = closure(told)
    for depth in range(4):
        names = {kind: _name(kind, depth) for kind in every}
        counts = Counter(names.values())
        if depth == 0:
            chosen = dict(names)
        doubles = {name for name, count in Counter(chosen.values()).items() if count > 1}
        if not doubles:
            break
        chosen = {
            kind: names[kind] if name in doubles and counts[names[kind]] == 1 else name
            for kind, name in chosen.items()
        }
    return chosen


def _name(kind: type[Struct], depth: int) -> str:
    parts = [kind.__module__.split(".")[-2], kind.__module__.split(".")[-1]]
    own = NAMES.get((kind.__module__, kind.__name__), kind.__name__)
    before: dict[int, list[str]] = {0: [], 1: parts[:1], 2: parts[1:], 3: parts}
    return " ".join([*before[depth], own])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |"


def _wrapped(text: str, mark: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        COLUMNS,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )
