"""Queries with a standby, on the monitor's screen: primary, secondary, and the secondary's lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from medusa.engine.replication.records.status import PeerStatus, ReplicaStatus, Snapshot
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName
from medusa.tools.client.times import show_duration
from medusa.tools.monitor.availability_words import MODE_NAMES
from medusa.tools.monitor.tables import (
    SHORT_ID,
    Line,
    Section,
    figures,
    names,
    short,
    styled,
    titled,
    words,
)

PRIMARY: Final = "primary"

SUPERSEDED: Final = "superseded"
"""The state of a primary that does not know yet that another one took over."""

_GOOD: Final = "caught up"

_GONE: Final = frozenset({"unreachable", "dead", "left"})

_STATE_WIDTH: Final = 20
"""The most characters of a state on the screen: a peer of another participant may send any text."""


@dataclass(frozen=True)
class Standby:
    """One row. state: as the best-informed peer reports it, unless the others' reports are
    worse."""

    replica: ReplicaStatus
    state: str


def standby_sections(snapshot: Snapshot, *, wide: bool) -> list[Section]:
    """The table, unless it is empty."""
    rows = standbys(snapshot)
    return [_table(rows, wide=wide)] if rows else []


def standbys(snapshot: Snapshot) -> list[Standby]:
    """A row for each query, and one more for each superseded primary of it; worst first.

    A peer is believed only about itself, and as a primary only if it is of the query's participant.
    """
    reports: dict[str, list[ReplicaStatus]] = {}
    for peer in snapshot.peers:
        for replica in peer.replicas:
            if peer.peer == (replica.primary if replica.role == PRIMARY else replica.secondary):
                own = _is_own(peer, replica)
                if replica.role != PRIMARY or own:
                    reports.setdefault(replica.query, []).append(replica)
    gone = {p.peer for p in snapshot.peers if p.state in _GONE or p.health in _GONE}
    rows = [row for name in reports for row in _rows(reports[name], gone)]
    rows.sort(key=lambda row: (row.state == _GOOD, row.replica.query, -row.replica.term_number))
    return rows


def _rows(reports: Sequence[ReplicaStatus], gone: set[str]) -> list[Standby]:
    best = max(reports, key=lambda each: (each.term_number, each.role == PRIMARY))
    old = [each for each in reports if each.role == PRIMARY and each.primary != best.primary]
    return [Standby(best, _state(best, gone)), *(Standby(each, SUPERSEDED) for each in old)]


def _state(best: ReplicaStatus, gone: set[str]) -> str:
    if best.primary in gone:
        return "primary gone"
    if best.secondary in gone:
        return "secondary gone"
    return best.state[:_STATE_WIDTH]


def _is_own(peer: PeerStatus, replica: ReplicaStatus) -> bool:
    try:
        return ObjectName.parse(replica.query).participant == peer.participant
    except InvalidInputError:
        return False


def _table(rows: Sequence[Standby], *, wide: bool) -> Section:
    columns = [titled("Standbys", ratio=2), *words("mode")]
    columns += words("recovery") if wide else []
    columns += [*words("primary", "secondary"), *figures("behind"), names("state", None)]
    columns += figures("term") if wide else []
    items: list[list[Line]] = []
    for row in rows:
        replica = row.replica
        cells: list[str | Text] = [Text(short(replica.query)), MODE_NAMES[replica.mode]]
        cells += [replica.recovery.value] if wide else []
        cells += [
            Text(replica.primary[:SHORT_ID] or "-"),
            Text(replica.secondary[:SHORT_ID] or "-"),
        ]
        cells += [_behind(row), styled(row.state)]
        cells += [str(replica.term_number)] if wide else []
        items.append([cells])
    return Section("Standbys", columns, items)


def _behind(row: Standby) -> Text:
    replica = row.replica
    if replica.behind_us < 0 or not replica.secondary or row.state == SUPERSEDED:
        return Text("-", "dim")
    return Text(show_duration(replica.behind_us / 1e6))
