"""Streams, queries and peers as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from rich.table import Table
from rich.text import Text

from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Box
from medusa.engine.objects.readers import names_in_words, readers_in_words
from medusa.engine.objects.schema import BEGINNING, Field, Schema
from medusa.engine.operators.registry import operator_of
from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.plain import plain
from medusa.overlay.troubles import Trouble
from medusa.tools.client.times import show_duration, show_time
from medusa.tools.commands.medusa.listing import QueryLine, StreamLine
from medusa.tools.commands.medusa.waiting_rows import lets_out
from medusa.tools.commands.plain_tables import NamesTable, details_table
from medusa.tools.monitor.availability_words import in_words
from medusa.tools.monitor.tables import SHORT_ID, health_in_words, number, size, styled
from medusa.tools.monitor.troubles import in_words as trouble_in_words
from medusa.tools.monitor.troubles import style_of
from medusa.tools.monitor.waiting_words import held_up, why_waiting

T = TypeVar("T")

_SILENT: Final = "its peer does not answer"


def streams_table(lines: Sequence[StreamLine]) -> NamesTable:
    table = NamesTable(
        "stream",
        "owner",
        "made by",
        "who may read",
        "boundary",
        "waiting",
        "rows/s",
        gives_way=("owner", "made by", "rows/s", "waiting", "boundary", "who may read"),
        wraps=("who may read",),
        whole="medusa stream show STREAM",
    )
    for line in map(plain, lines):
        if line.entry is None:
            table.add(line.name, line.owner, "", Text(line.note, "dim"), "", "", "")
            continue
        boundary = show_time(line.status.boundary) if line.status else "-"
        rate = number(line.status.rate) if line.status else "-"
        waiting = f"{line.status.waiting:,}" if line.status and line.status.waiting else "-"
        readers = readers_in_words(line.entry.stream)
        table.add(line.name, line.owner, line.made_by, readers, boundary, waiting, rate)
    return table


def stream_details(line: StreamLine) -> Table:
    line = plain(line)
    rows: list[tuple[str, str | Text]] = [("stream", line.name), ("owner", line.owner)]
    if line.entry is None:
        return details_table([*rows, ("", Text(line.note, "dim"))])
    stream = line.entry.stream
    rows += [
        ("made by", line.made_by),
        ("schema", schema_in_words(line.entry.schema)),
        *[("", _field(field, line.entry.schema)) for field in line.entry.schema.fields],
        ("who may read", readers_in_words(stream)),
    ]
    if stream.label:
        rows.append(("", f"{names_in_words(stream.admitted, stream.owner)}: by its own definition"))
        for policy in stream.label:
            named = names_in_words(policy.readers, policy.owner)
            rows.append(("", f"{named}: by {policy.stream}, of which it is made"))
    if stream.declassify:
        rows.append(("declassify", ", ".join(stream.declassify)))
    if not stream.query and stream.view is None:
        rows += _of_source(line.entry, line.owner)
    rows.append(("history", show_duration(stream.history_us / 1e6)))
    if line.status is not None:
        rows += [
            ("boundary", show_time(line.status.boundary)),
            ("rows", f"{line.status.rows:,}, {number(line.status.rate)} a second"),
            *_waiting(line.status, stream),
            ("late rows", _late(line.status, stream)),
            *_present(line.status, stream),
            ("on disk", size(line.status.bytes)),
            ("subscribers", f"{line.status.subscribers:,}"),
            ("state", line.status.state.replace("_", " ")),
            *[("trouble", Text(t.sentence, style_of(t))) for t in line.troubles],
        ]
    return details_table(rows)


def queries_table(lines: Sequence[QueryLine]) -> NamesTable:
    table = NamesTable(
        "query",
        "owner",
        "status",
        "reads",
        "makes",
        "now",
        gives_way=("owner", "makes", "reads", "status", "now"),
        wraps=("now",),
        whole="medusa query show QUERY",
    )
    for line in map(plain, lines):
        if line.entry is None:
            table.add(line.name, line.owner, "", "", "", Text(line.note, "dim"))
            continue
        table.add(
            line.name,
            line.owner,
            styled(line.entry.status.lower()),
            Text("\n".join(line.inputs)),
            Text("\n".join(line.entry.results)),
            _now(line),
        )
    return table


def _doing(task: TaskStatus) -> str:
    match task.state:
        case "away":
            return f"is computed by {task.worker[:SHORT_ID]}"
        case "waiting":
            return "waits for input"
        case state:
            return f"is {state}"


def query_details(line: QueryLine) -> Table:
    line = plain(line)
    rows: list[tuple[str, str | Text]] = [("query", line.name), ("owner", line.owner)]
    if line.entry is None:
        return details_table([*rows, ("", Text(line.note, "dim"))])
    entry = line.entry
    rows += [
        ("status", Text(_SILENT, "bold red") if line.silent else styled(entry.status.lower())),
        ("peer", entry.peer[:SHORT_ID]),
        ("availability", in_words(entry.query.availability)),
        *[("reads" if first else "", name) for first, name in _first(line.inputs)],
        *[("makes" if first else "", name) for first, name in _first(entry.results)],
        *[("boxes" if first else "", _box(box)) for first, box in _first(entry.query.boxes)],
    ]
    if entry.edition:
        since = "the beginning" if entry.since == BEGINNING else show_time(entry.since)
        rows.append(("modified", f"{entry.edition} times; as it is from {since} on"))
    for first, task in _first(line.tasks):
        at = "" if task.boundary == BEGINNING else f", at {show_time(task.boundary)}"
        told = f"{task.name} {_doing(task)}{at}"
        why = task.reason or why_waiting(task.name, line.tasks)
        rows.append(("tasks" if first else "", f"{told}{f': {why}' if why else ''}"))
    return details_table(rows)


def peers_table(snapshot: Snapshot) -> NamesTable:
    table = NamesTable(
        "peer",
        "participant",
        "address",
        "state",
        "health",
        "spark",
        "up",
        "load",
        "memory",
        gives_way=("memory", "up", "load", "health", "spark", "state", "address"),
    )
    for peer in sorted(plain(snapshot).peers, key=lambda each: (each.participant, each.peer)):
        told = peer.uptime_s > 0
        table.add(
            peer.peer[:SHORT_ID],
            peer.participant,
            peer.address,
            styled(peer.state),
            styled(health_in_words(peer.health) or "-"),
            styled(peer.spark) if told else "-",
            show_duration(peer.uptime_s) if told else "-",
            _load(peer) if told else "-",
            size(peer.memory_bytes) if told else "-",
        )
    return table


def status_details(snapshot: Snapshot) -> Table:
    """The troubles and the state of our peer, and how many peers of the federation it sees."""
    snapshot = plain(snapshot)
    own = next(peer for peer in snapshot.peers if peer.peer == snapshot.by)
    up = sum(peer.state == "running" for peer in snapshot.peers)
    here = [task for task in own.tasks if not task.owner]
    failing = sum(1 for task in here if task.reason)
    rows: list[tuple[str, str | Text]] = [
        *[
            ("warning" if t.reason.is_warning else "trouble", _trouble(t, snapshot))
            for t in own.troubles
        ],
        ("federation", f"{snapshot.federation}: {up} of {len(snapshot.peers)} peers up"),
        ("peer", f"{own.peer[:SHORT_ID]} of {own.participant}, at {own.address}"),
        ("state", Text.assemble(styled(own.state), f", up {show_duration(own.uptime_s)}")),
        ("spark", styled(own.spark)),
        ("load", f"{_load(own)}; {size(own.memory_bytes)} of memory"),
        ("streams", f"{len(own.streams):,}{_late_in_all(own.streams)}"),
        ("tasks", f"{len(here):,}, {failing:,} of them failing"),
        *[
            ("waiting" if first else "", f"{name}: {why}")
            for first, (name, why) in _first(held_up(here).items())
        ],
    ]
    away = [peer for peer in snapshot.peers if peer.state != "running"]
    rows += [
        ("away" if first else "", f"{peer.peer[:SHORT_ID]} of {peer.participant}: {peer.state}")
        for first, peer in _first(away)
    ]
    return details_table(rows)


def _trouble(trouble: Trouble, snapshot: Snapshot) -> Text:
    return Text(trouble_in_words(trouble, snapshot.at), style_of(trouble))


def schema_in_words(schema: Schema) -> str:
    key = f", key {', '.join(schema.key)}" if schema.key else ""
    return f"{schema.name}{key}"


def _of_source(entry: StreamEntry, owner: str) -> list[tuple[str, str | Text]]:
    stream = entry.stream
    ahead = stream.max_ahead_us
    return [
        ("who may post", names_in_words(stream.writers, owner)),
        ("slack", show_duration(stream.slack_us / 1e6)),
        ("lateness", show_duration(stream.lateness_us / 1e6)),
        ("idle", stream.idle),
        ("idle timeout", show_duration(stream.idle_timeout_us / 1e6)),
        ("max ahead", "any time" if ahead is None else show_duration(ahead / 1e6)),
        ("k_safety", str(stream.k_safety)),
        ("leader", stream.leader[:SHORT_ID]),
    ]


def _late_in_all(streams: Sequence[StreamStatus]) -> str:
    late = sum(stream.late for stream in streams)
    return f"; {late:,} rows came late" if late else ""


def _late(status: StreamStatus, stream: StreamDefinition) -> str:
    inserted = f", and {status.inserted:,} that are revisions" if stream.lateness_us else ""
    return f"{status.late:,}{inserted}"


def _present(status: StreamStatus, stream: StreamDefinition) -> list[tuple[str, str | Text]]:
    """The producers of a source stream for which its boundary waits."""
    return [] if stream.query else [("producers", f"{status.present:,}")]


def _waiting(status: StreamStatus, stream: StreamDefinition) -> list[tuple[str, str | Text]]:
    """The rows that are stored but not yet visible, and the condition for which they wait."""
    if not status.waiting:
        return []
    return [
        ("waiting", f"{status.waiting:,} more, for the boundary to pass them"),
        ("", f"{lets_out(stream)} lets them come out"),
    ]


def _field(field: Field, schema: Schema) -> str:
    bound = f" of {field.size} bytes" if field.size is not None else ""
    empty = ", may be null" if field.nullable else ""
    time = ", the time" if field.name == schema.time else ""
    return f"{field.name}: {field.type}{bound}{empty}{time}"


def _box(box: Box) -> str:
    told = ", ".join(f"{name} {value}" for name, value in operator_of(box).parameters())
    ends = f"{', '.join(box.inputs)} -> {', '.join(box.outputs)}"
    return f"{box.name}: {operator_of(box).word}, {ends}{f'; {told}' if told else ''}"


def _now(line: QueryLine) -> Text:
    if line.failing:
        return Text(f"failing: {line.failing}", "bold red")
    if line.silent:
        return Text(_SILENT, "bold red")
    states = {task.state for task in line.tasks}
    return styled(states.pop()) if len(states) == 1 else Text(", ".join(sorted(states)) or "-")


def _load(peer: PeerStatus) -> str:
    return f"{peer.load:.1f} of {peer.capacity:g} cores"


def _first(items: Iterable[T]) -> Iterator[tuple[bool, T]]:
    """The items, each with a flag; the flag is true for the first item, beside which the header
    stands."""
    return ((not index, item) for index, item in enumerate(items))
