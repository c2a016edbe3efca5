"""The user's view of a snapshot in the monitor, and its changes by keys. Sans IO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

FILTER_CHARACTERS: Final = 100
"""Characters of a filter: a line of the narrowest terminal."""

HELP: Final = (
    ("tab, ← →, 1-9", "another table"),
    ("↑ ↓, page up, page down, home, end", "scroll"),
    ("/", "filter: rows with these words; enter keeps it, escape ends it"),
    ("p", "one peer after the other, then all again"),
    ("e", "the events"),
    ("escape", "everything again"),
    ("?", "these keys"),
    ("q", "leave"),
)

QUIT: Final = frozenset({"q", "eof"})


@dataclass(frozen=True)
class View:
    """The choices of the user.

    Attributes:
        table: the title of the one table on the screen; empty: all that fit.
        top: number of its first visible item.
        needle: the words of a filter. typing: whether the user is typing it.
        peer: id (hex) of the only peer shown; empty: all.
        help: whether the keys are explained.
    """

    table: str = ""
    top: int = 0
    needle: str = ""
    typing: bool = False
    peer: str = ""
    help: bool = False


@dataclass(frozen=True)
class Shown:
    """The screen at the moment when a key is pressed.

    Attributes:
        tables: the titles of the non-empty tables. peers: ids (hex), in order.
        items: number of items in the table on the screen. page: number of visible items.
    """

    tables: Sequence[str]
    peers: Sequence[str]
    items: int
    page: int


def pressed(view: View, key: str, shown: Shown) -> View | None:
    """The view after a key; None: leave.

    Args:
        key: a character, or a name of `medusa.tools.monitor.keys`.
    """
    if view.typing:
        return _typed(view, key)
    if key in QUIT:
        return None
    if view.help:
        return replace(view, help=False)
    match key:
        case "?":
            return replace(view, help=True)
        case "/":
            return replace(view, typing=True, top=0)
        case "escape":
            return View()
        case _:
            return _moved(view, key, shown)


def _typed(view: View, key: str) -> View | None:
    match key:
        case "enter":
            return replace(view, typing=False)
        case "escape":
            return replace(view, typing=False, needle="")
        case "backspace":
            return replace(view, needle=view.needle[:-1])
        case "eof":
            return None
        case _ if len(key) == 1:
            return replace(view, needle=(view.needle + key)[:FILTER_CHARACTERS])
        case _:
            return view


def _moved(view: View, key: str, shown: Shown) -> View:
    tables = ["", *shown.tables]
    place = tables.index(view.table) if view.table in tables else 0
    match key:
        case "p":
            return replace(view, peer=_next_peer(view.peer, shown.peers), top=0)
        case "e":
            return replace(view, table="Events", top=0)
        case "tab" | "right":
            return replace(view, table=tables[(place + 1) % len(tables)], top=0)
        case "back tab" | "left":
            return replace(view, table=tables[place - 1], top=0)
        case _ if key.isdecimal() and key.isascii():
            chosen = int(key) - 1
            return replace(view, table=tables[chosen], top=0) if 0 <= chosen < len(tables) else view
        case _:
            return _scrolled(view, key, shown)


def _scrolled(view: View, key: str, shown: Shown) -> View:
    last = max(0, shown.items - shown.page)
    steps = {
        "up": -1,
        "down": 1,
        "page up": -max(1, shown.page),
        "page down": max(1, shown.page),
        "home": -view.top,
        "end": last,
    }
    if key not in steps:
        return view
    table = view.table or (shown.tables[0] if shown.tables else "")
    return replace(view, table=table, top=min(last, max(0, view.top + steps[key])))


def _next_peer(peer: str, peers: Sequence[str]) -> str:
    """The next peer in turn; after the last one none."""
    order = ["", *peers]
    place = order.index(peer) if peer in order else 0
    return order[(place + 1) % len(order)]
