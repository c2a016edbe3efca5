"""A snapshot of the federation as a screen. Pure: the same snapshot and size, the same screen."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from engine.messages import EventRecord, PeerStatus, Snapshot, StreamStatus, TaskStatus
from overlay.plain import plain
from tools.messages import MarketStatus
from tools.render_market import market_sections
from tools.render_standbys import standby_sections
from tools.tables import (
    SHORT_ID,
    STYLES,
    Section,
    add_row,
    bar,
    drawn,
    figures,
    names,
    number,
    short,
    size,
    spaced,
    styled,
    titled,
    words,
)
from tools.times import show_clock, show_duration, show_time

WIDE: Final = 108
"""Columns from which the less important figures are shown as well."""

_HEADER_LINES: Final = 3

_BORDER_CELLS: Final = 4
"""Left and right of a table's text."""

_EVENT_CELLS: Final = 20
"""The narrowest column in which an event is wrapped."""

UNSETTLED: Final = {"up_failure": "tentative", "stabilization": "correcting"}
"""States of a stream that a person should see, in words."""


def render(
    snapshot: Snapshot,
    width: int,
    height: int | None = None,
    market: MarketStatus | None = None,
) -> RenderableType:
    """The screen.

    Args:
        width: columns. height: lines, or None for as many as it takes.
        market: of the peer that was asked, if it has one.
    """
    wide = width >= WIDE
    snapshot, market = plain(snapshot), plain(market)
    warned = _warnings(snapshot, width)
    parts = [Section(len(warned), partial(_warnings_part, warned))] if warned else []
    parts += [Section(len(snapshot.peers), partial(_peers_table, snapshot, wide=wide))]
    parts += standby_sections(snapshot, wide=wide)
    if market is not None:
        parts += market_sections(market, snapshot, wide=wide)
    if streams := _streams(snapshot):
        parts.append(
            Section(len(streams), partial(_streams_table, streams, snapshot.at, wide=wide))
        )
    if tasks := _tasks(snapshot):
        parts.append(Section(len(tasks), partial(_tasks_table, tasks, wide=wide)))
    if events := _events(snapshot):
        texts = [_event_lines(*event, width) for event in events]
        parts.append(Section(sum(map(len, texts)), partial(_events_table, texts)))
    left = None if height is None else height - _HEADER_LINES
    return Group(_header(snapshot, wide=wide), *drawn(parts, left))


def _header(snapshot: Snapshot, *, wide: bool) -> Panel:
    asked = next((peer for peer in snapshot.peers if peer.peer == snapshot.by), None)
    up = sum(peer.state == "running" for peer in snapshot.peers)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("medusa ", "bold magenta")
    text.append(f"federation {snapshot.federation[:SHORT_ID]}", "bold")
    text.append(f"  {up}/{len(snapshot.peers)} peers up", "green" if up else "red")
    if left_out := sum(peer.left_out for peer in snapshot.peers):
        text.append(f"  {number(left_out)} rows left out", "yellow")
    if asked is not None:
        text.append(f"  seen by {asked.participant}")
        text.append(f" {asked.peer[:SHORT_ID]}" if wide else "", "dim")
    text.append(f"  {show_clock(snapshot.at, day=wide)} UTC", "dim")
    return Panel(text, box=box.ROUNDED, border_style="magenta", padding=(0, 1))


def _warnings(snapshot: Snapshot, width: int) -> list[Text]:
    """What must be mended, a few lines each; first, since all below it may be wrong for it."""
    return [
        Text(line, "bold red")
        for peer in snapshot.peers
        for warning in peer.warnings
        for line in textwrap.wrap(
            f"{peer.participant} {peer.peer[:SHORT_ID]}: {warning}", max(width, _EVENT_CELLS)
        )
    ]


def _warnings_part(lines: Sequence[Text], rows: int) -> RenderableType:
    return Group(*lines[:rows])


def _peers_table(snapshot: Snapshot, rows: int, *, wide: bool) -> RenderableType:
    table = titled("Peers", len(snapshot.peers) - rows)
    words(table, "id")
    if wide:
        words(table, "address", "health")
    words(table, "state", "spark", "load")
    figures(table, "memory", "links")
    if wide:
        figures(table, "up")
    # What needs a person comes first.
    peers = sorted(
        snapshot.peers, key=lambda peer: (_worse(peer) == "running", peer.participant, peer.peer)
    )
    for peer in peers[:rows]:
        known = peer.state not in {"unreachable", "nonsense"}
        cells: list[str | Text] = [Text(peer.participant), peer.peer[:SHORT_ID]]
        cells += [peer.address, styled(peer.health or "-")] if wide else []
        cells += [
            styled(peer.state if wide else _worse(peer)),
            styled(peer.spark) if known else "-",
        ]
        cells += [_load(peer) if known else "-", size(peer.memory_bytes) if known else "-"]
        cells += [str(len(peer.links)) if known else "-"]
        cells += [show_duration(peer.uptime_s) if known else "-"] if wide else []
        add_row(table, *cells)
    return spaced(table)


def _streams_table(
    streams: Sequence[tuple[PeerStatus, StreamStatus]], at: float, rows: int, *, wide: bool
) -> RenderableType:
    table = titled("Streams", len(streams) - rows, ratio=3)
    if wide:
        names(table, "at")
    words(table, "role")
    figures(table, "rows/s", "boundary", "lag", "rows", "late")
    if wide:
        figures(table, "size", "subs")
    for peer, stream in streams[:rows]:
        name = Text(short(stream.name))
        if stream.state in UNSETTLED:
            name.append(f"  {UNSETTLED[stream.state]}", "yellow")
        cells: list[str | Text] = [name]
        cells += [Text(peer.participant)] if wide else []
        cells += [stream.role, number(stream.rate), _boundary(stream.boundary)]
        cells += [_lag(stream), number(stream.rows)]
        cells += [Text(number(stream.late), "yellow" if stream.late else "dim")]
        cells += [size(stream.bytes), str(stream.subscribers)] if wide else []
        add_row(table, *cells)
    return spaced(table)


def _tasks_table(
    tasks: Sequence[tuple[PeerStatus, TaskStatus]], rows: int, *, wide: bool
) -> RenderableType:
    table = titled("Tasks", len(tasks) - rows, ratio=3)
    if wide:
        names(table, "at")
    words(table, "state")
    figures(table, "epoch", "load")
    if wide:
        figures(table, "in/s")
    figures(table, "rows/s", "boundary")
    if wide:
        figures(table, "epochs")
    for peer, task in tasks[:rows]:
        name = Text(short(task.name))
        if task.reason:
            name.append(f"  {task.reason}", "red")
        cells: list[str | Text] = [name]
        cells += [Text(peer.participant)] if wide else []
        cells += [styled(task.state), f"{task.epoch_ms:.0f} ms", f"{task.load:.2f}"]
        cells += [number(task.input_rate)] if wide else []
        cells += [number(task.rate), _boundary(task.boundary)]
        cells += [number(task.epochs)] if wide else []
        add_row(table, *cells)
    return spaced(table)


def _event_lines(peer: PeerStatus, event: EventRecord, width: int) -> list[Text]:
    """The lines of one event. A warning or an error is wrapped, since it ends with what to do about
    it; an event of the level "info" is one line, which the table cuts at its border."""
    said = f"{show_clock(event.at)}  {peer.participant}  "
    style = STYLES.get(event.level) or "not dim"
    if event.level == "info":
        return [Text(said, "dim").append(event.text, style)]
    room = max(_EVENT_CELLS, width - len(said) - _BORDER_CELLS)
    first, *more = textwrap.wrap(event.text, room) or [""]
    return [Text(said, "dim").append(first, style)] + [
        Text(" " * len(said)).append(line, style) for line in more
    ]


def _events_table(events: Sequence[list[Text]], rows: int) -> RenderableType:
    """The latest events that fit into so many rows, each whole; the last one is cut if it must."""
    shown = [events[-1][:rows]]
    for lines in reversed(events[:-1]):
        if sum(map(len, shown)) + len(lines) > rows:
            break
        shown.insert(0, lines)
    table = titled("Events", len(events) - len(shown))
    for line in chain.from_iterable(shown):
        add_row(table, line)
    return spaced(table)


def _ours(snapshot: Snapshot) -> str:
    """The participant whose peer was asked. Its own rows come first: what others say of theirs
    pushes none of them out."""
    return next((peer.participant for peer in snapshot.peers if peer.peer == snapshot.by), "")


def _streams(snapshot: Snapshot) -> list[tuple[PeerStatus, StreamStatus]]:
    """What is not settled, then sources, what is derived, and copies; busy ones first."""
    roles, ours = {"source": 0, "derived": 1, "mirror": 2}, _ours(snapshot)

    def order(both: tuple[PeerStatus, StreamStatus]) -> tuple[bool, bool, int, float, str]:
        peer, stream = both
        settled, foreign = stream.state not in UNSETTLED, peer.participant != ours
        return foreign, settled, roles.get(stream.role, 3), -stream.rate, stream.name

    return sorted(((peer, s) for peer in snapshot.peers for s in peer.streams), key=order)


def _tasks(snapshot: Snapshot) -> list[tuple[PeerStatus, TaskStatus]]:
    """What fails first, then what costs most."""
    ours = _ours(snapshot)

    def order(both: tuple[PeerStatus, TaskStatus]) -> tuple[bool, bool, float, str]:
        peer, task = both
        return peer.participant != ours, task.state != "failing", -task.load, task.name

    return sorted(((peer, task) for peer in snapshot.peers for task in peer.tasks), key=order)


def _events(snapshot: Snapshot) -> list[tuple[PeerStatus, EventRecord]]:
    events = [(peer, event) for peer in snapshot.peers for event in peer.events]
    events.sort(key=lambda both: both[1].at)
    return events


def _worse(peer: PeerStatus) -> str:
    """What it says of itself, or, where that is worse, what the failure detector says."""
    return peer.state if peer.health in {"", "alive"} else peer.health


def _load(peer: PeerStatus) -> Text:
    """A bar of the capacity in use, and the cores."""
    decimals = 0 if peer.capacity == int(peer.capacity) else 2
    text = f"{peer.load:.{max(1, decimals)}f}/{peer.capacity:.{decimals}f}"
    return bar(peer.load, peer.capacity, text)


def _lag(stream: StreamStatus) -> Text:
    if show_time(stream.boundary) == "ended":
        return Text("-", "dim")
    return Text(show_duration(stream.lag_s))


def _boundary(microseconds: int) -> Text:
    text = show_time(microseconds)
    return Text(text, "dim" if text in {"-", "ended"} else "")
