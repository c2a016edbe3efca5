"""Late tuples within the allowed lateness become insertions beside the stream, once, over any
crash."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from engine_streams_data import ARRIVING, NOW, SCHEMA, P, all_rows, body

from medusa.engine.objects.alteration import Alteration, altered
from medusa.engine.objects.definitions import StreamDefinition, check_lateness, check_stream
from medusa.engine.objects.schema import END, REVISED_SEQ, REVISED_STIME, REVISION_KIND
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source.leader import Leader, open_leader
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.waiting import PENDING_SHARE
from medusa.overlay.errors import BusyError, InvalidInputError

CONFIG = SourceConfig(slack_us=10, lateness_us=50)


def leader_in(folder: Path, config: SourceConfig = CONFIG) -> AbstractAsyncContextManager[Leader]:
    return open_leader(folder, "s", SCHEMA, config, history_us=10**9, now=NOW)


def insertions(log: StreamLog | None) -> list[tuple[int, int, int, int]]:
    """Return (position, stime of the tuple, its number of arrival, its value) of each insertion."""
    assert log is not None
    found: list[tuple[int, int, int, int]] = []
    after = log.start
    while (epoch := log.reader.read(after)) is not None:
        assert set(epoch.table.column(REVISION_KIND).to_pylist()) <= {"INSERTION"}
        names = ("stime", REVISED_STIME, REVISED_SEQ, "value")
        found += zip(*(epoch.table.column(name).to_pylist() for name in names), strict=True)
        after = epoch.upto
    return found


async def post(leader: Leader, number: int, rows: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    posted = await leader.post(PostRequest(P, Post(number), body(rows)), now=NOW)
    return posted.rows, posted.inserted, posted.late, posted.boundary


async def test_late_ones_are_insertions_later_ones_are_late(tmp_path: Path) -> None:
    async with leader_in(tmp_path) as leader:
        assert await post(leader, 1, [(100, 1)]) == (1, 0, 0, 89)
        # 89 is behind the boundary; 40 is the first time within the lateness
        assert await post(leader, 2, [(40, 2), (39, 3), (89, 4), (90, 5)]) == (1, 2, 1, 89)
        assert await post(leader, 3, [(200, 6), (39, 7)]) == (1, 0, 1, 189)
        await leader.advance(NOW)
        assert await post(leader, 4, [(189, 8)]) == (0, 1, 0, 189)
        assert (leader.source.acceptance.late_rows, leader.source.acceptance.inserted_rows) == (
            2,
            3,
        )
        assert (await leader.post(PostRequest(P, Post(5, end=True)), now=NOW)).boundary == END
        assert await post(leader, 6, [(210, 9)]) == (0, 0, 1, END)  # the stream has ended
        await leader.advance(NOW)
        assert all_rows(leader.logs.stream) == [(90, 5), (100, 1), (200, 6)]
        assert insertions(leader.logs.revisions) == [
            (90, 40, 1, 2),
            (90, 89, 3, 4),
            (190, 189, 7, 8),
        ]
        assert [value for _, value in all_rows(leader.logs.late)] == [3, 7, 9]


async def test_a_retry_inserts_nothing_again(tmp_path: Path) -> None:
    async with leader_in(tmp_path) as leader:
        await post(leader, 1, [(100, 1)])
        await post(leader, 2, [(50, 2)])
        again = await leader.post(PostRequest(P, Post(2), body([(50, 2)])), now=NOW)
        assert (again.duplicate, again.rows, again.inserted) == (True, 0, 0)
        await post(leader, 3, [(300, 3)])
        await leader.advance(NOW)
        assert insertions(leader.logs.revisions) == [(90, 50, 1, 2)]


@pytest.mark.parametrize("steps", range(4))
async def test_a_crash_at_any_moment(tmp_path: Path, steps: int) -> None:
    """After that many posts the process dies, before or after its logs have advanced."""
    rows = [[(100, 1)], [(50, 2), (200, 3), (10, 4)], [(150, 5)], [(400, 6)]]
    number = 0
    for count in (steps, len(rows) - steps):
        async with leader_in(tmp_path) as leader:
            for _ in range(count):
                number += 1
                await post(leader, number, rows[number - 1])
    for advances in (False, True, True):
        async with leader_in(tmp_path) as leader:
            if advances:
                await leader.advance(NOW)
    async with leader_in(tmp_path) as leader:
        assert all_rows(leader.logs.stream) == [(100, 1), (200, 3)]
        assert insertions(leader.logs.revisions) == [(90, 50, 1, 2), (190, 150, 4, 5)]
        assert [value for _, value in all_rows(leader.logs.late)] == [4]
        await leader.post(PostRequest(P, Post(5, end=True)), now=NOW)
        await leader.advance(NOW)
        assert all_rows(leader.logs.stream) == [(100, 1), (200, 3), (400, 6)]


async def test_the_journal_goes_when_both_logs_have_its_tuples(tmp_path: Path) -> None:
    small = SourceConfig(slack_us=10, lateness_us=50, segment_bytes=600)
    async with leader_in(tmp_path, small) as leader:
        await post(leader, 1, [(100, 1)])
        for number in range(2, 30):
            await post(leader, number, [(80, number)])
        kept = len(leader.source.journal.segments)
        assert kept > 5, "they wait for the boundary"
        await post(leader, 30, [(500, 30)])
        await leader.advance(NOW)
        assert len(leader.source.journal.segments) < kept
        assert len(insertions(leader.logs.revisions)) == 28


async def test_insertions_take_a_share_of_the_memory(tmp_path: Path) -> None:
    """Insertions leave memory once the boundary moves; until then too many are refused."""
    small = SourceConfig(slack_us=10, lateness_us=5000, pending_bytes=200_000)
    async with leader_in(tmp_path, small) as leader:
        await post(leader, 1, [(10_000, 1)])
        await leader.advance(NOW)
        late = [(9_000, value) for value in range(1000)]
        number, refusal = 1, ""
        while not refusal:
            number += 1
            try:
                await leader.post(PostRequest(P, Post(number), body(late)), now=NOW)
            except InvalidInputError as error:
                refusal = str(error)
        assert "wait for the boundary to move" in refusal
        revisions = leader.source.revisions
        assert revisions is not None
        assert 0 < revisions.pending.bytes < PENDING_SHARE * small.pending_bytes + 30_000
        assert (
            await leader.post(PostRequest(P, Post(number, boundary=9_995)), now=NOW)
        ).boundary == 9_995
        with pytest.raises(BusyError, match="wait for their log"):
            await leader.post(PostRequest(P, Post(number + 1), body(late)), now=NOW)
        await leader.advance(NOW)
        assert (
            await leader.post(PostRequest(P, Post(number + 1), body(late)), now=NOW)
        ).inserted == 1000


def test_streams_that_can_have_none() -> None:
    stream = StreamDefinition("medusa://mit.edu/s", "medusa://mit.edu/event", lateness_us=10)
    check_stream(stream)
    check_lateness(stream, SCHEMA)
    with pytest.raises(InvalidInputError, match="no tuple is late where stime is the time of"):
        check_lateness(stream, ARRIVING)
    for wrong, match in (
        ({"table": True}, "a table has no lateness"),
        ({"query": "medusa://mit.edu/q"}, "only a source stream"),
        ({"history_us": 9}, "more than its history"),
        ({"lateness_us": -1}, "out of range"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            check_stream(msgspec.structs.replace(stream, **wrong))  # type: ignore[arg-type]


def test_allowed_lateness_can_only_become_less() -> None:
    stream = StreamDefinition("medusa://mit.edu/s", "medusa://mit.edu/event", lateness_us=10)
    assert altered(stream, Alteration(lateness_us=4)).lateness_us == 4
    for wrong in (0, 11):
        with pytest.raises(InvalidInputError, match="can only become less"):
            altered(stream, Alteration(lateness_us=wrong))
    with pytest.raises(InvalidInputError, match="more than its history"):
        altered(stream, Alteration(history_us=9))
    without = msgspec.structs.replace(stream, lateness_us=0)
    with pytest.raises(InvalidInputError, match="can only become less"):
        altered(without, Alteration(lateness_us=4))
