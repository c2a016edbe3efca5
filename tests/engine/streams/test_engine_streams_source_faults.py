"""A source over a damaged journal, and over a disk that fails."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import trio
from damaged_files import flip
from engine_streams_data import Row, body
from hypothesis import given, settings
from hypothesis import strategies as st
from source_streams import NOW, Stream, opened

from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.overlay.errors import SequenceGapError, StorageError


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Stream]:
    with opened(tmp_path) as stream:
        yield stream


# -- a damaged journal -----------------------------------------------------------------------------


def test_a_flipped_bit_takes_the_post_that_it_is_in(s: Stream, tmp_path: Path) -> None:
    ends = []
    for n in range(50):
        s.post([(n, n)], Writer("ab"[n % 2]))
        ends.append(s.source.journal.position[1])
    s.close()
    flip(tmp_path / "journal" / "000000000001.journal", ends[20] - 1)
    s.open()
    damaged, post = s.source.journal.lost
    assert f"{ends[20] - ends[19]} bytes from byte {ends[19]} on are damaged" in damaged
    assert post.startswith("posts 11 to 11 of a are missing from the journal")
    s.crash()
    assert s.source.journal.lost == ()
    s.post([], Writer("a"), end=True)
    while s.move():
        pass
    assert s.rows() == [(n, n) for n in range(50) if n != 20]


@pytest.mark.parametrize("what", ["folder", "files"])
def test_a_missing_journal_is_reported_and_the_stream_goes_on(
    s: Stream, tmp_path: Path, what: str
) -> None:
    for n in range(5):
        s.post([(n, n)], Writer("a"))
    while s.move():
        pass
    logged = s.rows()
    for n in range(5, 50):
        s.post([(n, n)], Writer("a"))
    s.close()
    if what == "folder":
        shutil.rmtree(tmp_path / "journal")
    else:
        for path in (tmp_path / "journal").iterdir():
            path.unlink()
    s.open()
    (lost,) = s.source.journal.lost
    assert f"{tmp_path / 'journal'}: journal segments 1..1 are missing" in lost
    assert f"after boundary {s.source.waiting.committed}" in lost
    s.crash()
    assert s.source.journal.lost == ()
    s.post([(60, 60)], Writer("a"))
    (lost,) = s.source.journal.lost
    assert lost.startswith("posts 1 to 50 of a are missing from the journal")
    s.post([], Writer("a"), end=True)
    while s.move():
        pass
    assert s.rows() == [*logged, (60, 60)]
    numbers = pq.read_table(tmp_path / "log").column("seq").to_pylist()
    assert len(set(numbers)) == len(numbers), "no number is given twice"


def test_a_producer_whose_last_posts_are_lost_goes_on(s: Stream, tmp_path: Path) -> None:
    for n in range(4):
        s.post([(n, n)], Writer("a"))
        end = s.source.journal.position[1]
    s.post([(5, 5)], Writer("b"))
    s.close()
    flip(tmp_path / "journal" / "000000000001.journal", end - 1)
    s.open()
    assert len(s.source.journal.lost) == 1, "nobody knows whose post that was"
    s.crash()
    s.source.post(PostRequest(Writer("new"), Post(1), body([(6, 6)])), now=NOW)
    with pytest.raises(SequenceGapError):
        s.source.post(PostRequest(Writer("new"), Post(3), body([(6, 6)])), now=NOW)
    assert s.source.post(PostRequest(Writer("a"), Post(3), b"junk"), now=NOW).duplicate
    assert not s.post([(7, 7)], Writer("a")).duplicate
    (lost,) = s.source.journal.lost
    assert lost.startswith("posts 4 to 4 of a are missing")
    with pytest.raises(SequenceGapError):
        s.source.post(PostRequest(Writer("a"), Post(7), body([(8, 8)])), now=NOW)
    s.post([(9, 9)], Writer("b"))
    with pytest.raises(SequenceGapError):
        s.source.post(PostRequest(Writer("b"), Post(4), body([(9, 9)])), now=NOW)
    s.post([], Writer("b"), end=True)
    while s.move():
        pass
    assert s.rows() == [(0, 0), (1, 1), (2, 2), (5, 5), (6, 6), (7, 7), (9, 9)]


def test_a_producer_all_of_whose_posts_are_lost_goes_on(s: Stream, tmp_path: Path) -> None:
    """Its next post has a number that only a known producer may have."""
    s.post([(0, 0)], Writer("a"))
    _, start = s.source.journal.position
    for n in range(1, 4):
        s.post([(n, n)], Writer("b", "utah.edu"))
    _, end = s.source.journal.position
    s.post([(5, 5)], Writer("a"))
    s.close()
    path = tmp_path / "journal" / "000000000001.journal"
    data = bytearray(path.read_bytes())
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    s.open()
    s.post([(7, 7)], Writer("b", "utah.edu"))
    assert s.source.journal.lost[-1].startswith("posts 1 to 3 of b of utah.edu are missing")
    with pytest.raises(SequenceGapError):
        s.source.post(PostRequest(Writer("b", "utah.edu"), Post(9), body([(8, 8)])), now=NOW)
    s.post([], Writer("a"), end=True)
    while s.move():
        pass
    assert s.rows() == [(0, 0), (5, 5), (7, 7)]


def test_late_tuples_keep_coming_after_damage(s: Stream, tmp_path: Path) -> None:
    """Late tuples have the numbers of their posts, and two of the posts are missing in the
    journal."""
    ends = []
    for n in range(6):
        s.post([(10 * n, n), (0, 100 + n)])  # late from the second row on
        ends.append(s.source.journal.position[1])
    s.close()
    for end in ends[3:5]:
        flip(tmp_path / "journal" / "000000000001.journal", end - 1)
    s.open()
    for n in range(6, 9):
        s.post([(10 * n, n), (0, 100 + n)])
    while s.move():
        pass
    assert s.late_values() == [*range(101, 109)]


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 60), max_size=4)), max_size=30
    ),
    st.sets(st.integers(0, 29)),
    st.sampled_from([300, 2**20]),
    st.lists(st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)), min_size=1, max_size=2),
)
def test_undamaged_rows_exist_once(
    tmp_path_factory: pytest.TempPathFactory,
    posts: list[tuple[str, list[int]]],
    moved_before: set[int],
    segment: int,
    damage: list[tuple[float, float]],
) -> None:
    folder, placed, value = tmp_path_factory.mktemp("source"), [], 0
    with opened(folder, SourceConfig(slack_us=40, segment_bytes=segment)) as s:
        for number, (producer, stimes) in enumerate(posts):
            if number in moved_before:
                s.move()
            rows = [(10 * number + stime, value + i) for i, stime in enumerate(stimes)]
            value += len(rows)
            posted = s.post(rows, Writer(producer))
            placed.append((rows, posted.late, *s.source.journal.position))
        there, late = s.rows(), s.late_values()
        s.close()
        files = sorted((folder / "journal").glob("*.journal"))
        hit = set()
        for which, share in damage:
            path = files[int(which * len(files))]
            at = int(share * path.stat().st_size)
            flip(path, at)
            hit.add((int(path.stem), at))
        s.open()
        for producer in "ab":
            s.post([], Writer(producer))
        s.post([], Writer("a"), end=True)
        while s.move():
            pass
        found, found_late = s.rows(), s.late_values()
        accepted = [row for rows, *_ in placed for row in rows]
        assert set(there) <= set(found)
        assert len(found) == len(set(found))
        assert set(found) <= set(accepted)
        assert found_late[: len(late)] == late
        for rows, _, number, end in placed:
            in_its_segment = [stop for *_, other, stop in placed if other == number and stop < end]
            begin = max(in_its_segment, default=0)
            if not any(at[0] == number and begin <= at[1] < end for at in hit):
                assert {value for _, value in rows} <= {v for _, v in found} | set(found_late)
        s.crash()
        assert s.source.journal.lost == s.late.journal.lost == ()


# -- a disk that fails -----------------------------------------------------------------------------


class FailingDisk:
    """Lets operations fail, before they do anything or after they have.

    Attributes:
        faults: for each of the next operations None, or whether the fault comes after the
            operation.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.faults: list[bool | None] = []
        for owner, names in (
            (os, ("pwritev", "fdatasync", "fsync", "ftruncate", "link")),
            (Path, ("rename", "unlink")),
            (pq.ParquetWriter, ("write_table", "close")),
        ):
            for name in names:
                patch.setattr(owner, name, self._failing(getattr(owner, name)))

    def _failing(self, real: Any) -> Any:
        def operation(*arguments: Any, **more: Any) -> Any:
            fault = self.faults.pop(0) if self.faults else None
            if fault is False:
                raise OSError(errno.EIO, "Input/output error")
            done = real(*arguments, **more)
            if fault:
                raise OSError(errno.EIO, "Input/output error")
            return done

        return operation


FAULTS = st.lists(st.sampled_from([None, None, False, True]), max_size=8)
WORK = st.one_of(
    st.tuples(st.just("post"), st.sampled_from("ab"), st.sampled_from([0, 0, 1, 9]), FAULTS),
    st.tuples(st.just("move"), st.just(""), st.just(0), FAULTS),
    st.tuples(st.sampled_from(["crash", "tidy"]), st.just(""), st.just(0), FAULTS),
)


@settings(max_examples=120)
@given(st.lists(WORK, max_size=40), st.booleans(), st.sampled_from([300, 2**20]))
def test_a_failing_disk_loses_nothing_that_was_acknowledged(
    tmp_path_factory: pytest.TempPathFactory,
    work: list[tuple[str, str, int, list[bool | None]]],
    durable: bool,
    segment: int,
) -> None:
    """The producer posts the refused rows again, under the same number."""
    config = SourceConfig(durable=durable, segment_bytes=segment)
    folder, value, posted = tmp_path_factory.mktemp("source"), 0, list[int]()
    refused: dict[str, list[Row]] = {}
    with pytest.MonkeyPatch.context() as patch, opened(folder, config) as s:
        disk = FailingDisk(patch)

        def post(producer: str, count: int) -> None:
            nonlocal value
            rows = refused.get(producer)
            if rows is None:
                rows = [(10 * value + i, value + i) for i in range(count)]
                value += max(1, count)
            refused[producer] = rows
            s.post(rows, Writer(producer), boundary=None if rows else 10 * value)
            del refused[producer]
            posted.extend(value for _, value in rows)

        for step, producer, count, faults in work:
            disk.faults = list(faults)
            with suppress(StorageError):
                match step:
                    case "post":
                        post(producer, count)
                    case "move":
                        s.move()
                    case "tidy":
                        trio.run(s.log.upkeep.compact)
                        s.log.upkeep.retain(0.0)
                    case "crash":
                        disk.faults = []
                        s.crash()
                        assert s.source.journal.lost == ()
        disk.faults = []
        for producer in "ab":
            if producer in refused:
                post(producer, 0)
        s.post([], end=True)
        while s.move():
            pass
        there, late = s.rows(), s.late_values()
        values = [value for _, value in there] + late
        assert set(posted) <= set(values)
        assert len(values) == len(set(values))
        assert not s.log.files.lost
        s.crash()
        assert (s.rows(), s.late_values()) == (there, late)
        assert not s.log.files.lost
