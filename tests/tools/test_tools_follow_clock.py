"""A file is followed into a stream whose boundary moves with the clock."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Place, make_stream, open_cluster, until
from programs import medusa_command

from examples import examples
from medusa.engine.objects.definitions import Idle
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.events import wall_clock
from medusa.tools.commands.medusa.post_file import Options, post_rows

pytestmark = pytest.mark.process

SLACK_US = 300_000
AWAY_US = 600_000_000
"""Twice the time that a follower takes to restart on a busy machine."""

RESTARTS = examples(3, soak=20)


class Log:
    """A log that a program writes to, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        path.write_text("t,name,value\n")

    def write(self, *times: int) -> None:
        with self.path.open("a") as file:
            for time in times:
                self.lines += 1
                file.write(f"{time},x,{self.lines}\n")

    async def write_on(self, over: trio.Event) -> None:
        while not over.is_set():
            self.write(now_us())
            await trio.sleep(0.02)

    def rotate(self) -> None:
        """Rotate the log during writes, as logrotate does."""
        self.path.rename(self.path.with_name("log.csv.1"))
        self.path.write_text("t,name,value\n")


def now_us() -> int:
    return int(wall_clock() * 1e6)


def follower(stream: str, log: Log, mit: Place) -> subprocess.Popen[bytes]:
    home = ("--home", str(mit.home.folder))
    command = medusa_command("post", stream, str(log.path), "--follow", "--quiet", *home)
    return subprocess.Popen(command, stderr=subprocess.PIPE)


async def test_kills_make_nothing_late_that_was_on_time(tmp_path: Path) -> None:
    """The follower's own place moves the boundary, not the clock, which runs on without it."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    log, over, rng = Log(tmp_path / "log.csv"), trio.Event(), Random(1)
    async with open_cluster(folder) as cluster, trio.open_nursery() as nursery:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(
                client, mit, "s", idle=Idle.CLOCK, idle_timeout_us=AWAY_US, slack_us=SLACK_US
            )
        nursery.start_soon(log.write_on, over)
        leader = mit.state(stream).leader
        assert leader is not None
        accepted = leader.source.acceptance
        for number in range(RESTARTS):
            before = accepted.rows
            process = await trio.to_thread.run_sync(follower, stream, log, mit)
            if number % 3 < 2:  # otherwise while it begins
                await until(lambda before=before: accepted.rows > before)
            await trio.sleep(rng.uniform(0.0, 1.5))
            assert process.poll() is None, process.communicate()[1]
            process.kill()
            process.communicate()
            if number % 3 == 1:
                log.rotate()
        process = await trio.to_thread.run_sync(follower, stream, log, mit)
        over.set()
        try:
            with trio.fail_after(DEADLINE_S):
                await until(lambda: accepted.rows == log.lines)
            assert accepted.late_rows == 0
            end = now_us() - SLACK_US
            await until(lambda: leader.boundary > end, "the file is quiet, and time goes on")
        finally:
            process.kill()
            process.communicate()


async def test_a_follower_whose_rows_are_all_late_fails(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    log, old = Log(tmp_path / "log.csv"), now_us() - 3_600_000_000
    log.write(old, old + 1, old + 2)
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(client, mit, "s", idle=Idle.CLOCK, idle_timeout_us=0)
            leader = mit.state(stream).leader
            assert leader is not None
            await until(lambda: leader.boundary > old + 3)
            with pytest.raises(InvalidInputError, match=r"not one of 3 rows .*--idle-timeout"):
                await post_rows(client, stream, str(log.path), Options(follow=True, quiet=True))


async def test_old_rows_come_in_time_to_a_new_stream(tmp_path: Path) -> None:
    """The clock waits for the first producer, and then for it until it is done."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    log, old = Log(tmp_path / "log.csv"), now_us() - 3_600_000_000
    log.write(old, old + 1, old + 2)
    async with open_cluster(folder) as cluster:
        mit = await cluster.settle("mit.edu")
        async with mit.client() as client:
            stream = await make_stream(client, mit, "s", idle=Idle.CLOCK)
            leader = mit.state(stream).leader
            assert leader is not None
            await trio.sleep(2.0)  # epochs of the clock
            done = await post_rows(client, stream, str(log.path), Options())
            assert (done.rows, done.late) == (3, 0)
        await until(lambda: leader.boundary > old + 3, "nobody holds it any more")
