"""The screen of `medusa monitor` for a snapshot and the user's choices. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from medusa.engine.replication.records.status import Snapshot
from medusa.overlay.errors import MedusaError, printable
from medusa.overlay.plain import plain
from medusa.tools.home.messages import MarketStatus
from medusa.tools.monitor.render import HEADER_LINES, header, sections
from medusa.tools.monitor.tables import SECTION_LINES, SHORT_ID, Section, drawn, fitting
from medusa.tools.monitor.view import HELP, Shown, View

TAB_LINES: Final = 2
"""Lines for the names of the tables: one line and a blank one or, if the screen is narrow, two
lines."""

FOOT_LINES: Final = 1


@dataclass(frozen=True)
class Seen:
    """The peer's answers. market: None if it has none."""

    snapshot: Snapshot
    market: MarketStatus | None


@dataclass(frozen=True)
class Screen:
    """A screen, and the state to which the next key applies."""

    drawn: RenderableType
    shown: Shown


def screen(
    seen: Seen | None,
    failure: MedusaError | None,
    width: int,
    height: int,
    view: View | None = None,
) -> Screen:
    """Draw the snapshot with the user's choices. If the snapshot is old, a line above it gives the
    reason."""
    view = view or View()
    told = [Text(printable(f" no answer: {failure}"), "bold red", no_wrap=True)] if failure else []
    if seen is None:
        return Screen(Group(*told), Shown((), (), 0, 1))
    seen = Seen(plain(seen.snapshot), plain(seen.market))
    tables = _chosen(seen, view, width)
    room = max(1, height - len(told) - HEADER_LINES - TAB_LINES - FOOT_LINES)
    body, shown = _body(seen.snapshot, tables, view, room)
    top = (*told, header(seen.snapshot, width), _tabs(tables, view, width))
    return Screen(Group(*top, *body, _foot(seen.snapshot, view, shown)), shown)


def _chosen(seen: Seen, view: View, width: int) -> list[Section]:
    """The tables, filtered by the view; for one peer, only rows with its id or from it."""
    snapshot, market = seen.snapshot, seen.market
    if view.peer:
        of_peer = tuple(peer for peer in snapshot.peers if peer.peer == view.peer)
        snapshot = replace(snapshot, peers=of_peer)
        market = market if view.peer == snapshot.by else None
    tables = sections(snapshot, width, market)
    if view.needle:
        tables = [table.matching(view.needle) for table in tables]
    return tables


def _body(
    snapshot: Snapshot, tables: list[Section], view: View, room: int
) -> tuple[list[RenderableType], Shown]:
    titles = [table.title for table in tables]
    peers = [peer.peer for peer in snapshot.peers]
    if view.help:
        return [_help()], Shown(titles, peers, 0, 1)
    chosen = next((table for table in tables if table.title == view.table), None)
    if chosen is None:
        first = len(tables[0].items) if tables else 0
        filled = [table for table in tables if table.items]
        return drawn(filled, room), Shown(titles, peers, first, 1)
    lines = max(1, room - SECTION_LINES)
    top = min(view.top, max(0, len(chosen.items) - 1))
    page = len(fitting(chosen.items[top:], lines))
    return [chosen.draw(lines, top)], Shown(titles, peers, len(chosen.items), page)


def _tabs(tables: list[Section], view: View, width: int) -> RenderableType:
    """A line with all tables, the number of their items, and a mark at the present one."""
    lines = [Text(" ", no_wrap=True, overflow="ellipsis")]
    entries = [
        ("", "All"),
        *((table.title, f"{table.title} {len(table.items)}") for table in tables),
    ]
    for number, (title, label) in enumerate(entries, 1):
        here = title == view.table and not view.help
        tab = Text.assemble((f"{number} ", "dim"), (label, "reverse" if here else ""))
        if lines[-1].cell_len + tab.cell_len > width and len(lines) < TAB_LINES:
            lines.append(Text(" ", no_wrap=True, overflow="ellipsis"))
        lines[-1].append(tab).append("  ")
    return Padding(Group(*lines), (0, 0, TAB_LINES - len(lines), 0))


def _foot(snapshot: Snapshot, view: View, shown: Shown) -> Text:
    """The footer: position, number of hidden items, and the most needed keys."""
    text = Text(" ", no_wrap=True, overflow="ellipsis")
    if view.typing:
        return text.append("filter: ", "bold").append(view.needle + "\N{FULL BLOCK}")
    if view.table and shown.items:
        text.append(f"{view.top + 1}-{min(shown.items, view.top + shown.page)} of {shown.items}  ")
    if view.needle:
        text.append(f"filter: {view.needle}  ", "bold yellow")
    if view.peer:
        owner = next((p.participant for p in snapshot.peers if p.peer == view.peer), "gone")
        text.append(f"peer: {owner} {view.peer[:SHORT_ID]}  ", "bold yellow")
    return text.append("tab table  ↑↓ scroll  / filter  p peer  e events  ? keys  q quit", "dim")


def _help() -> RenderableType:
    table = Table.grid(padding=(0, 3, 0, 1))
    for keys, meaning in HELP:
        table.add_row(Text(keys, "bold"), meaning)
    return Padding(table, (0, 0, 1, 0))
