"""Events on the monitor's screen: the latest first, without repetitions."""

from __future__ import annotations

import re
import textwrap
from typing import Final

from msgspec.structs import replace
from rich.text import Text

from medusa.engine.replication.records.status import EventRecord, Snapshot
from medusa.tools.client.times import show_clock
from medusa.tools.monitor.tables import PREFIX, SHORT_ID, STYLES, Line, Section, titled

_BORDER_CELLS: Final = 4
"""Columns that the borders left and right of a table's text take."""

_NARROWEST: Final = 20
"""Least columns to which an event is wrapped."""

_ID: Final = re.compile(r"\b([0-9a-f]{40})\b")

_FIGURE: Final = re.compile(r"(?<![\w.:/-])\d[\d.,]*(?![\w:/-])")
"""A pattern of a number that is not part of a name, an address or a time."""

_Kind = tuple[str, str]


def events_section(snapshot: Snapshot, width: int) -> Section:
    """One line for each event; as many as needed for a warning or an error, which ends with its
    mend. Events of one participant that differ only in numbers are merged and counted."""
    latest: dict[tuple[str, _Kind], EventRecord] = {}
    events = [(peer.participant, event) for peer in snapshot.peers for event in peer.events]
    for participant, event in sorted(events, key=lambda both: both[1].at):
        key = participant, (event.level, _FIGURE.sub("#", event.text))
        before = latest.pop(key, None)
        times = event.times + (before.times if before is not None else 0)
        latest[key] = replace(event, times=times)
    items = [
        _lines(participant, event, width) for (participant, _), event in reversed(latest.items())
    ]
    return Section("Events", [titled("Events")], items)


def _lines(participant: str, event: EventRecord, width: int) -> list[Line]:
    said = f"{show_clock(event.at)}  {participant}  "
    style = STYLES.get(event.level) or "not dim"
    text = shortened(event.text)
    if event.times > 1:
        said += f"{event.times}\N{MULTIPLICATION SIGN} "
    if event.cause and event.level == "error":
        text += f" [{event.cause}]"
    if event.level == "info":
        return [[Text(said, "dim").append(text, style)]]
    room = max(_NARROWEST, width - len(said) - _BORDER_CELLS)
    first, *more = textwrap.wrap(text, room) or [""]
    return [
        [Text(said, "dim").append(first, style)],
        *([Text(" " * len(said)).append(line, style)] for line in more),
    ]


def shortened(text: str) -> str:
    """The text without the common scheme of names, and with shortened ids of peers."""
    return with_short_ids(text).replace(PREFIX, "")


def with_short_ids(text: str) -> str:
    """The text with shortened ids of peers."""
    return _ID.sub(lambda found: found[1][:SHORT_ID], text)
