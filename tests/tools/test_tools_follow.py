"""Live data: lines of a pipe, and files that grow, are rotated and truncated."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from programs import medusa_command
from tools_fake_peer import STREAM, FakePeer, fake_peer_in_thread
from trio.testing import MockClock

from medusa.tools.commands.medusa.follow import LOOK_S, Successors

pytestmark = pytest.mark.process


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[FakePeer]:
    with fake_peer_in_thread(tmp_path / "home") as peer:
        yield peer


def names(peer: FakePeer) -> list[str]:
    return [name for table in list(peer.tables) for name in table.column("name").to_pylist()]


def wait_for(peer: FakePeer, *wanted: str) -> None:
    """Wait until the stream has exactly these rows."""
    with peer.moved:
        peer.moved.wait_for(lambda: len(names(peer)) >= len(wanted), DEADLINE_S)
    assert names(peer) == list(wanted)


@contextmanager
def posting(peer: FakePeer, file: Path | str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    home = ("--home", str(peer.home.folder))
    command = medusa_command("post", STREAM, str(file), *home)
    process = subprocess.Popen(
        [*command, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def append(file: Path, *lines: str) -> None:
    with file.open("a") as end:
        end.write("".join(lines))


def test_lines_of_a_pipe_are_posted_as_they_come(peer: FakePeer) -> None:
    with posting(peer, "-") as process:
        assert process.stdin is not None
        process.stdin.write(b"ts,name\n1,a\n2,b\n3,")
        process.stdin.flush()
        wait_for(peer, "a", "b")
        process.stdin.write(b'c\n4,"two\nlines"\n5,"half\n')
        process.stdin.flush()
        wait_for(peer, "a", "b", "c", "two\nlines")
        process.stdin.write(b'"\n6,last')
        process.stdin.close()
        process.stdin = None
        assert process.wait(DEADLINE_S) == 0
        wait_for(peer, "a", "b", "c", "two\nlines", "half\n", "last")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_follower_reports_its_posted_rows(
    peer: FakePeer, tmp_path: Path, number: signal.Signals
) -> None:
    """A line that was sent and is not answered is under way; the next run finds it stored."""
    log = tmp_path / "conn.csv"
    append(log, "ts,name\n", "1,a\n", "2,b\n")
    with posting(peer, log, "--follow") as process:
        wait_for(peer, "a", "b")
        peer.silent = True
        append(log, "3,c\n")
        wait_for(peer, "a", "b", "c")
        process.send_signal(number)
        out, _ = process.communicate(timeout=DEADLINE_S)
    told = re.match(rb"posted (\d) rows, (\d) more under way: the same command goes on; ", out)
    assert told is not None
    assert int(told[1]) + int(told[2]) == 3
    assert process.returncode == 128 + number
    peer.silent = False
    with posting(peer, log, "--follow", "--json") as process:
        append(log, "4,d\n")
        wait_for(peer, "a", "b", "c", "d")
        process.send_signal(number)
        out, _ = process.communicate(timeout=DEADLINE_S)
    value = json.loads(out)
    assert (value["rows"] + value["under_way"], value["before"]) == (1, 3)


def test_json_of_a_pipe_needs_no_option(peer: FakePeer) -> None:
    with posting(peer, "-") as process:
        assert process.stdin is not None
        for number in range(3):
            process.stdin.write(b'{"ts": %d, "name": "n%d"}\n' % (number, number))
            process.stdin.flush()
            wait_for(peer, *(f"n{n}" for n in range(number + 1)))


def test_a_file_is_followed_over_rotations_and_kills(peer: FakePeer, tmp_path: Path) -> None:
    log = tmp_path / "conn.csv"
    append(log, "ts,name\n", "1,a\n", "2,b\n", "3,")
    with posting(peer, log, "--follow"):
        wait_for(peer, "a", "b")
        append(log, "c\n")
        wait_for(peer, "a", "b", "c")
        # the log is renamed; the writer continues in the old file until it opens the new one
        log.rename(tmp_path / "conn.csv.1")
        log.touch()
        append(tmp_path / "conn.csv.1", "4,d\n")
        wait_for(peer, "a", "b", "c", "d")
        append(tmp_path / "conn.csv.1", "5,e")
        append(log, "ts,name\n", "6,f\n")
        wait_for(peer, *"abcdef")
    # the command is killed; meanwhile the log grew, was rotated twice, and the oldest file was
    # compressed
    append(log, "7,g\n")
    log.rename(tmp_path / "conn.csv.2")
    append(tmp_path / "conn.csv.2", "8,h\n")
    with gzip.open(tmp_path / "conn.csv.2.gz", "wb") as packed:
        packed.write((tmp_path / "conn.csv.2").read_bytes())
    (tmp_path / "conn.csv.2").unlink()
    os.utime(tmp_path / "conn.csv.1", (1, 1))
    os.utime(tmp_path / "conn.csv.2.gz", (2, 2))
    append(tmp_path / "conn.csv.3", "ts,name\n", "9,i\n")
    append(log, "ts,name\n", "10,j\n")
    with posting(peer, log, "--follow"):
        wait_for(peer, *"abcdefghij")
        append(log, "11,k\n")
        wait_for(peer, *"abcdefghijk")
    with posting(peer, log, "--follow"):
        append(log, "12,l\n")
        wait_for(peer, *"abcdefghijkl")


def zeek(rows: str) -> str:
    lines = "".join(f"{number}\t{name}\n" for number, name in enumerate(rows))
    return f"#fields\tts\tname\n{lines}"


def archive(current: Path, day: str, hours: str, keep: int | None = None) -> None:
    """Move the log, compressed, into the folder of the day, as zeekctl does.

    Args:
        keep: stop before the log is deleted, with that number of compressed bytes.
    """
    rotated = current.with_name(f"conn-{day}-{hours[:2]}.log")
    current.rename(rotated)
    folder = current.parent.parent / day
    folder.mkdir(exist_ok=True)
    with gzip.open(folder / f"conn.{hours}.log.gz", "wb") as packed:
        packed.write(rotated.read_bytes())
    if keep is None:
        rotated.unlink()
        return
    with (folder / f"conn.{hours}.log.gz").open("rb+") as packed:
        packed.truncate(min(keep, os.fstat(packed.fileno()).st_size))


def test_a_log_of_zeek_is_followed_into_the_folders_of_its_days(
    peer: FakePeer, tmp_path: Path
) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "current").symlink_to(tmp_path / "spool")
    current = tmp_path / "logs" / "current" / "conn.log"
    current.write_text(zeek("ab"))
    with posting(peer, current, "--follow"):
        wait_for(peer, *"ab")
        # the last line arrives just before the log is compressed and moved to another folder
        append(current, "2\tc\n")
        archive(current, "2026-11-28", "10:00:00-11:00:00")
        current.write_text(zeek("d"))
        wait_for(peer, *"abcd")
    # meanwhile the log was rotated twice, over midnight
    append(current, "1\te\n")
    archive(current, "2026-11-28", "23:00:00-24:00:00")
    current.write_text(zeek("f"))
    archive(current, "2026-11-29", "00:00:00-01:00:00")
    for number, path in enumerate(sorted((tmp_path / "logs").glob("2026*/*"))):
        os.utime(path, (number + 1, number + 1))
    current.write_text(zeek("g"))
    with posting(peer, current, "--follow"):
        wait_for(peer, *"abcdefg")
        append(current, "1\th\n")
        wait_for(peer, *"abcdefgh")
    # and once more, while the archive is written: both files exist
    for keep, name in ((30, "i"), (1000, "j")):
        archive(current, "2026-11-29", f"0{keep // 500 + 1}:00:00", keep)
        current.write_text(zeek(name))
        with posting(peer, current, "--follow"):
            wait_for(peer, *"abcdefghij"[: ord(name) - ord("a") + 1])


def test_each_file_of_a_path_is_held_open(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def main() -> list[bytes]:
        found = []
        with closing(Successors(log)) as successors:
            log.write_bytes(b"0")
            successors.open()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(successors.watch)
                for number in range(1, 4):
                    log.rename(tmp_path / "away")
                    log.touch()  # while the new file is empty, the writer may write to the old one
                    await trio.sleep(3 * LOOK_S)
                    assert successors.newest_is_there is False
                    log.write_bytes(b"%d" % number)
                    await trio.sleep(2 * LOOK_S)
                    (tmp_path / "away").unlink()
                for _ in range(4):
                    with await successors.take() as file:
                        found.append(file.read())
                assert not successors.ready
                nursery.cancel_scope.cancel()
        return found

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == [b"0", b"1", b"2", b"3"]


def test_a_file_is_followed_over_truncation(peer: FakePeer, tmp_path: Path) -> None:
    log = tmp_path / "conn.csv"
    append(log, "ts,name\n", "1,a\n")
    with posting(peer, log, "--follow") as process:
        wait_for(peer, "a")
        # the log is copied and truncated, with a line that the command may not have read yet
        append(log, "2,b\n")
        shutil.copy(log, tmp_path / "conn.csv.1")
        os.truncate(log, 0)
        append(log, "ts,name\n", "3,c\n")
        wait_for(peer, *"abc")
        os.truncate(log, 0)
        append(log, "ts,name\n")
        process.kill()
    append(log, "4,d\n")
    with posting(peer, log, "--follow") as process:
        assert process.stderr is not None
        told = process.stderr.read().decode()
        assert process.wait(DEADLINE_S) == 1
        assert "neither it nor a file rotated from it begins with the 1 rows" in told
        assert "--again posts this one from its beginning" in told
        producer = re.search(r"post it from there with --producer (\S+);", told)
        assert producer is not None
    # The rows that were moved away, and the rows that the command had not reached.
    moved = tmp_path / "elsewhere.csv"
    append(moved, "ts,name\n", "3,c\n", "3,cc\n")
    with posting(peer, moved, "--producer", producer[1]) as process:
        assert process.wait(DEADLINE_S) == 0
    wait_for(peer, "a", "b", "c", "cc")
    with posting(peer, log, "--follow", "--again"):
        wait_for(peer, "a", "b", "c", "cc", "d")


def test_killed_between_a_post_and_its_answer(peer: FakePeer, tmp_path: Path) -> None:
    log = tmp_path / "conn.csv"
    append(log, "ts,name\n", "1,a\n")
    for number, name in enumerate("bcdef", 2):
        peer.silent = True  # the peer stores the rows, and does not answer
        with posting(peer, log, "--follow"):
            append(log, f"{number},{name}\n")
            wait_for(peer, *"abcdef"[:number])
        peer.silent = False
    with posting(peer, log, "--follow"):
        append(log, "7,g\n")
        wait_for(peer, *"abcdefg")


def test_a_file_that_does_not_grow_by_lines_is_refused(peer: FakePeer, tmp_path: Path) -> None:
    packed = tmp_path / "conn.csv.gz"
    compressed = gzip.compress(b"ts,name\n1,a\n", mtime=0)
    assert b"\n" not in compressed, "no end of a line shows that the file is compressed"
    packed.write_bytes(compressed)
    with posting(peer, packed, "--follow") as process:
        assert process.stderr is not None
        assert b"a compressed file does not grow" in process.stderr.read()
        assert process.wait(DEADLINE_S) == 1
