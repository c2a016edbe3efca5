"""The traffic of a scenario against clients that answer from the batch run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import BrokenError, DeadlineError, InternalError
from medusa.testnet.connections.generate import generate
from medusa.testnet.connections.query import COLUMNS, Answers, expected
from medusa.testnet.connections.traces import open_trace, write_trace
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.flow import flow, rows_of
from medusa.testnet.kit.patience import STILL_S
from medusa.testnet.kit.stages import State
from medusa.tools.client.async_client import Epoch

STREAMS = {name: f"medusa://owner.edu/{name}" for name in COLUMNS}


class World:
    """The posts of every client, and a subscriber's rows once all have ended."""

    def __init__(self, clients: int) -> None:
        self.posted: dict[str, list[pa.Table]] = {}
        self.left = clients
        self.ended = trio.Event()
        self.answers: Callable[[Answers], Answers] = lambda answers: answers
        self.upto = END

    def tables(self) -> list[pa.Table]:
        return [table for tables in self.posted.values() for table in tables]


class Client:
    """The calls of AsyncMedusaClient that a scenario's traffic makes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.statuses = 0

    async def post_event(self, stream: str, table: pa.Table | None, *, end: bool = False) -> None:
        await trio.lowlevel.checkpoint()
        if table is not None:
            self.world.posted.setdefault(stream, []).append(table)
        if end:
            self.world.left -= 1
            if not self.world.left:
                self.world.ended.set()

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    async def status(self) -> None:
        self.statuses += 1
        raise BrokenError("busy with other things")

    async def subscribe(self, stream: str, after: int, subscriber: str) -> AsyncIterator[Epoch]:
        assert after == BEGINNING
        assert subscriber
        await self.world.ended.wait()
        name = stream.rpartition("/")[2]
        rows = self.world.answers(expected(self.world.tables()))[name]
        middle = len(rows) // 2
        yield Epoch(after, 5, answer_table(name, rows[middle:]))
        yield Epoch(5, self.world.upto, answer_table(name, rows[:middle]))


def answer_table(name: str, rows: list[tuple[int, str, int]]) -> pa.Table:
    window, text, number = COLUMNS[name]
    return pa.table(
        {
            "stime": pa.array([row[0] * 10**6 + 59_999_999 for row in rows], pa.int64()),
            window: pa.array([row[0] * 10**6 for row in rows], pa.timestamp("us", "UTC")),
            "other": pa.array([0] * len(rows), pa.int64()),
            text: pa.array([row[1] for row in rows], pa.string()),
            number: pa.array([row[2] for row in rows], pa.int64()),
        }
    )


async def run(
    folder: Path,
    world: World,
    board: Board,
    *,
    speed: float | None = None,
    disturb: Callable[[], Awaitable[None]] | None = None,
) -> Answers:
    by_poster = {}
    for name, table in zip(("a.edu", "b.edu"), generate(1, 2, rows=6_000), strict=True):
        write_trace(folder / name, [table])
        by_poster[name] = [open_trace(folder / name)]
    clients = {name: Client(world) for name in ("a.edu", "b.edu", "owner.edu")}
    board.live = True
    with one_error():
        return await flow(  # type: ignore[arg-type, unused-ignore]
            clients,  # type: ignore[arg-type]
            by_poster,
            STREAMS,
            speed=speed,
            board=board,
            disturb=disturb,
        )


async def test_everything_is_posted_and_received(tmp_path: Path) -> None:
    world, board = World(clients=2), Board()
    answers = await run(tmp_path, world, board)
    traces = [pq.read_table(tmp_path / name) for name in ("a.edu", "b.edu")]
    assert answers == expected(traces)
    posted = [pa.concat_tables(tables) for tables in world.posted.values()]
    assert sorted(world.posted) == ["medusa://a.edu/conns", "medusa://b.edu/conns"]
    assert sum(table.num_rows for table in posted) == board.total
    assert all(posting.rows == posting.total for posting in board.posting.values())
    assert board.answers == {name: len(rows) for name, rows in answers.items()}
    assert board.stages["post"].state is State.DONE
    assert board.stages["answers"].state is State.DONE
    assert board.first_answer is not None


async def test_disturbance_runs_beside(tmp_path: Path) -> None:
    seen: list[str] = []

    async def disturb() -> None:
        await trio.lowlevel.checkpoint()
        seen.append("kill")

    await run(tmp_path, World(clients=2), Board(), disturb=disturb)
    assert seen == ["kill"]


async def test_paced_posting_takes_the_time_of_the_trace(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    board = Board(seconds=trio.current_time)
    began = trio.current_time()
    await run(tmp_path, World(clients=2), board, speed=60.0)
    assert 19.0 < trio.current_time() - began < 30.0


async def test_a_quiet_hour_in_a_paced_trace_is_no_fault(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    (table,) = generate(1, 1, rows=2_000)
    later = table.set_column(0, "ts", pc.add(table.column("ts"), 5_000.0)).cast(table.schema)
    write_trace(tmp_path / "t", [table, later])
    world, board = World(clients=1), Board(seconds=trio.current_time)
    with one_error():
        await flow(
            {"a.edu": Client(world), "owner.edu": Client(world)},  # type: ignore[dict-item]
            {"a.edu": [open_trace(tmp_path / "t")]},
            STREAMS,
            speed=1.0,
            board=board,
        )
    assert board.posting["a.edu"].rows == 2 * table.num_rows


async def test_a_stream_that_stops_short_is_a_fault(tmp_path: Path) -> None:
    world = World(clients=2)
    world.upto = 7
    with pytest.raises(InternalError, match="ended before the stream"):
        await run(tmp_path, world, Board())


async def test_silence_is_a_fault(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    world = World(clients=3)  # a world whose run never ends
    board = Board(seconds=trio.current_time)
    with pytest.raises(DeadlineError, match=r"nothing moved for 120 s; posted: \d,\d+ of"):
        await run(tmp_path, world, board)
    assert trio.current_time() >= STILL_S
    assert board.stages["answers"].state is State.FAILED


def test_rows_are_as_in_the_csv() -> None:
    rows = [(1_521_911_700, "10.0.0.1", 101), (-60, "fe80::1", 7)]
    for name in COLUMNS:
        assert rows_of(answer_table(name, rows), name) == rows
