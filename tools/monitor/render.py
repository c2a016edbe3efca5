"""A snapshot of the federation as a screen. Pure: equal snapshots and sizes give equal screens."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.engine.streams.messages import REFUSES_POSTS, STANDS_STILL, StreamStatus
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.plain import plain
from medusa.tools.client.times import show_clock, show_duration, show_time
from medusa.tools.home.messages import MarketStatus
from medusa.tools.monitor.render_events import events_section, shortened
from medusa.tools.monitor.render_market import market_sections
from medusa.tools.monitor.render_standbys import standby_sections
from medusa.tools.monitor.tables import (
    SHORT_ID,
    Line,
    Section,
    bar,
    drawn,
    figures,
    health_in_words,
    names,
    number,
    short,
    size,
    styled,
    titled,
    words,
)
from medusa.tools.monitor.troubles import in_words, style_of
from medusa.tools.monitor.waiting_words import why_waiting

WIDE: Final = 108
"""Columns from which on less important figures are shown as well."""

HEADER_LINES: Final = 1

_INDENT: Final = 2

_BORDER_CELLS: Final = 2
"""Columns that the borders left and right of a table take."""

_NARROWEST: Final = 20
"""Least columns to which a reason is wrapped."""

UNSETTLED: Final = {
    "up_failure": "tentative",
    "stabilization": "correcting",
    REFUSES_POSTS: "refusing",
    STANDS_STILL: "stuck",
}
"""The states of a stream that people should see, with their words on the screen."""


def render(
    snapshot: Snapshot,
    width: int,
    height: int | None = None,
    market: MarketStatus | None = None,
) -> RenderableType:
    """The whole screen.

    Args:
        width: columns. height: lines, or None for as many as needed.
        market: the market's state at the peer that was asked, if it trades.
    """
    left = None if height is None else height - HEADER_LINES
    return Group(header(snapshot, width), *drawn(sections(snapshot, width, market), left))


def sections(snapshot: Snapshot, width: int, market: MarketStatus | None = None) -> list[Section]:
    """The non-empty tables of a screen of `width` columns, in order."""
    wide = width >= WIDE
    snapshot, market = plain(snapshot), plain(market)
    found = [_to_mend(snapshot, width), _peers(snapshot, wide=wide)]
    found += standby_sections(snapshot, wide=wide)
    found += [_streams(snapshot, wide=wide), _tasks(snapshot, width)]
    found.append(events_section(snapshot, width))
    if market is not None:
        found += market_sections(market, snapshot, wide=wide)
    return [section for section in found if section.items]


def header(snapshot: Snapshot, width: int) -> Text:
    """The federation, the asked peer and the time."""
    wide, snapshot = width >= WIDE, plain(snapshot)
    asked = next((peer for peer in snapshot.peers if peer.peer == snapshot.by), None)
    up = sum(peer.state == "running" for peer in snapshot.peers)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(" medusa ", "bold magenta")
    text.append(snapshot.federation, "bold")
    text.append(f"  {up}/{len(snapshot.peers)} peers up", "green" if up else "red")
    if left_out := sum(peer.left_out for peer in snapshot.peers):
        text.append(f"  {number(left_out)} rows left out", "yellow")
    if asked is not None:
        text.append(f"  seen by {asked.participant}")
        text.append(f" {asked.peer[:SHORT_ID]}" if wide else "", "dim")
    text.append(f"  {show_clock(snapshot.at, day=wide)} UTC", "dim")
    return text


def _to_mend(snapshot: Snapshot, width: int) -> Section:
    """The troubles that people must mend, at full length and first: they may make all below
    wrong."""
    items: list[list[Line]] = []
    for peer in snapshot.peers:
        for trouble in peer.troubles:
            said = shortened(in_words(trouble, snapshot.at))
            told = f"{peer.participant} {peer.peer[:SHORT_ID]}: {said}"
            lines = textwrap.wrap(told, max(width - _BORDER_CELLS, _NARROWEST))
            items.append([[Text(line, style_of(trouble))] for line in lines])
    return Section("To mend", [titled("To mend")], items)


def _peers(snapshot: Snapshot, *, wide: bool) -> Section:
    columns = [titled("Peers"), *words("id")]
    columns += words("address", "health") if wide else []
    columns += [*words("state", "spark", "load"), *figures("memory", "links")]
    columns += figures("up") if wide else []
    # peers with faults come first
    peers = sorted(
        snapshot.peers, key=lambda peer: (_worse(peer) == "running", peer.participant, peer.peer)
    )
    items: list[list[Line]] = []
    for peer in peers:
        known = peer.state not in {"unreachable", "nonsense"}
        cells: list[str | Text] = [Text(peer.participant), peer.peer[:SHORT_ID]]
        cells += [peer.address, styled(health_in_words(peer.health) or "-")] if wide else []
        cells += [
            styled(peer.state if wide else _worse(peer)),
            styled(peer.spark) if known else "-",
        ]
        cells += [_load(peer) if known else "-", size(peer.memory_bytes) if known else "-"]
        cells += [str(len(peer.links)) if known else "-"]
        cells += [show_duration(peer.uptime_s) if known else "-"] if wide else []
        items.append([cells])
    return Section("Peers", columns, items)


def _streams(snapshot: Snapshot, *, wide: bool) -> Section:
    columns = [titled("Streams", ratio=3)]
    columns += [names("at")] if wide else []
    columns += [*words("role"), *figures("rows/s", "boundary", "lag", "rows", "late")]
    columns += figures("size", "subs") if wide else []
    items: list[list[Line]] = []
    for peer, stream in _ordered_streams(snapshot):
        name = Text(short(stream.name))
        if stream.state in UNSETTLED:
            name.append(f"  {UNSETTLED[stream.state]}", "yellow")
        cells: list[str | Text] = [name]
        cells += [Text(peer.participant)] if wide else []
        cells += [stream.role, number(stream.rate), _boundary(stream.boundary, snapshot.at)]
        cells += [_lag(stream), number(stream.rows)]
        cells += [Text(number(stream.late), "yellow" if stream.late else "dim")]
        cells += [size(stream.bytes), str(stream.subscribers)] if wide else []
        items.append([cells])
    return Section("Streams", columns, items)


def _tasks(snapshot: Snapshot, width: int) -> Section:
    wide = width >= WIDE
    columns = [titled("Tasks", ratio=3)]
    columns += [names("at")] if wide else []
    columns += words("state")
    columns += figures("epoch") if wide else []
    columns += figures("load")
    columns += figures("in/s") if wide else []
    columns += figures("rows/s", "boundary")
    columns += figures("epochs") if wide else []
    items: list[list[Line]] = []
    tasks = [task for peer in snapshot.peers for task in peer.tasks if not task.owner]
    for peer, task in _ordered_tasks(snapshot):
        cells: list[str | Text] = [Text(short(task.name))]
        cells += [Text(peer.participant)] if wide else []
        cells += [styled(task.state)]
        cells += [f"{task.epoch_ms:.0f} ms"] if wide else []
        cells += [f"{task.load:.2f}"]
        cells += [number(task.input_rate)] if wide else []
        cells += [number(task.rate), _boundary(task.boundary, snapshot.at)]
        cells += [number(task.epochs)] if wide else []
        items.append([cells, *_why(task, tasks, width)])
    return Section("Tasks", columns, items)


def _why(task: TaskStatus, tasks: Sequence[TaskStatus], width: int) -> list[Line]:
    """Why the task does not run, below its name. A task that waits only for a moment runs."""
    if task.reason:
        text, style = shortened(task.reason), "red"
    else:
        text, style = shortened(why_waiting(task.name, tasks)), "yellow"
    if not text:
        return []
    lines = textwrap.wrap(text, max(_NARROWEST, width - _INDENT - _BORDER_CELLS))
    return [[Text(" " * _INDENT, no_wrap=True).append(line, style)] for line in lines]


def _ours(snapshot: Snapshot) -> str:
    """The participant whose peer was asked. Its own rows come first, so that others' reports push
    none of them out."""
    return next((peer.participant for peer in snapshot.peers if peer.peer == snapshot.by), "")


def _ordered_streams(snapshot: Snapshot) -> list[tuple[PeerStatus, StreamStatus]]:
    """The order of streams: unsettled ones, sources, derived ones, copies; busy ones first."""
    roles, ours = {"source": 0, "derived": 1, "follower": 2}, _ours(snapshot)

    def order(both: tuple[PeerStatus, StreamStatus]) -> tuple[bool, bool, int, float, str]:
        peer, stream = both
        settled, foreign = stream.state not in UNSETTLED, peer.participant != ours
        return foreign, settled, roles.get(stream.role, 3), -stream.rate, stream.name

    return sorted(((peer, s) for peer in snapshot.peers for s in peer.streams), key=order)


def _ordered_tasks(snapshot: Snapshot) -> list[tuple[PeerStatus, TaskStatus]]:
    """The order of tasks: those that fail first, then those that cost most."""
    ours = _ours(snapshot)

    def order(both: tuple[PeerStatus, TaskStatus]) -> tuple[bool, bool, float, str]:
        peer, task = both
        return peer.participant != ours, task.state != "failing", -task.load, task.name

    return sorted(((peer, task) for peer in snapshot.peers for task in peer.tasks), key=order)


def _worse(peer: PeerStatus) -> str:
    """A peer's state by its own report, or by the failure detector's if that is worse."""
    return peer.state if peer.health in {"", "alive"} else health_in_words(peer.health)


def _load(peer: PeerStatus) -> Text:
    """A bar of the capacity in use, and the cores."""
    decimals = 0 if peer.capacity == int(peer.capacity) else 2
    text = f"{peer.load:.{max(1, decimals)}f}/{peer.capacity:.{decimals}f}"
    return bar(peer.load, peer.capacity, text)


def _lag(stream: StreamStatus) -> Text:
    """The lag of a stream; if no tuples come, the time without tuples instead."""
    if show_time(stream.boundary) == "ended":
        return Text("-", "dim")
    idle = stream.rate == 0
    return Text(f"{'idle ' if idle else ''}{show_duration(stream.lag_s)}", "dim" if idle else "")


def _boundary(microseconds: int, at: float) -> Text:
    """A boundary, without the day if that is today."""
    text, today = show_time(microseconds), show_time(int(at * 1e6)).partition(" ")[0]
    return Text(text.removeprefix(f"{today} "), "dim" if text in {"-", "ended"} else "")
