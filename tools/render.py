"""A snapshot of the federation as a screen. Pure: the same snapshot and size, the same screen."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from engine.messages import EventRecord, PeerStatus, Snapshot, StreamStatus, TaskStatus
from tools.times import show_duration, show_time

WIDE: Final = 108
"""Columns from which the less important figures are shown as well."""

SHORT_ID: Final = 8
"""Hex digits of a peer id on the screen: enough to tell a federation's peers apart."""

BAR_CELLS: Final = 8
PREFIX: Final = "medusa://"

_STYLES: Final = {
    "running": "green",
    "starting": "yellow",
    "waiting": "yellow",
    "lost": "bold red",
    "unreachable": "bold red",
    "failing": "bold red",
    "error": "bold red",
    "warning": "yellow",
    "stopped": "dim",
    "off": "dim",
    "info": "",
}

_SECTION_LINES: Final = 2
"""The header of each table and the blank line below it."""

_HEADER_LINES: Final = 3


@dataclass(frozen=True)
class Room:
    """Rows that each table may show."""

    peers: int
    streams: int
    tasks: int
    events: int


def render(snapshot: Snapshot, width: int, height: int | None = None) -> RenderableType:
    """The screen.

    Args:
        width: columns. height: lines, or None for as many as it takes.
    """
    streams = _streams(snapshot)
    tasks = [(peer, task) for peer in snapshot.peers for task in peer.tasks]
    tasks.sort(key=_task_order)
    events = _events(snapshot)
    room = share(height, len(snapshot.peers), len(streams), len(tasks), len(events))
    wide = width >= WIDE
    parts: list[RenderableType] = [_header(snapshot, wide=wide)]
    parts.append(_peers_table(snapshot, room.peers, wide=wide))
    if streams:
        parts.append(_streams_table(streams, room.streams, snapshot.at, wide=wide))
    if tasks:
        parts.append(_tasks_table(tasks, room.tasks, wide=wide))
    if events:
        parts.append(_events_table(events[-room.events :] if room.events else [], len(events)))
    return Group(*parts)


def share(height: int | None, peers: int, streams: int, tasks: int, events: int) -> Room:
    """Rows for each table: what all need if it fits, else the shortest needs are met first."""
    wanted = {"peers": peers, "streams": streams, "tasks": tasks, "events": events}
    if height is None:
        return Room(**wanted)
    shown = [name for name, rows in wanted.items() if rows or name == "peers"]
    left = max(0, height - _HEADER_LINES - _SECTION_LINES * len(shown))
    given = dict.fromkeys(wanted, 0)
    for position, name in enumerate(sorted(shown, key=lambda name: wanted[name])):
        given[name] = min(wanted[name], left // (len(shown) - position))
        left -= given[name]
    return Room(**given)


def _header(snapshot: Snapshot, *, wide: bool) -> Panel:
    asked = next((peer for peer in snapshot.peers if peer.peer == snapshot.by), None)
    up = sum(peer.state == "running" for peer in snapshot.peers)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("medusa ", "bold magenta")
    text.append(f"federation {snapshot.federation[:SHORT_ID]}", "bold")
    text.append(f"  {up}/{len(snapshot.peers)} peers up", "green" if up else "red")
    if asked is not None:
        text.append(f"  seen by {asked.participant}")
        text.append(f" {asked.peer[:SHORT_ID]}" if wide else "", "dim")
    at = datetime.datetime.fromtimestamp(snapshot.at, datetime.UTC)
    text.append(f"  {at:%Y-%m-%d %H:%M:%S} UTC" if wide else f"  {at:%H:%M:%S} UTC", "dim")
    return Panel(text, box=box.ROUNDED, border_style="magenta", padding=(0, 1))


def _table(title: str, hidden: int, ratio: int = 1) -> Table:
    """A table whose first column's header is its title."""
    table = Table(
        box=None,
        pad_edge=False,
        expand=True,
        header_style="bold cyan underline",
        padding=(0, 2, 0, 0),
    )
    _name(table, f"{title} +{hidden}" if hidden > 0 else title, ratio)
    return table


def _name(table: Table, header: str, ratio: int = 1) -> None:
    table.add_column(header, ratio=ratio, no_wrap=True, overflow="ellipsis")


def _figure(table: Table, *headers: str) -> None:
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)


def _word(table: Table, *headers: str) -> None:
    for header in headers:
        table.add_column(header, no_wrap=True)


def _peers_table(snapshot: Snapshot, rows: int, *, wide: bool) -> RenderableType:
    table = _table("Peers", len(snapshot.peers) - rows)
    _word(table, "id")
    if wide:
        _word(table, "address")
    _word(table, "state", "spark", "load")
    _figure(table, "memory", "links")
    if wide:
        _figure(table, "up")
    # What needs a person comes first.
    peers = sorted(
        snapshot.peers, key=lambda peer: (peer.state == "running", peer.participant, peer.peer)
    )
    for peer in peers[:rows]:
        known = peer.state != "unreachable"
        cells: list[RenderableType] = [Text(peer.participant), peer.peer[:SHORT_ID]]
        cells += [peer.address] if wide else []
        cells += [_styled(peer.state), _styled(peer.spark) if known else "-"]
        cells += [_load(peer) if known else "-", _bytes(peer.memory_bytes) if known else "-"]
        cells += [str(len(peer.links)) if known else "-"]
        cells += [show_duration(peer.uptime_s) if known else "-"] if wide else []
        table.add_row(*cells)
    return _spaced(table)


def _streams_table(
    streams: Sequence[tuple[PeerStatus, StreamStatus]], rows: int, at: float, *, wide: bool
) -> RenderableType:
    table = _table("Streams", len(streams) - rows, ratio=3)
    if wide:
        _name(table, "at")
    _word(table, "role")
    _figure(table, "rows/s", "boundary", "lag", "rows", "late")
    if wide:
        _figure(table, "size", "subs")
    for peer, stream in streams[:rows]:
        cells: list[RenderableType] = [Text(_short(stream.name))]
        cells += [Text(peer.participant)] if wide else []
        cells += [stream.role, _number(stream.rate), _boundary(stream.boundary)]
        cells += [_lag(stream), _number(stream.rows)]
        cells += [Text(_number(stream.late), "yellow" if stream.late else "dim")]
        cells += [_bytes(stream.bytes), str(stream.subscribers)] if wide else []
        table.add_row(*cells)
    return _spaced(table)


def _tasks_table(
    tasks: Sequence[tuple[PeerStatus, TaskStatus]], rows: int, *, wide: bool
) -> RenderableType:
    table = _table("Tasks", len(tasks) - rows, ratio=3)
    if wide:
        _name(table, "at")
    _word(table, "state")
    _figure(table, "epoch", "load", "rows/s", "boundary")
    if wide:
        _figure(table, "epochs")
    for peer, task in tasks[:rows]:
        name = Text(_short(task.name))
        if task.reason:
            name.append(f"  {task.reason}", "red")
        cells: list[RenderableType] = [name]
        cells += [Text(peer.participant)] if wide else []
        cells += [_styled(task.state), f"{task.epoch_ms:.0f} ms", f"{task.load:.2f}"]
        cells += [_number(task.rate), _boundary(task.boundary)]
        cells += [_number(task.epochs)] if wide else []
        table.add_row(*cells)
    return _spaced(table)


def _events_table(events: Sequence[tuple[PeerStatus, EventRecord]], total: int) -> RenderableType:
    table = _table("Events", total - len(events))
    for peer, event in events:
        at = datetime.datetime.fromtimestamp(event.at, datetime.UTC)
        text = Text(f"{at:%H:%M:%S}  {peer.participant}  ", "dim")
        text.append(event.text, _STYLES.get(event.level) or "not dim")
        table.add_row(text)
    return _spaced(table)


def _streams(snapshot: Snapshot) -> list[tuple[PeerStatus, StreamStatus]]:
    """Sources, then what is derived, then copies; busy ones first."""
    roles = {"source": 0, "derived": 1, "mirror": 2}
    streams = [(peer, stream) for peer in snapshot.peers for stream in peer.streams]
    streams.sort(key=lambda both: (roles.get(both[1].role, 3), -both[1].rate, both[1].name))
    return streams


def _task_order(both: tuple[PeerStatus, TaskStatus]) -> tuple[bool, float, str]:
    """What fails first, then what costs most."""
    task = both[1]
    return task.state != "failing", -task.load, task.name


def _events(snapshot: Snapshot) -> list[tuple[PeerStatus, EventRecord]]:
    events = [(peer, event) for peer in snapshot.peers for event in peer.events]
    events.sort(key=lambda both: both[1].at)
    return events


def _spaced(table: Table) -> RenderableType:
    return Padding(table, (0, 1, 1, 1))


def _styled(word: str) -> Text:
    return Text(word, _STYLES.get(word, ""))


def _load(peer: PeerStatus) -> Text:
    """A bar of the capacity in use, and the cores."""
    share_used = min(1.0, peer.load / peer.capacity) if peer.capacity > 0 else 0.0
    cells = round(share_used * BAR_CELLS)
    colour = "green" if share_used < 0.6 else "yellow" if share_used < 0.85 else "red"
    text = Text("█" * cells, colour)
    text.append("·" * (BAR_CELLS - cells), "dim")
    text.append(f" {peer.load:.1f}/{peer.capacity:.0f}")
    return text


def _lag(stream: StreamStatus) -> Text:
    if show_time(stream.boundary) == "ended":
        return Text("-", "dim")
    return Text(show_duration(stream.lag_s))


def _boundary(microseconds: int) -> Text:
    text = show_time(microseconds)
    return Text(text, "dim" if text in {"-", "ended"} else "")


def _short(name: str) -> str:
    """Without the scheme that all names share."""
    return name.removeprefix(PREFIX)


def _number(value: float) -> str:
    """At most five characters: 0, 7.3, 941, 52k, 1.4M."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    for limit, divisor, unit in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if value < limit:
            scaled = value / divisor
            return f"{scaled:.1f}{unit}" if divisor > 1 and scaled < 10 else f"{scaled:.0f}{unit}"
    return f"{value / 1e12:.0f}T"


def _bytes(value: int) -> str:
    if not value:
        return "0"
    for limit, unit in ((2**20, "K"), (2**30, "M"), (2**40, "G")):
        if value < limit:
            return f"{-(-value * 1024 // limit)}{unit}"
    return f"{value / 2**40:.1f}T"
