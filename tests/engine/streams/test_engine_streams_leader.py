from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from deadline import DEADLINE_S
from engine_streams_data import NOW, P, Row, all_rows, body, home_in

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source import waiting
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.overlay.errors import StorageFullError


async def test_posts_reach_the_log_and_late_ones_theirs(tmp_path: Path) -> None:
    async with home_in(tmp_path) as leader:
        await leader.post(PostRequest(P, Post(1), body([(10, 1), (20, 2)])), now=NOW)
        with trio.fail_after(DEADLINE_S):
            await leader.wait_ready()
        assert await leader.advance(NOW)
        assert not await leader.advance(NOW)
        await leader.post(PostRequest(P, Post(2, end=True), body([(5, 3)])), now=NOW)
        assert await leader.advance(NOW)
        assert all_rows(leader.logs.stream) == [(10, 1), (20, 2)]
        assert [value for _, value in all_rows(leader.logs.late)] == [3]
        assert leader.source.acceptance.late_rows == 1
        assert (leader.boundary, leader.pending_bytes) == (END, 0)


async def test_late_tuples_come_into_their_log_after_the_stream_has_ended(tmp_path: Path) -> None:
    async with home_in(tmp_path) as leader:
        await leader.post(PostRequest(P, Post(1, end=True), body([(10, 1)])), now=NOW)
        assert await leader.advance(NOW)
        with trio.move_on_after(0.05) as idle:
            await leader.wait_ready()
        assert idle.cancelled_caught, "nothing waits"
        await leader.post(PostRequest(P, Post(2), body([(20, 2)])), now=NOW + 1)
        with trio.fail_after(DEADLINE_S):
            await leader.wait_ready()
        assert await leader.advance(NOW + 1)
        assert [value for _, value in all_rows(leader.logs.late)] == [2]
        assert not await leader.advance(NOW + 1)


async def test_many_producers_at_once_lose_nothing(tmp_path: Path) -> None:
    async with (
        home_in(tmp_path, SourceConfig(slack_us=10**6)) as leader,
        trio.open_nursery() as nursery,
    ):

        async def produce(producer: int, size: int) -> None:
            for n in range(20):
                rows = [(n * 1000 + i, producer * 10**6 + n * size + i) for i in range(size)]
                await leader.post(
                    PostRequest(Writer(f"p{producer}"), Post(n + 1), body(rows)), now=NOW
                )

        async def move() -> None:
            while leader.logs.stream.boundary < END:
                await leader.wait_ready()
                await leader.advance(NOW)

        nursery.start_soon(move)
        async with trio.open_nursery() as producers:
            for producer, size in enumerate((1, 3, 1500)):  # a thread handles the last ones
                producers.start_soon(produce, producer, size)
        await leader.post(PostRequest(Writer("last"), Post(1, end=True)), now=NOW)
        nursery.cancel_scope.deadline = trio.current_time() + DEADLINE_S
        await leader.logs.stream.wait_beyond(END - 1)
        rows = all_rows(leader.logs.stream, limit_rows=10**6)
        assert len(rows) == len({value for _, value in rows}) == 20 * 1504
        assert leader.source.acceptance.late_rows == 0


async def test_one_advance_takes_all_that_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "EPOCH_BYTES", 100)
    async with home_in(tmp_path) as leader:
        for n in range(5):
            await leader.post(
                PostRequest(P, Post(n + 1), body([(n * 10 + i, i) for i in range(10)])), now=NOW
            )
        await leader.advance(NOW)
        assert (leader.logs.stream.boundary, leader.logs.stream.files.rows) == (48, 49)
        assert len(list((tmp_path / "log").iterdir())) == 5


async def test_advance_cancelled_after_the_commit_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with home_in(tmp_path) as leader:
        await leader.post(PostRequest(P, Post(1), body([(10, 1), (20, 2)])), now=NOW)
        with trio.CancelScope() as scope:
            real = leader.logs.stream.commit

            async def commit(upto: int, table: Any) -> None:
                await real(upto, table)
                scope.cancel()

            monkeypatch.setattr(leader.logs.stream, "commit", commit)
            await leader.advance(NOW)
        assert scope.cancelled_caught
        monkeypatch.undo()
        await leader.advance(NOW)
        await leader.post(PostRequest(P, Post(2, end=True)), now=NOW)
        await leader.advance(NOW)
        assert all_rows(leader.logs.stream) == [(10, 1), (20, 2)]


POSTS: list[list[Row]] = [
    [(n * 10 + (i * 7) % 26 - 13, n * 10 + i) for i in range(6)] for n in range(12)
]


def test_a_crash_before_and_after_every_change_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the folder at each step (and of a half-done write) recovers to the same stream."""
    folder = tmp_path / "home"
    acknowledged = 0
    copies: list[tuple[Path, int]] = []
    config = SourceConfig(slack_us=5, segment_bytes=1500)

    def copy() -> None:
        place = tmp_path / f"copy{len(copies)}"
        shutil.copytree(folder, place)
        copies.append((place, acknowledged))

    def around(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **more: Any) -> Any:
            copy()
            done = real(*args, **more)
            copy()
            return done

        monkeypatch.setattr(owner, name, call)

    real_write = os.pwritev

    def torn_write(fd: int, buffers: Any, offset: int) -> int:
        data = b"".join(buffers)
        for length in (0, 5, 12, len(data) // 2, len(data) - 1):
            real_write(fd, [data[:length]], offset)
            os.ftruncate(fd, offset + length)
            copy()
        return real_write(fd, buffers, offset)

    async def run() -> None:
        nonlocal acknowledged
        async with home_in(folder, config) as leader:
            with monkeypatch.context():
                around(Path, "rename")
                around(Path, "unlink")
                around(os, "link")
                monkeypatch.setattr(os, "pwritev", torn_write)
                for number, rows in enumerate(POSTS, 1):
                    await leader.post(PostRequest(P, Post(number), body(rows)), now=NOW)
                    acknowledged = number
                    if number % 3 == 0:
                        await leader.advance(NOW)
                monkeypatch.undo()

    async def recover(place: Path, known: int) -> tuple[list[Row], list[int]]:
        async with home_in(place, config) as leader:
            found = (
                await leader.post(PostRequest(P, Post(known), body(POSTS[known - 1])), now=NOW)
                if known
                else None
            )
            assert found is None or found.duplicate, "an acknowledged post is there"
            for number, rows in enumerate(POSTS[known:], known + 1):
                await leader.post(PostRequest(P, Post(number), body(rows)), now=NOW)
            await leader.post(PostRequest(P, Post(len(POSTS) + 1, end=True)), now=NOW)
            await leader.advance(NOW)
            return all_rows(leader.logs.stream), [value for _, value in all_rows(leader.logs.late)]

    trio.run(run)
    late, rows, boundary = [], [], -(2**63)
    for row in (row for post in POSTS for row in post):
        (rows.append(row) if row[0] > boundary else late.append(row[1]))
        boundary = max(boundary, row[0] - 6)
    expected = sorted(rows, key=lambda row: row[0]), late
    assert late, "the scenario has late rows"
    assert len(copies) > 120
    for place, known in copies:
        assert trio.run(recover, place, known) == expected, place


CHILD = Path(__file__).with_name("posting_leader.py")


def test_killed_in_mid_posting_again_and_again(tmp_path: Path) -> None:
    """Real processes, real SIGKILL: every acknowledged tuple is stored once and in order."""
    acknowledged = 0
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for lines in (1, 60, 150, 37):
        command = [sys.executable, str(CHILD), str(tmp_path)]
        # The one post in flight may be stored or not: sending it again is right in both cases.
        with subprocess.Popen(
            [*command, str(acknowledged + 1)], stdout=subprocess.PIPE, text=True, env=here
        ) as child:
            assert child.stdout is not None
            for _ in range(lines):
                acknowledged = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *_numbers(child.stdout.read())])

    async def read() -> list[Row]:
        async with home_in(tmp_path) as leader:
            last = await leader.post(PostRequest(P, Post(acknowledged), body([(0, 0)])), now=NOW)
            assert last.duplicate
            await leader.post(PostRequest(Writer("q"), Post(1, end=True)), now=NOW)
            await leader.advance(NOW)
            assert leader.source.acceptance.late_rows == 0
            return all_rows(leader.logs.stream, limit_rows=10**6)

    rows = trio.run(read)
    stored = len(rows) // 20
    assert acknowledged <= stored <= acknowledged + 1
    assert rows == sorted(
        (number * 100 + (i * 37) % 100, number * 20 + i)
        for number in range(1, stored + 1)
        for i in range(20)
    )


def _numbers(text: str) -> list[int]:
    # The last line may be cut by the kill.
    return [int(line) for line in text.split("\n")[:-1] if line]


async def test_a_full_disk_refuses_and_loses_nothing(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2**20))
    config = SourceConfig(slack_us=100, segment_bytes=500_000)
    acknowledged: list[Row] = []
    refused = {"post": 0, "advance": 0}

    async with home_in(small_disk / "home", config, history_us=0) as leader:

        async def fill(upto: int) -> None:
            """Post until the disk is full, or that many times."""
            for number in range(len(acknowledged) // 1000 + 1, upto):
                rows = [
                    (n, n * 2_654_435_761 % 2**31)
                    for n in range(number * 1000, number * 1000 + 1000)
                ]
                try:
                    await leader.post(PostRequest(P, Post(number), body(rows)), now=NOW)
                except StorageFullError as error:
                    assert "no room for" in str(error)  # noqa: PT017
                    refused["post"] += 1
                    return
                acknowledged.extend(rows)
                try:
                    await leader.advance(NOW)
                except StorageFullError:
                    refused["advance"] += 1
            pytest.fail("the disk never filled")

        await fill(500)
        with pytest.raises(StorageFullError):
            await leader.post(
                PostRequest(P, Post(len(acknowledged) // 1000 + 1), body([(10**9, 1)] * 10**4)),
                now=NOW,
            )
    assert refused["post"]
    assert len(acknowledged) > 10_000

    async with home_in(small_disk / "home", config, history_us=0) as leader:
        ballast.unlink()
        rows = [(10**8 + i, i) for i in range(1000)]
        await leader.post(
            PostRequest(P, Post(len(acknowledged) // 1000 + 1, end=True), body(rows)), now=NOW
        )
        await leader.advance(NOW)
        assert all_rows(leader.logs.stream, limit_rows=10**6) == acknowledged + rows
        assert leader.boundary == END == leader.logs.stream.boundary
    assert not list(small_disk.rglob(".tmp*"))  # noqa: ASYNC240


@pytest.mark.parametrize("kept", [0, 3, 9])
async def test_missing_files_at_the_end_of_a_log_are_lost_and_named(
    tmp_path: Path, kept: int
) -> None:
    """The interval that the journal no longer has is lost; the rest returns."""
    config = SourceConfig(segment_bytes=1)  # each post gets a segment of its own
    async with home_in(tmp_path, config) as leader:
        for n in range(1, 10):
            await leader.post(
                PostRequest(P, Post(n, boundary=10 * n), body([(10 * n, n)])), now=NOW
            )
            await leader.advance(NOW)
    files = sorted((tmp_path / "log").iterdir(), key=lambda path: int(path.stem.split("_")[1]))
    assert len(files) == 9
    for path in files[kept:]:
        path.unlink()
    for again in range(2):
        async with home_in(tmp_path, config) as leader:
            log = leader.logs.stream
            if kept == 9:
                assert not log.files.lost
            elif kept or not again:
                (lost,) = log.files.lost
                assert lost.upto >= 80, "the segments before the last are gone"
                assert lost.after == (10 * kept or BEGINNING)
            at = 100 + again
            await leader.post(
                PostRequest(P, Post(10 + again, boundary=at), body([(at, 1)])), now=NOW
            )
            await leader.advance(NOW)
            assert log.boundary == at
            whole = [(time, value) for time, value in all_rows(log, after=log.files.whole_from)]
            assert whole[-1] == (at, 1)
