"""The monitor's screen is a pure function, fits the terminal, and shows first what needs a
person."""

from __future__ import annotations

import io
import json
from enum import Enum
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console, RenderableType

from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.records.status import (
    EventRecord,
    PeerStatus,
    ReplicaStatus,
    Snapshot,
)
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.tasks.status import TaskStatus
from medusa.engine.tasks.waiting import Held, Waiting
from medusa.overlay.errors import UnavailableError
from medusa.overlay.troubles import Reason, Trouble
from medusa.tools.client.times import show_duration, show_time
from medusa.tools.commands.command_line import json_text
from medusa.tools.commands.medusa.listing_screen import peers_table
from medusa.tools.home.messages import ContractStatus, MarketStatus, MoveStatus, TradedTask
from medusa.tools.monitor.render import render
from medusa.tools.monitor.screen import Seen, screen
from medusa.tools.monitor.tables import SECTION_LINES, share

NOON = 1521892800_000_000


def _peer(number: int, **changes: object) -> PeerStatus:
    values: dict[str, object] = {
        "participant": f"lab{number}.example.edu",
        "peer": f"{number:040x}",
        "address": f"127.0.0.1:{7000 + number}",
        "state": "running",
        "capacity": 2.0,
    }
    return PeerStatus(**(values | changes))  # type: ignore[arg-type]


def _snapshot(peers: int = 3, streams: int = 4, tasks: int = 3, events: int = 5) -> Snapshot:
    busy = _peer(
        0,
        spark="running",
        load=1.9,
        memory_bytes=200 * 2**20,
        streams=tuple(
            StreamStatus(f"medusa://mit.edu/s{n}", "source", float(n), NOON, 0.5, 1000, n, 2**21, 1)
            for n in range(streams)
        ),
        tasks=tuple(
            TaskStatus(f"medusa://mit.edu/t{n}", "q", (), NOON, 9, 50.0, n / 10, 8.0, "running")
            for n in range(tasks)
        ),
        events=tuple(EventRecord(1521892800.0 + n, "info", f"event-{n}") for n in range(events)),
    )
    return Snapshot(
        1521892860.0, busy.peer, "0123456789abcdef", (busy, *map(_peer, range(1, peers)))
    )


def _lines(drawn: RenderableType, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(drawn)
    return console.export_text().splitlines()


@settings(max_examples=60)
@given(
    st.sampled_from([80, 100, 120, 200]), st.integers(16, 60), st.tuples(*[st.integers(0, 40)] * 4)
)
def test_the_screen_fits_the_terminal(
    width: int, height: int, sizes: tuple[int, int, int, int]
) -> None:
    lines = _lines(render(_snapshot(max(1, sizes[0]), *sizes[1:]), width, height), width)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)


def test_without_a_height_everything_is_shown() -> None:
    text = "\n".join(_lines(render(_snapshot(20, 30, 10, 40), 120), 120))
    for name in ("lab19", "mit.edu/s29", "mit.edu/t9", "event-39"):
        assert name in text


def test_the_screen_counts_the_streams_that_do_not_fit() -> None:
    lines = _lines(render(_snapshot(3, 40, 0, 0), 80, 24), 80)
    hidden = next(line for line in lines if "Streams +" in line)
    shown = sum("mit.edu/s" in line for line in lines)
    assert f"Streams +{40 - shown} " in hidden


@given(st.integers(0, 60), st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_rooms_never_exceed_the_height(height: int, wanted: list[int]) -> None:
    rooms = share(height, wanted)
    assert all(room <= rows for room, rows in zip(rooms, wanted, strict=False))
    assert len(rooms) >= 1
    if height >= SECTION_LINES:
        assert sum(rooms) + SECTION_LINES * len(rooms) <= height
    if sum(wanted) + SECTION_LINES * len(wanted) <= height:
        assert rooms == wanted[: len(rooms)]


def test_the_shortest_needs_are_met_first() -> None:
    assert share(20, [50, 1, 3]) == [10, 1, 3]
    assert share(7, [9, 9, 9]) == [1, 2]


@pytest.mark.parametrize(
    ("state", "words"), [("up_failure", "tentative"), ("stabilization", "correcting")]
)
def test_a_stream_that_is_not_settled_says_so_and_comes_first(state: str, words: str) -> None:
    snapshot = _snapshot(1, 5, 0, 0)
    peer = snapshot.peers[0]
    shaky = StreamStatus("medusa://mit.edu/x", "follower", 0.0, NOON, 9, 1, 0, 1, 0, state=state)
    streams = (*peer.streams, shaky)
    lines = _lines(render(replace(snapshot, peers=(replace(peer, streams=streams),)), 80), 80)
    (line,) = [line for line in lines if "mit.edu/x" in line]
    assert words in line
    assert lines.index(line) < min(n for n, each in enumerate(lines) if "mit.edu/s" in each)


def test_troubles_that_need_a_person_come_first() -> None:
    snapshot = _snapshot(4)
    failing = TaskStatus("medusa://mit.edu/bad", "q", (), NOON, 0, 0, 0.0, 0, "failing", "no JVM")
    busy = snapshot.peers[0]
    peers = (
        PeerStatus(
            **{f: getattr(busy, f) for f in busy.__struct_fields__}
            | {"tasks": (*busy.tasks, failing)}
        ),
        *snapshot.peers[1:],
        PeerStatus("zzz.edu", "ff" * 20, "127.0.0.1:1", "unreachable"),
    )
    lines = _lines(render(Snapshot(snapshot.at, snapshot.by, snapshot.federation, peers), 120), 120)
    at = {
        word: next(i for i, line in enumerate(lines) if word in line) for word in ("Peers", "Tasks")
    }
    assert "zzz.edu" in lines[at["Peers"] + 1]
    assert "unreachable" in lines[at["Peers"] + 1]
    assert "mit.edu/bad" in lines[at["Tasks"] + 1]
    assert lines[at["Tasks"] + 2].strip() == "no JVM"


def test_markup_of_strangers_is_only_text() -> None:
    event = EventRecord(0.0, "info", "[bold red]not markup[/]")
    text = "\n".join(_lines(render(Snapshot(0.0, "", "f", (_peer(1, events=(event,)),)), 80), 80))
    assert "[bold red]not markup[/]" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_warning_is_shown_whole_and_news_on_one_line(width: int) -> None:
    """The mend is at the end of a warning."""
    warning = (
        "mit.edu/flows: logs/flows/0000.parquet is damaged (page 3: wrong checksum): put aside as"
        " 0000.parquet.damaged; 512 rows are fetched from the replica at bbbbbbbbbb"
    )
    events = (EventRecord(0.0, "warning", warning), EventRecord(1.0, "info", "news " * 40))
    lines = _lines(render(Snapshot(0.0, "", "f", (_peer(1, events=events),)), width, 24), width)
    assert len(lines) <= 24
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("Events"))
    shown = " ".join(line.strip() for line in lines[at + 1 :])
    assert warning in " ".join(shown.split())
    assert shown.count("news") < 40


def test_an_old_screen_says_why() -> None:
    failure = UnavailableError("gone")
    lines = _lines(screen(Seen(_snapshot(), None), failure, 80, 24).drawn, 80)
    assert "no answer: gone" in lines[0]
    assert len(lines) <= 24
    assert len(_lines(screen(None, failure, 80, 24).drawn, 80)) == 1


@pytest.mark.parametrize(
    ("boundary", "shown"),
    [
        (BEGINNING, "-"),
        (END, "ended"),
        (NOON, "2018-03-24 12:00:00"),
        (END - 1, "+294247-01-10 04:00:54"),
    ],
)
def test_boundaries(boundary: int, shown: str) -> None:
    assert show_time(boundary) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (60, "1m00s"),
        (3725, "1h02m"),
        (90_000, "1d01h"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


ESCAPE = "\x1b[31m\x9b2J\u202e[/bold][red]\r\n\x00:smile:"
TEXT = st.sampled_from([ESCAPE, "[/bold]", "medusa://mit.edu/s", "x" * 2000, ""]) | st.text()
INTEGER = st.sampled_from([2**64 - 1, -(2**63), 2**63, 0]) | st.integers(-(2**63), 2**64 - 1)


def _said_by_anybody(type_: Any) -> st.SearchStrategy[Any]:
    """Draw any value of that type that the wire can carry."""
    if get_origin(type_) is tuple:
        return st.lists(_said_by_anybody(get_args(type_)[0]), max_size=3).map(tuple)
    if isinstance(type_, UnionType):
        return st.one_of(map(_said_by_anybody, get_args(type_)))
    if issubclass(type_, Enum):
        return st.sampled_from(list(type_))
    if issubclass(type_, msgspec.Struct):
        hints = get_type_hints(type_)
        return st.builds(type_, **{name: _said_by_anybody(hint) for name, hint in hints.items()})
    return {str: TEXT, int: INTEGER, float: st.floats(), type(None): st.none()}[type_]


@settings(max_examples=150)
@given(
    st.lists(_said_by_anybody(PeerStatus), min_size=1, max_size=3),
    st.floats(),
    st.sampled_from([80, 120]),
    st.none() | st.integers(5, 40),
)
def test_whatever_peers_say_of_themselves_is_drawn(
    peers: list[PeerStatus], at: float, width: int, height: int | None
) -> None:
    snapshot = Snapshot(at, peers[0].peer, ESCAPE, tuple(peers))
    console = Console(width=width, file=io.StringIO(), color_system=None, force_terminal=True)
    console.print(render(snapshot, width, height))
    drawn = cast("io.StringIO", console.file).getvalue()
    assert all(line.isprintable() for line in drawn.split("\n"))
    assert all(cell_len(line) <= width for line in drawn.split("\n"))
    assert json.loads(json_text(snapshot), parse_constant=pytest.fail)["by"] == peers[0].peer


@settings(max_examples=60)
@given(_said_by_anybody(MarketStatus), st.sampled_from([80, 120]))
def test_whatever_a_market_has_is_drawn(market: MarketStatus, width: int) -> None:
    console = Console(width=width, file=io.StringIO(), color_system=None, force_terminal=True)
    console.print(render(_snapshot(), width, None, market))
    drawn = cast("io.StringIO", console.file).getvalue()
    assert all(line.isprintable() for line in drawn.split("\n"))


def test_as_many_whole_events_as_fit_are_shown_and_the_others_counted() -> None:
    events = tuple(
        EventRecord(float(n), "warning", f"begins{n} " + "word " * 40 + f"ends{n}.")
        for n in range(20)
    )
    text = "\n".join(_lines(render(Snapshot(0.0, "", "f", (_peer(1, events=events),)), 80, 24), 80))
    shown = [n for n in range(20) if f"begins{n} " in text]
    assert shown == [n for n in range(20) if f"ends{n}." in text]
    assert 1 < len(shown) < 20
    assert shown[-1] == 19
    assert text.index("begins19") < text.index("begins18"), "the latest first"
    assert f"Events +{20 - len(shown)}" in text


def test_all_commands_show_a_silent_peer_by_the_same_word() -> None:
    """The monitor and the list use the same word as `medusa status`."""
    away = _peer(1, state="unreachable", health="dead")
    seen = Snapshot(0.0, "", "f", (away, _peer(2, health="dead")))
    for drawn, width in (
        (render(seen, 80), 80),
        (render(seen, 120), 120),
        (peers_table(seen), 120),
    ):
        text = "\n".join(_lines(drawn, width))
        assert "dead" not in text
        assert "unreachable" in text


def test_an_event_that_happens_again_is_one_line_with_how_often() -> None:
    events = tuple(
        EventRecord(float(n), "info", f"medusa://mit.edu/t waits since {n} s", times=2)
        for n in range(45)
    )
    others = [EventRecord(9.0, "info", f"peer p{n} is dead") for n in (1, 2)]
    peer = _peer(1, events=(*events, *others))
    lines = _lines(render(Snapshot(0.0, "", "f", (peer,)), 80), 80)
    assert [line.strip() for line in lines if "waits since" in line] == [
        "00:00:44  lab1.example.edu  90\N{MULTIPLICATION SIGN} mit.edu/t waits since 44 s"
    ]
    assert sum("is dead" in line for line in lines) == 2, "figures of names are no figures"


def test_an_error_names_the_id_that_finds_it_in_the_log_and_ids_of_peers_are_short() -> None:
    event = EventRecord(0.0, "error", f"post failed for {'ab' * 20}", cause="3fa9c1d2ab")
    text = "\n".join(_lines(render(Snapshot(0.0, "", "f", (_peer(1, events=(event,)),)), 120), 120))
    assert "post failed for abababab [3fa9c1d2ab]" in text


def test_a_task_that_waits_says_for_what_and_how_long() -> None:
    task = TaskStatus("medusa://mit.edu/t", "q", (), NOON, 9, 50.0, 0.1, 8.0, "waiting")
    flows = Waiting("medusa://utah.edu/flows", NOON, 0.5, Held.WINDOW, NOON + 19_999_999)
    brief = replace(task, waits=flows)
    long = replace(brief, name="medusa://mit.edu/u", waits=replace(flows, seconds=75.0))
    peer = _peer(1, tasks=(brief, long))
    lines = _lines(render(Snapshot(0.0, "", "f", (peer,)), 80), 80)
    at = lines.index(next(line for line in lines if "waits for" in line))
    assert " ".join(line.strip() for line in lines[at : at + 2]) == (
        f"the window that ends {show_time(NOON + 20_000_000)} waits for utah.edu/flows to pass it; "
        f"utah.edu/flows stands at {show_time(NOON)}, for 1m15s"
    )
    assert sum("waits for" in line for line in lines) == 1, "it has waited for a moment only"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_why_a_task_fails_is_shown_whole_over_the_width_of_the_screen(width: int) -> None:
    reason = "Spark does not start: " + " ".join(f"word{n}" for n in range(60)) + " mend-it"
    names = ("a-rather-long-name-of-a-stream-that-is-cut", "u")
    failing, running = (
        TaskStatus(f"medusa://mit.edu/{name}", "q", (), NOON, 9, 50.0, 0.1, 8.0, "failing", reason)
        for name in names
    )
    peer = _peer(1, tasks=(failing, replace(running, state="running", reason="")))
    lines = _lines(render(Snapshot(0.0, "", "f", (peer,)), width), width)
    first = next(number for number, line in enumerate(lines) if "a-rather-long" in line)
    told, rest = [], lines[first + 1 :]
    while "mit.edu/u" not in rest[0]:
        told.append(rest.pop(0))
    assert " ".join(" ".join(told).split()) == reason
    assert max(map(len, told)) > 0.8 * width
    assert "running" in rest[0], "the rows below are cells again"


def test_why_a_task_fails_ends_with_dots_where_it_has_no_room() -> None:
    reason = "Spark does not start: " + " ".join(f"word{n}" for n in range(60))
    task = TaskStatus(
        "medusa://mit.edu/t", "q", (), NOON, 9, 50.0, 0.1, 8.0, "failing", reason=reason
    )
    snapshot = _snapshot(peers=9, streams=9, tasks=0, events=9)
    peers = (replace(snapshot.peers[0], tasks=(task,)), *snapshot.peers[1:])
    lines = _lines(screen(Seen(replace(snapshot, peers=peers), None), None, 80, 24).drawn, 80)
    shown = [line.rstrip() for line in lines if "word" in line]
    assert [line.endswith("…") for line in shown] == [False, True]


@pytest.mark.parametrize("width", [80, 120])
def test_all_tables_have_a_tab_that_can_be_read(width: int) -> None:
    query = "medusa://lab1.example.edu/q"
    modes = Mode.ACTIVE_STANDBY, Recovery.PRECISE
    replica = ReplicaStatus(query, "primary", *modes, 1, f"{1:040x}", "s", 0, "caught up")
    peer = _peer(
        1,
        troubles=(Trouble(Reason.CERTIFICATE_ENDS, "its certificate", "ends"),),
        replicas=(replica,),
    )
    seen = _snapshot(peers=46, streams=120, tasks=46, events=250)
    market = MarketStatus(
        contracts=(ContractStatus("utah.edu", "ab" * 16),),
        taken=(TradedTask("t", "p"),),
        moves=(MoveStatus(0.0, "t", "p", "q"),),
    )
    seen = replace(seen, peers=(*seen.peers, peer))
    lines = _lines(screen(Seen(seen, market), None, width, 24).drawn, width)
    tabs = " ".join(lines[1:3])
    for title in ("All", "To mend 1", "Peers 47", "Streams 120", "Tasks 46", "Events 250"):
        assert title in tabs
    for title in ("Standbys 1", "Market 1", "Contracts 1", "Traded 1", "Moves 1"):
        assert title in tabs
    assert "…" not in tabs
    assert len(lines) <= 24


def test_a_stream_in_which_nothing_comes_is_idle_and_not_behind() -> None:
    busy = StreamStatus("medusa://mit.edu/a", "source", 5.0, NOON, 8230.0, 1, 0, 1, 0)
    peer = _peer(1, streams=(busy, replace(busy, name="medusa://mit.edu/b", rate=0.0)))
    console = Console(width=80, file=io.StringIO(), record=True, force_terminal=True)
    console.print(render(Snapshot(0.0, "", "f", (peer,)), 80))
    styled = console.export_text(styles=True)
    assert "idle 2h17m" in styled
    assert styled.count("2h17m") == 2
    assert "\x1b[31m" not in styled.split("Streams")[1], "nothing of it is red"


def test_the_federation_is_called_by_its_name() -> None:
    named = replace(_snapshot(), federation="intrusion-watch", federation_id="0123456789abcdef")
    lines = _lines(render(named, 80), 80)
    assert "intrusion-watch" in lines[0]
    assert "01234567" not in lines[0]


def test_four_tables_have_three_lines_each_on_the_smallest_terminal() -> None:
    lines = _lines(screen(Seen(_snapshot(46, 46, 46, 46), None), None, 80, 24).drawn, 80)
    for title in ("Peers +43", "Streams +43", "Tasks +43", "Events +43"):
        assert any(line.strip().startswith(title) for line in lines), (title, lines)
    assert len(lines) <= 24


def test_troubles_come_first_and_whole() -> None:
    what = "ends in 29 days: " + "word " * 20 + "end"
    trouble = Trouble(Reason.CERTIFICATE_ENDS, "its certificate", what, "do renew it", 40.0)
    peer = _peer(1, troubles=(trouble,))
    lines = _lines(render(Snapshot(100.0, "", "f", (peer,)), 80, 24), 80)
    assert lines[1].strip() == "To mend"
    told = " ".join(" ".join(lines).split())
    assert "lab1.example.edu 00000000: its certificate ends" in told
    assert "word end; do renew it (for 1m00s)" in told
