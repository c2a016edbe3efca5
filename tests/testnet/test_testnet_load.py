"""The parts of the load demonstration: verdicts, cast, questions and screen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.language.check import check_query
from medusa.engine.reading import read_document
from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.engine.tasks.plan import plan
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import BrokenError, InternalError
from medusa.testnet.connections import query as oracle
from medusa.testnet.connections.conn import ARROW, conn_schema
from medusa.testnet.connections.generate import generate
from medusa.testnet.connections.query import source_schema
from medusa.testnet.kit.cast import proposed_id
from medusa.testnet.load import script as places
from medusa.testnet.load.board import (
    MEAN_S,
    Load,
    LoadBoard,
    Observer,
    Recent,
    Sample,
    Settling,
    is_acceptable,
    is_overload,
    load_of,
)
from medusa.testnet.load.script import (
    WINDOW_S,
    Kind,
    Player,
    Tape,
    Watch,
    expected,
    watches_of,
)
from medusa.tools.home.messages import MarketStatus, MoveStatus

pytestmark = pytest.mark.usefixtures("autojump_clock")


# -- judging ---------------------------------------------------------------------------------------


def loads(*pairs: tuple[float, float], grain: float = 2.0) -> tuple[Load, ...]:
    return tuple(Load(load, capacity, (grain,) * 3) for load, capacity in pairs)


@pytest.mark.parametrize(
    ("given_loads", "good", "overload"),
    [
        (loads((15, 15), (10, 15), (0, 15)), True, False),
        (loads((15.4, 15), (10, 15)), True, False),  # noise
        # one peer is above its capacity although another one has room
        (loads((16, 15), (10, 15)), False, False),
        (loads((20, 15), (16, 15), (15, 15)), True, True),
        (loads((20, 15), (16, 15), (13.5, 15)), True, True),  # no peer has room for a task of 2
        (loads((30, 15), (16, 15), (12.5, 15)), False, True),  # one peer has room for a task
        (loads((17, 15), (13.5, 15)), True, True),
        # one peer is below its capacity, so the system is not overloaded
        (loads((16.5, 15), (13.5, 15)), False, False),
        ((), True, False),
    ],
)
def test_acceptable(given_loads: tuple[Load, ...], good: bool, overload: bool) -> None:
    assert is_acceptable(given_loads) is good
    assert is_overload(given_loads) is overload


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(1, 50)), max_size=5))
def test_loads_are_acceptable_unless_one_idles_beside_an_overload(
    pairs: list[tuple[float, float]],
) -> None:
    within = tuple(Load(min(load, capacity), capacity, (1.0,)) for load, capacity in pairs)
    assert is_acceptable(within)
    beside = (*within, Load(100.0, 10.0, (1.0,)), Load(0.0, 10.0))
    assert not is_acceptable(beside)


def test_means_are_of_the_last_seconds_only() -> None:
    recent = Recent()
    assert recent.means() == {}
    recent.add(Sample(0.0, {"a": Load(100.0, 15.0)}))
    recent.add(Sample(MEAN_S, {"a": Load(10.0, 15.0), "b": Load(5.0, 9.0)}))
    recent.add(Sample(MEAN_S + 1, {"a": Load(20.0, 16.0, (2.0,)), "b": Load(5.0, 9.0)}))
    assert recent.means() == {"a": Load(15.0, 16.0, (2.0,)), "b": Load(5.0, 9.0)}


def test_settled_only_after_a_while_without_a_break() -> None:
    settling = Settling(10.0)
    told = [
        settling.is_settled(now, good=good)
        for now, good in ((0, True), (9, True), (9.5, False), (10, True), (19, True), (20, True))
    ]
    assert told == [False, False, False, False, False, True]


# -- the questions ---------------------------------------------------------------------------------


def test_questions_are_one_task_each_and_check() -> None:
    for watch in watches_of("mit.edu", 8, 2):
        source = "medusa://mit.edu/conns"
        (query,) = read_document(watch.document(source)).queries
        known = {source: conn_schema(source_schema("mit.edu"))}
        schemas = check_query(query, known)
        (task,) = plan(query, schemas)
        assert (query.name, task.name) == (watch.query, watch.answer)


def test_no_two_questions_are_the_same() -> None:
    watches = watches_of("mit.edu", 16, 2)
    assert len({watch.answer for watch in watches}) == 16
    assert len({(watch.kind, watch.threshold) for watch in watches}) == 16
    for kind in Kind:
        assert {watch.sensor for watch in watches if watch.kind is kind} == {0, 1}


def test_the_batch_answers_are_the_papers_where_they_ask_the_same() -> None:
    tables = generate(3, 2, rows=20_000)
    watches = [Watch("a.edu", 0, Kind.BUSY, 1, 100), Watch("a.edu", 0, Kind.SCAN, 1, 10)]
    answers, papers = expected(tables, watches), oracle.expected(tables)
    assert [answers[watch] for watch in watches] == [papers["busy"], papers["scan"]]
    assert papers["busy"]
    assert papers["scan"]


def connections(*rows: tuple[float, str, str, int]) -> pa.Table:
    columns = {
        "ts": [row[0] for row in rows],
        "src_ip": [row[1] for row in rows],
        "dst_ip": [row[2] for row in rows],
        "dst_port": [row[3] for row in rows],
    }
    arrays = [pa.array(columns.get(field.name, [None] * len(rows)), field.type) for field in ARROW]
    return pa.table(arrays, schema=ARROW)


def test_the_batch_answers_by_hand() -> None:
    table = connections(
        (1.0, "a", "x", 1), (2.0, "a", "y", 1), (59.9, "b", "x", 1), (60.0, "a", "z", 2)
    )
    sweep, target = Watch("o", 0, Kind.SWEEP, 1, 1), Watch("o", 0, Kind.TARGET, 1, 1)
    assert expected([table], [sweep, target]) == {sweep: [(0, "a", 2)], target: [(0, "x", 2)]}


# -- the traffic -----------------------------------------------------------------------------------


@given(
    times=st.lists(st.integers(100, 400).map(float), min_size=1, max_size=30),
    steps=st.lists(st.integers(0, 300).map(float), min_size=1, max_size=8),
    ahead=st.integers(0, 60).map(float),
)
def test_a_tape_loses_nothing_repeats_nothing_and_never_goes_back(
    times: list[float], steps: list[float], ahead: float
) -> None:
    trace = connections(*((at, "a", "b", number) for number, at in enumerate(sorted(times))))
    tape, played = Tape(trace, ahead), []
    for seconds in steps:
        for part in tape.forward(seconds):
            played += list(zip(part["ts"].to_pylist(), part["dst_port"].to_pylist(), strict=True))
    assert played == sorted(played, key=lambda row: row[0])
    # computed by hand: the endless tape, cut where the time played so far ends
    start = min(times) // WINDOW_S * WINDOW_S
    span = (max(times) // WINDOW_S + 1) * WINDOW_S - start
    until = ahead + sum(steps)
    rounds = range(int(until // span) + 1)
    wanted = [
        port
        for turn in rounds
        for at, port in zip(sorted(times), range(99), strict=False)
        if at - start + turn * span < until
    ]
    assert [port for _, port in played] == wanted


class Stream:
    """A stand-in for a stream: it takes each post after `takes_s` seconds."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.tables: list[pa.Table] = []
        self.ended = False

    async def post_event(self, _: str, table: pa.Table | None, *, end: bool = False) -> None:
        await trio.sleep(self.takes_s)
        self.ended = end
        if table is not None:
            self.tables.append(table)

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_player_keeps_what_it_posts_and_follows_its_speed() -> None:
    stream, rows = Stream(), []
    tape = Tape(generate(1, 1, rows=5_000)[0])
    player = Player(tape, stream, "s", 10.0, rows.append)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(player.run)
        await trio.sleep(60)
        player.speed = 30.0
        await trio.sleep(60)
        player.end()
    assert stream.ended
    assert stream.tables == player.posted
    assert sum(rows) == sum(table.num_rows for table in player.posted)
    ts = pa.concat_tables(player.posted)["ts"]
    assert pc.max(ts).as_py() - pc.min(ts).as_py() == pytest.approx(10 * 60 + 30 * 60, abs=15)


async def test_a_slow_peer_is_not_pushed() -> None:
    stream = Stream(takes_s=5.0)
    player = Player(Tape(generate(1, 1, rows=5_000)[0]), stream, "s", 10.0)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(player.run)
        await trio.sleep(59)
        player.end()
    assert len(stream.tables) == 12


# -- the peers and tasks ---------------------------------------------------------------------------


def test_the_cast_can_do_what_the_steps_want() -> None:
    """A has too many tasks for B or C alone; with D there is room for all tasks after the rise."""
    a, b, c, d = places.EVERYBODY
    excess = a.tasks - a.room
    assert excess > max(b.room - b.tasks, c.room - c.tasks)
    assert sum(place.tasks for place in places.FOUNDERS) <= sum(
        int(place.room) for place in places.FOUNDERS
    )
    founders = sum(place.room for place in places.FOUNDERS)
    risen = places.OVERLOAD * founders
    assert risen + d.tasks < 0.9 * (founders + d.room)
    at_most = a.tasks + b.tasks * places.RAISE**places.RAISES + c.tasks
    assert at_most > 1.2 * risen


def test_the_peers_configs_are_read(tmp_path: Path) -> None:
    from medusa.tools.home.config import load_config
    from medusa.tools.home.folder import Home

    (tmp_path / "medusa.toml").write_text(places.A.config)
    config = load_config(Home(tmp_path))
    assert config.engine.capacity_cores == pytest.approx(places.A.capacity / 100)


def test_the_contracts_id_is_read_from_the_output_of_propose() -> None:
    assert proposed_id('{"contract": "0f", "state": "proposed", "terms": {}}') == "0f"
    with pytest.raises(InternalError, match="said 'sorry'"):
        proposed_id("sorry\n")


# -- observations ----------------------------------------------------------------------------------


def status(peer: str, *tasks: float) -> PeerStatus:
    told = tuple(
        TaskStatus(f"t{number}", "q", (), 0, 0, 0.0, load, 0.0, "waiting")
        for number, load in enumerate(tasks)
    )
    return PeerStatus("x", peer, "", "running", load=sum(tasks), capacity=0.15, tasks=told)


class Peer:
    """A client whose answers the test sets."""

    def __init__(self, peer: str, *tasks: float, market: MarketStatus | None = None) -> None:
        self.told = status(peer, *tasks)
        self.market = market
        self.busy = False

    async def status(self, *, federation: bool) -> Snapshot:
        await trio.lowlevel.checkpoint()
        assert not federation
        if self.busy:
            raise BrokenError("busy with other things")
        return Snapshot(0.0, self.told.peer, "f", (self.told,))

    async def market_status(self) -> MarketStatus | None:
        await trio.lowlevel.checkpoint()
        return self.market


def test_loads_are_the_markets_where_there_is_one() -> None:
    told = status("aa", 0.02, 0.03)
    assert load_of(told, None) == Load(pytest.approx(5.0), 15.0, (2.0, 3.0))  # type: ignore[arg-type]
    assert load_of(told, MarketStatus(capacity=16.0, load=4.0)) == Load(4.0, 16.0, (2.0, 3.0))


def test_a_task_that_runs_elsewhere_is_no_task_here() -> None:
    told = status("aa", 0.02, 0.03)
    away = msgspec.structs.replace(told.tasks[0], worker="bb")
    told = msgspec.structs.replace(told, tasks=(away, told.tasks[1]))
    assert load_of(told, None).tasks == (3.0,)


async def test_the_observer_writes_down_loads_and_each_move_once() -> None:
    board = LoadBoard(seconds=trio.current_time)

    def market(at: float) -> MarketStatus:
        return MarketStatus(
            capacity=15.0, load=3.0, moves=(MoveStatus(at, "t", "aa", "bb", 5, 70.0, 9),)
        )

    # each side measures the end by its own clock
    clients = {
        "a": Peer("aa", 0.02, market=market(1_000.0)),
        "b": Peer("bb", market=market(1_000.4)),
    }
    observer = Observer(clients, board, wall=lambda: 1_000.0 + trio.current_time())  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(observer.run)
        await observer.next_look()
        clients["a"].told = status("aa", 0.04)
        clients["a"].busy = True
        await observer.next_look()
        await observer.next_look()
        nursery.cancel_scope.cancel()
    assert len(board.samples) == 3
    assert board.samples[-1].loads["a"] == Load(3.0, 15.0, (2.0,))
    (move,) = board.moves
    assert (move.task, move.origin, move.to, move.price) == ("t", "a", "b", 5)
    assert (move.stall_ms, move.carry_bytes) == (70.0, 9)
    assert abs(move.at) < 1.0
