from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from engine_streams_data import SCHEMA, Row, all_rows, logged, pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from engine.streams import epochs
from engine.streams.feed import Cursor
from engine.streams.folder import RUN, choose, merge
from engine.streams.log import StreamLog
from engine.streams.messages import MAX_BATCH_BYTES
from engine.streams.parts import PART_BYTES
from engine.streams.recent import SharedMemory
from engine.streams.retention import Hold
from overlay.errors import (
    ClosedError,
    DamagedError,
    InternalError,
    NotRetainedError,
    StorageError,
    StorageFullError,
)


def opened(folder: Path, **more: Any) -> StreamLog:
    return StreamLog.open(folder, SCHEMA.source, **more)


def filled(folder: Path, count: int, size: int = 3, **more: Any) -> tuple[StreamLog, list[Row]]:
    """Epochs (0, 10], (10, 20]... of `size` rows each."""
    log = opened(folder, **more)
    log.append(0, None)
    rows: list[Row] = []
    for n in range(count):
        new = [(n * 10 + 1 + i % 10, len(rows) + i) for i in range(size)]
        new.sort()
        log.append(n * 10 + 10, logged(new, len(rows)))
        rows += new
    return log, rows


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_restart_reads_the_directory(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 5)
    again = opened(tmp_path)
    for found in (log, again):
        assert all_rows(found) == rows
        assert (found.start, found.boundary) == (BEGINNING, 50)
        assert (found.rows, found.first_stime, found.last_stime) == (15, 1, 43)
        assert found.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_files_are_plain_parquet_of_the_schema(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    table = pq.read_table(tmp_path / "0_10.parquet")
    assert table.schema.remove_metadata().equals(SCHEMA.source)


def test_empty_epochs_make_no_files(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(5, None)
    log.append(7, SCHEMA.source.empty_table())
    assert names(tmp_path) == [f"{BEGINNING}_7.parquet"]
    log.append(10, logged([(9, 1)]))
    log.append(20, None)
    log.append(END, None)
    assert names(tmp_path) == [f"{BEGINNING}_7.parquet", f"7_{END}.parquet"]
    again = opened(tmp_path)
    assert again.boundary == END
    assert all_rows(again) == all_rows(log) == [(9, 1)]
    assert again.read(7).upto == END  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("upto", "rows"),
    [(10, [(11, 1)]), (20, [(10, 1)]), (20, [(21, 1)]), (20, [(15, 1), (14, 2)])],
)
def test_rows_that_do_not_belong_are_refused(tmp_path: Path, upto: int, rows: list[Row]) -> None:
    log, before = filled(tmp_path, 1)
    with pytest.raises(InternalError):
        log.append(upto, logged(rows))
    with pytest.raises(InternalError):
        log.append(20, logged([(15, 1)]).drop_columns(["seq"]))
    assert all_rows(log) == before
    assert log.boundary == 10


def test_reading_stops_between_stimes_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "_GROUP_ROWS", 4)
    rows = [(stime, n) for n, stime in enumerate([1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 5, 6, 6, 6])]
    opened(tmp_path).append(100, logged(rows))
    for recent_bytes in (0, 2**20):
        log = opened(tmp_path, recent_bytes=recent_bytes)
        for limit in range(1, 20):
            assert all_rows(log, limit_rows=limit) == rows
        first = log.read(BEGINNING, 0, 4)
        assert first is not None
        assert (first.upto, pairs(first.table)) == (2, rows[:3])
        second = log.read(2, 0, 4)
        assert second is not None
        assert (second.upto, pairs(second.table)) == (None, rows[3:7])
        third = log.read(2, 4, 4)
        assert third is not None
        assert (third.upto, pairs(third.table)) == (3, rows[7:11])


BIG = Schema(
    "medusa://a/b",
    (Field("t", FieldType.LONG), Field("value", FieldType.LONG), Field("s", FieldType.STRING)),
    time="t",
)


def large_rows(stimes: list[int], sizes: list[int]) -> pa.Table:
    """Rows of so many bytes each."""
    count = len(stimes)
    return pa.Table.from_arrays(
        [
            pa.array(stimes, pa.int64()),
            pa.array(range(count), pa.int64()),
            pa.array(stimes, pa.int64()),
            pa.array(range(count), pa.int64()),
            pa.array(["x" * size for size in sizes]),
        ],
        schema=BIG.source,
    )


@pytest.mark.parametrize("recent_bytes", [0, 2**30])
@pytest.mark.parametrize("ties", [False, True])
def test_rows_of_any_size_come_in_parts_of_few_bytes(
    tmp_path: Path, recent_bytes: int, *, ties: bool
) -> None:
    log = StreamLog.open(tmp_path, BIG.source, recent_bytes=recent_bytes)
    sizes = [20] * 300 + [60_000] * 400 + [0] * 300 + [7_000_000] + [3] * 10
    stimes = [7] * len(sizes) if ties else list(range(1, len(sizes) + 1))
    table = large_rows(stimes, sizes)
    log.append(2000, table)
    parts, after, taken = [], log.start, 0
    while (part := log.read(after, taken)) is not None:
        assert part.table.nbytes <= PART_BYTES or part.rows == 1
        parts.append(part.table)
        after, taken = (after, taken + part.rows) if part.upto is None else (part.upto, 0)
    assert pa.concat_tables(parts).equals(table)
    assert after == 2000
    assert len(parts) > table.nbytes // PART_BYTES


async def test_history_of_large_rows_is_merged_and_read_within_little_memory(
    tmp_path: Path,
) -> None:
    log = StreamLog.open(tmp_path, BIG.source, recent_bytes=0)
    for epoch in range(17):  # the newest is not merged
        first = 100 * epoch
        log.append(first + 100, large_rows(list(range(first + 1, first + 101)), [60_000] * 100))
    assert await log.compact() == 16
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    cursor = Cursor(log, BEGINNING)
    while cursor.after < log.boundary:
        await cursor.wait()
        found = await cursor.read()
        assert found is not None
        message, body = found[0], found[1].body()
        assert len(body) <= MAX_BATCH_BYTES
        most = max(most, pa.total_allocated_bytes() - before)
        rows += message.rows
        cursor.advance(message)
        del found, body
    assert rows == 1700
    assert most < 16 * 2**20


def test_reads_from_within_an_epoch(tmp_path: Path) -> None:
    _, rows = filled(tmp_path, 3)
    for log in (opened(tmp_path), opened(tmp_path, recent_bytes=0)):
        for after in range(31):
            assert all_rows(log, after) == [row for row in rows if row[0] > after]


def test_recent_epochs_are_bounded_and_the_largest_log_gives_first(tmp_path: Path) -> None:
    log, rows = filled(tmp_path / "a", 40, 50, recent_bytes=10_000)
    assert log._recent.bytes <= 10_000
    assert all_rows(log) == rows
    shared = SharedMemory(8_000)
    big, _ = filled(tmp_path / "b", 10, 100, shared=shared)
    small, _ = filled(tmp_path / "c", 10, 2, shared=shared)
    assert big._recent.bytes + small._recent.bytes <= 8_000
    assert small._recent.start < 0 < big._recent.start
    big.close()
    assert shared._members == [small._recent]


async def test_waiting_ends_when_the_boundary_passes(tmp_path: Path) -> None:
    log = opened(tmp_path)
    seen: list[int] = []

    async def wait(boundary: int) -> None:
        await log.wait_beyond(boundary)
        seen.append(boundary)

    async with trio.open_nursery() as nursery:
        for boundary in (5, 10, 15):
            nursery.start_soon(wait, boundary)
        await wait_all_tasks_blocked()
        await log.commit(10, logged([(7, 1)]))
        await wait_all_tasks_blocked()
        assert seen == [5]
        await log.commit(16, None)
    assert sorted(seen) == [5, 10, 15]
    await log.wait_beyond(15)


async def test_closing_wakes_who_waits(tmp_path: Path) -> None:
    log = opened(tmp_path)

    async def waits() -> None:
        with pytest.raises(ClosedError):
            await log.next(BEGINNING)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        await wait_all_tasks_blocked()
        log.close()


async def test_who_reads_a_log_that_is_closed_and_removed_is_told_so(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 3)
    log.close()
    shutil.rmtree(tmp_path)
    with pytest.raises(ClosedError):
        await log.next(BEGINNING)


async def test_next_reads_memory_and_disk_alike(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 20, recent_bytes=200)
    after, found = log.start, []
    while after < log.boundary:
        epoch = await log.next(after)
        found += pairs(epoch.table)
        after = epoch.upto
    assert found == rows


def test_pinned_files_stay_for_their_reader(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 40, history_us=0)
    with log.files(100, 200) as paths:
        before = [pq.read_table(path).num_rows for path in paths]
        assert [path.name for path in paths] == [
            f"{n}_{n + 10}.parquet" for n in range(100, 200, 10)
        ]
        while trio.run(log.compact):
            pass
        log.retain(0.0)
        log.append(500, None)
        assert [pq.read_table(path).num_rows for path in paths] == before
        with log.files(log.start, 400) as later:
            assert not set(later) & set(paths)
    assert not any(path.exists() for path in paths)
    with pytest.raises(NotRetainedError, match=f"from boundary {log.start} on; 100 is older"):
        log.files(100, 200).__enter__()


def test_files_without_rows_in_the_interval_are_left_out(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(10, logged([(5, 1)]))
    log.append(20, None)
    log.append(30, logged([(25, 1)]))
    with log.files(BEGINNING, 30) as paths:
        assert len(paths) == 2
    with log.files(5, 24) as paths:
        assert paths == []


def test_counting_reads_only_where_an_end_lies_within_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = filled(tmp_path, 4, size=5)  # stimes 1..5, 11..15, 21..25, 31..35
    opened_files: list[str] = []
    really = epochs.pq.ParquetFile

    def opening(path: Path, **options: Any) -> pq.ParquetFile:
        opened_files.append(path.name)
        return really(path, **options)

    monkeypatch.setattr(epochs.pq, "ParquetFile", opening)
    assert log.count(BEGINNING, END) == 20
    assert log.count(0, 20) == 10
    assert log.count(5, 29) == 10, "cut where there are no rows"
    assert opened_files == []
    assert log.count(12, 23) == 3 + 3
    assert opened_files == ["10_20.parquet", "20_30.parquet"]
    assert log.count(30, 12) == 0


def test_what_is_gone_is_not_counted_as_nothing(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 10, history_us=0)
    log.retain(0.0)
    assert log.start > 0
    with pytest.raises(NotRetainedError):
        log.count(log.start - 1, log.boundary)
    (tmp_path / f"{log.start}_{log.boundary}.parquet").write_bytes(b"PAR1")
    said: list[str] = []
    log.damaged.add(said.append)
    for _ in range(2):
        with pytest.raises(NotRetainedError, match=f"up to {log.boundary} are damaged"):
            log.count(log.start, log.boundary - 8)
    assert len(said) == 1


async def test_a_commit_tells_what_it_took(tmp_path: Path) -> None:
    log = opened(tmp_path)
    rows = [(n + 1, n) for n in range(200_000)]
    table = logged(rows)
    before = time.process_time()
    took = await log.commit(200_000, table)
    spent = time.process_time() - before
    assert 0.001 < took <= spent + 0.01
    assert await log.commit(200_001, None) < 0.1


def test_retention_waits_for_history_and_holds(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 20, history_us=50)
    log.hold(Hold("task"), 35)
    log.hold(Hold("call"), 0, expires=100.0)
    assert log.retain(99.0) == 1  # the empty epoch up to 0, that all have passed
    assert log.start == 0
    assert log.retain(100.0) == 3
    assert log.start == 30
    log.hold(Hold("task"), 1000)
    log.retain(101.0)
    assert log.start == 150
    log.release(Hold("task"))
    assert all_rows(log) == [row for row in rows if row[0] > 150]
    with pytest.raises(NotRetainedError, match="from boundary 150 on; 149 is older"):
        log.read(149)


def test_an_ended_stream_keeps_its_history(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 20, history_us=50)
    log.append(END, None)
    log.retain(0.0)
    assert all_rows(log) == [row for row in rows if row[0] > 140]
    quick, rows = filled(tmp_path / "b", 3, history_us=0)
    quick.append(END, None)
    quick.retain(0.0)
    assert quick.boundary == END  # the newest file is the boundary, whatever it holds
    assert all_rows(opened(tmp_path / "b")) == rows[-3:]


def test_compaction_merges_likes_and_keeps_the_rows(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 100, 20)
    files = len(names(tmp_path))
    while trio.run(log.compact):
        pass
    assert len(names(tmp_path)) < RUN + 2 < files
    assert all_rows(log) == rows == all_rows(opened(tmp_path))
    assert (log.rows, log.boundary) == (2000, 1000)


def test_compaction_makes_no_file_of_more_rows_than_a_job_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the files are on the disk: rows that are alike take next to nothing there."""
    log, rows = filled(tmp_path, 100)
    limit = 20 * log._files[1].content
    monkeypatch.setattr("engine.streams.folder.JOB_BYTES", limit)
    while trio.run(log.compact):
        assert max(file.content for file in log._files) <= limit
    assert len(log._files) < 20
    assert [file.content for file in opened(tmp_path)._files] == [
        file.content for file in log._files
    ]
    assert all_rows(log) == rows


async def test_retention_during_compaction_wins(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 40, history_us=0)
    run = choose(log._files)
    writer = merge(run, tmp_path, SCHEMA.source, durable=False)
    log.retain(0.0)
    assert log._folder.replace(run, writer) == 0
    assert all_rows(log) == rows[-3:]
    assert len(names(tmp_path)) == 1


async def test_appends_go_on_during_compaction(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 40)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.compact)
        nursery.start_soon(log.compact)
        await log.commit(410, logged([(405, 1)]))
    assert all_rows(opened(tmp_path)) == [*rows, (405, 1)]
    assert len(names(tmp_path)) < 10


def test_past_its_share_of_the_disk_it_refuses_until_retention(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 3, history_us=0, disk_bytes=20_000)
    big = logged([(100, n) for n in range(1_000)])
    with pytest.raises(StorageFullError, match="at most 20000"):
        log.append(100, big)
    assert log.boundary == 30
    log.append(90, None)
    log.append(100, logged([(100, 1)]))


@pytest.mark.parametrize("durable", [False, True])
def test_what_every_crash_leaves_is_one_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """Before every change of the directory a copy of it is opened: it is what was committed."""
    folder = tmp_path / "log"
    log = opened(folder, history_us=60, durable=durable)
    committed: list[Row] = []
    copies = 0

    def check(*_: object) -> None:
        nonlocal copies
        copies += 1
        copy = tmp_path / f"copy{copies}"
        copy.mkdir()
        for path in folder.iterdir():
            (copy / path.name).hardlink_to(path)
        found = opened(copy)
        assert found.boundary in (log.boundary, pending)
        expected = [row for row in committed if row[0] <= found.boundary]
        assert all_rows(found) == [row for row in expected if row[0] > found.start]
        assert found.start <= max(log.start, 0) or found.boundary <= 0
        assert not [name for name in names(copy) if name.startswith(".tmp")]

    watched = (("rename", Path), ("unlink", Path))
    reals = {name: getattr(owner, name) for name, owner in watched}
    pending = BEGINNING

    def guarded(name: str) -> Any:
        def call(self: Path, *args: Any, **more: Any) -> Any:
            if self.parent == folder:
                check()
            done = reals[name](self, *args, **more)
            if self.parent == folder:
                check()
            return done

        return call

    for name, owner in watched:
        monkeypatch.setattr(owner, name, guarded(name))
    for n in range(1, 45):
        new = [(n * 10 + 1 + i, n) for i in range(3)] if n % 4 else []
        committed += new
        pending = n * 10 + 10
        log.append(pending, logged(new) if new else None)
        if n % 20 == 0:
            trio.run(log.compact)
        if n % 9 == 0:
            log.retain(0.0)
    assert copies > 100


def lost_in(log: StreamLog) -> list[tuple[int, int]]:
    return [(file.after, file.upto) for file in log.lost_files]


def rows_around(log: StreamLog) -> list[Row]:
    """All that can be read."""
    found, at, taken = [], log.start, 0
    while at < log.boundary:
        try:
            part = log.read(at, taken, 5)
        except NotRetainedError:
            at = next(file.upto for file in log.lost_files if file.after <= at < file.upto)
            continue
        assert part is not None
        found += pairs(part.table)
        at, taken = (at, taken + part.rows) if part.upto is None else (part.upto, 0)
    return found


@pytest.mark.parametrize("durable", [False, True])
def test_a_missing_file_takes_its_own_rows_and_no_others(tmp_path: Path, durable: bool) -> None:
    _, rows = filled(tmp_path, 6)
    (tmp_path / "20_30.parquet").unlink()
    left = [row for row in rows if not 20 < row[0] <= 30]
    for _ in range(2):
        log = opened(tmp_path, durable=durable)
        assert lost_in(log) == [(20, 30)]
        assert rows_around(log) == left
        assert (log.boundary, log.start, log.oldest) == (60, BEGINNING, 30)
        with pytest.raises(NotRetainedError, match="after boundary 20 up to 30 are damaged"):
            log.read(20)
        with pytest.raises(NotRetainedError):
            log.files(15, 25).__enter__()
        with pytest.raises(NotRetainedError):
            log.count(15, 25)
        assert log.count(30, 60) == 9
        with log.files(30, 60) as paths:
            assert len(paths) == 3
        assert log.tail(9) == 30
        assert log.tail(10) == 30, "what is before the gap is not followed by so many"
        log.close()
    log = opened(tmp_path, durable=durable)
    log.append(70, logged([(65, 100)], 18))
    log.append(80, None)
    assert rows_around(log) == [*left, (65, 100)]


def test_overlaps_are_found(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 6)
    (tmp_path / "45_65.parquet").write_bytes((tmp_path / "50_60.parquet").read_bytes())
    with pytest.raises(DamagedError, match="overlap"):
        opened(tmp_path)
    log.close()


def test_a_damaged_newest_file_keeps_its_boundary(tmp_path: Path) -> None:
    """Subscribers have it: nothing else may come up to there."""
    _, rows = filled(tmp_path, 3)
    (tmp_path / "20_30.parquet").write_bytes(b"PAR1")
    log = opened(tmp_path, durable=True)
    assert (lost_in(log), log.boundary) == ([(20, 30)], 30)
    log.append(40, None)
    log.append(50, logged([(45, 7)], 9))
    log.close()
    log = opened(tmp_path, durable=True)
    assert lost_in(log) == [(20, 30)]
    assert rows_around(log) == [*rows[:6], (45, 7)]


def test_a_flipped_bit_is_found_when_it_is_read(tmp_path: Path) -> None:
    _, rows = filled(tmp_path, 3, size=50)
    flip_page(tmp_path / "10_20.parquet")
    log = opened(tmp_path)
    said: list[str] = []
    log.damaged.add(said.append)
    assert log.lost_files == ()
    assert rows_around(log) == rows[:50] + rows[100:]
    (text,) = said
    assert text.startswith(f"{tmp_path / '10_20.parquet'} is damaged")
    assert "after boundary 10 up to 20" in text
    assert log.whole_from == log.oldest == 20


def flip_page(path: Path) -> None:
    """One bit of the data of the first column."""
    at = pq.read_metadata(path).row_group(0).column(0).data_page_offset + 120
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_compaction_merges_nothing_that_is_damaged(tmp_path: Path) -> None:
    _, rows = filled(tmp_path, 40, size=9)
    flip_page(tmp_path / "100_110.parquet")
    log = opened(tmp_path)
    assert trio.run(log.compact) == 0
    assert lost_in(log) == [(100, 110)]
    while trio.run(log.compact):
        pass
    assert len(log._files) < 30
    assert lost_in(log) == [(100, 110)]
    assert rows_around(log) == [row for row in rows if not 100 < row[0] <= 110]


def test_retention_lets_go_of_what_is_lost_in_its_turn(tmp_path: Path) -> None:
    filled(tmp_path, 6)
    (tmp_path / "20_30.parquet").unlink()
    (tmp_path / "30_40.parquet").write_bytes(b"PAR1")
    log = opened(tmp_path, history_us=15, durable=True)
    assert lost_in(log) == [(20, 30), (30, 40)]
    log.retain(0.0)
    assert (lost_in(log), log.start) == ([], 40)
    assert names(tmp_path) == ["40_50.parquet", "50_60.parquet"]


def test_retention_waits_for_a_reader_of_the_oldest_file(tmp_path: Path) -> None:
    """Were younger files deleted before it, a crash would leave a gap, which is damage."""
    log, rows = filled(tmp_path, 6, history_us=0)
    with log.files(0, 10) as paths:
        assert log.retain(0.0) == 1
        assert log.start == 0
        assert [path.name for path in paths] == ["0_10.parquet"]
        assert all_rows(opened(tmp_path)) == rows
    assert log.retain(0.0) == 5


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    """As they were written before there were any."""
    _, rows = filled(tmp_path, 3)
    for path in tmp_path.glob("*.parquet"):
        if (table := pq.read_table(path)).num_rows:
            pq.write_table(table, path, write_statistics=["stime"])
    assert all_rows(opened(tmp_path)) == rows


@settings(max_examples=400, deadline=None)
@given(st.floats(0, 1), st.integers(0, 7), st.integers(0, 25), st.integers(0, 25))
def test_no_flipped_bit_gives_other_rows(
    tmp_path_factory: pytest.TempPathFactory, share: float, bit: int, after: int, upto: int
) -> None:
    """Of a file of several row groups, wherever it is: in a page, its header or the footer."""
    folder = tmp_path_factory.mktemp("log")
    rows = [(1 + n // 20, n) for n in range(400)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "GROUP_BYTES", 2_000)
        log = opened(folder)
        log.append(30, logged(rows))
        log.close()
    (path,) = folder.glob("*.parquet")
    assert pq.read_metadata(path).num_row_groups > 3
    data = bytearray(path.read_bytes())
    data[int(share * (len(data) - 1))] ^= 1 << bit
    path.write_bytes(data)
    log = opened(folder, durable=True)
    try:
        count = log.count(max(after, log.start), upto)
        table = pa.concat_tables(
            [
                log.schema.empty_table(),
                *epochs.read_groups(log._files[0].path, log.schema, after, upto),
            ]
        )
    except (NotRetainedError, DamagedError):
        return
    expected = [row for row in rows if after < row[0] <= upto]
    assert (pairs(table), count) == (expected, len(expected))
    table.validate(full=True)


@pytest.mark.parametrize("rows", [[], [(35, 1)]], ids=["extended", "appended"])
def test_a_name_whose_sync_failed_is_not_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Row]
) -> None:
    """Were it left there, it would swallow, or overlap, what is committed next."""
    log, before = filled(tmp_path, 3, durable=True)
    real, failing = os.fsync, [True]

    def fsync(descriptor: int) -> None:
        if failing:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(2):
        with pytest.raises(StorageError, match=str(tmp_path)):
            log.append(40, logged(rows, 9) if rows else None)
        assert log.boundary == 30
        assert all_rows(opened(tmp_path)) == before
    failing.clear()
    log.append(36, logged([(35, 1), (36, 2)], 9))
    log.append(50, logged([(45, 3)], 11))
    assert all_rows(opened(tmp_path)) == [*before, (35, 1), (36, 2), (45, 3)]


def test_a_loss_of_power_may_take_the_newest_epochs_of_what_is_not_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as if they had never been committed; what was damaged long ago is not, nor what was
    made since the machine was started."""
    _, rows = filled(tmp_path, 6)
    torn = tmp_path / "40_50.parquet"
    torn.write_bytes(torn.read_bytes()[:-5])
    os.utime(torn, (1, torn.stat().st_mtime - 3600))
    log = opened(tmp_path)
    assert (lost_in(log), log.lost) == ([(40, 50)], ())
    log.close()
    os.utime(torn)
    log = opened(tmp_path)
    assert (lost_in(log), log.lost) == ([(40, 50)], ())
    log.close()
    started_at = torn.stat().st_mtime + 3600
    monkeypatch.setattr("psutil.boot_time", lambda: started_at)
    log = opened(tmp_path)
    assert log.boundary == 40
    assert all_rows(log) == [row for row in rows if row[0] <= 40]
    assert [text.split(":")[0] for text in log.lost] == [
        f"{tmp_path / name} was put aside as {name.removesuffix('.parquet')}.damaged"
        for name in ("40_50.parquet", "50_60.parquet")
    ]
    log.append(60, logged([row for row in rows if row[0] > 40], 12))
    assert all_rows(opened(tmp_path)) == rows
    log.close()


OPERATION = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(st.integers(1, 12), max_size=8),
        st.integers(0, 3),
    ),
    st.tuples(st.sampled_from(["compact", "retain", "reopen", "read", "hold", "release"])),
)


def check_counts(log: StreamLog, model: list[Row], intervals: list[tuple[int, int]]) -> None:
    for ends in (*intervals, (log.start, log.boundary), (log.start, END)):
        after, upto = max(log.start, min(ends)), max(ends)
        between = [stime for stime, _ in model if after < stime <= upto]
        assert log.count(after, upto) == len(between)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(OPERATION, max_size=40),
    st.sampled_from([0, 300, 10**6]),
    st.sampled_from([2, 3, 16]),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=4),
)
def test_any_history_of_a_log_reads_as_a_list(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Any],
    recent: int,
    run: int,
    counted: list[tuple[int, int]],
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.streams.folder.RUN", run)
        patch.setattr(epochs, "_GROUP_ROWS", 3)
        log = opened(folder, history_us=20, recent_bytes=recent)
        model: list[Row] = []
        held: int | None = None
        for step in steps:
            match step:
                case ("append", gaps, more):
                    at = max(log.boundary, 0) + 1
                    rows = []
                    for gap in gaps:
                        rows.append((at, len(model) + len(rows)))
                        at += gap // 3
                    log.append(at + more, logged(rows) if rows else None)
                    model += rows
                case ("compact",):
                    trio.run(log.compact)
                case ("retain",):
                    log.retain(0.0)
                    if held is not None:
                        assert log.start <= held
                    assert log.start <= max(BEGINNING, log.boundary - 20)
                case ("hold",):
                    held = log.start
                    log.hold(Hold("task"), held)
                case ("release",):
                    held = None
                    log.release(Hold("task"))
                case ("reopen",):
                    start, boundary = log.start, log.boundary
                    log.close()
                    log = opened(folder, history_us=20, recent_bytes=recent)
                    assert (log.start, log.boundary) == (start, boundary)
                    if held is not None:
                        log.hold(Hold("task"), held)
                case ("read",):
                    pass
            state = [row for row in model if row[0] > log.start]
            assert all_rows(log, limit_rows=4) == state
            middle = state[len(state) // 2][0] if state else log.boundary
            if middle >= log.start:
                assert all_rows(log, middle) == [row for row in state if row[0] > middle]
            with log.files(log.start, log.boundary) as paths:
                tables = [pq.read_table(path) for path in paths]
            found = pa.concat_tables([SCHEMA.source.empty_table(), *tables])
            assert pairs(found) == state
            check_counts(log, model, counted)
