from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from engine_streams_data import SCHEMA, Row, all_rows, logged, pairs
from field_texts import fields_of
from filled_logs import filled, names, opened
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.streams.log import epochs
from medusa.engine.streams.log.folder import RUN, EpochFolder, choose, merge
from medusa.engine.streams.log.parts import PART_BYTES
from medusa.engine.streams.log.recent import SharedMemory
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import MAX_BATCH_BYTES
from medusa.engine.streams.reading.feed import Cursor
from medusa.overlay.errors import (
    BusyError,
    ClosedError,
    InternalError,
    NotRetainedError,
    StorageFullError,
)


def test_a_restart_reads_the_directory(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 5)
    again = opened(tmp_path)
    for found in (log, again):
        assert all_rows(found) == rows
        assert (found.start, found.boundary) == (BEGINNING, 50)
        assert (found.files.rows, found.files.first_stime, found.files.last_stime) == (15, 1, 43)
        assert found.files.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


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
    assert again.reader.read(7).upto == END  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("upto", "rows"), [(10, [(11, 1)]), (20, [(10, 1)]), (20, [(21, 1)]), (20, [(15, 1), (14, 2)])]
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
        first = log.reader.read(BEGINNING, 0, 4)
        assert first is not None
        assert (first.upto, pairs(first.table)) == (2, rows[:3])
        second = log.reader.read(2, 0, 4)
        assert second is not None
        assert (second.upto, pairs(second.table)) == (None, rows[3:7])
        third = log.reader.read(2, 4, 4)
        assert third is not None
        assert (third.upto, pairs(third.table)) == (3, rows[7:11])


BIG = Schema("medusa://a/b", fields_of("t long, value long, s string"), time="t")


def large_rows(stimes: list[int], sizes: list[int]) -> pa.Table:
    """Return rows of that many bytes each."""
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
    while (part := log.reader.read(after, taken)) is not None:
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
    for epoch in range(17):  # the newest file is not merged
        first = 100 * epoch
        log.append(first + 100, large_rows(list(range(first + 1, first + 101)), [60_000] * 100))
    assert await log.upkeep.compact() == 16
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


async def test_closing_wakes_the_waiting_tasks(tmp_path: Path) -> None:
    log = opened(tmp_path)

    async def waits() -> None:
        with pytest.raises(ClosedError):
            await log.reader.next(BEGINNING)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        await wait_all_tasks_blocked()
        log.close()


async def test_a_reader_of_a_removed_log_gets_an_error(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 3)
    log.close()
    shutil.rmtree(tmp_path)
    with pytest.raises(ClosedError):
        await log.reader.next(BEGINNING)


async def test_next_reads_memory_and_disk_alike(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 20, recent_bytes=200)
    after, found = log.start, []
    while after < log.boundary:
        epoch = await log.reader.next(after)
        found += pairs(epoch.table)
        after = epoch.upto
    assert found == rows


def test_pinned_files_stay_for_their_reader(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 40, history_us=0)
    with log.reader.pinned(100, 200) as paths:
        before = [pq.read_table(path).num_rows for path in paths]
        assert [path.name for path in paths] == [
            f"{n}_{n + 10}.parquet" for n in range(100, 200, 10)
        ]
        while trio.run(log.upkeep.compact):
            pass
        log.upkeep.retain(0.0)
        log.append(500, None)
        assert [pq.read_table(path).num_rows for path in paths] == before
        with log.reader.pinned(log.start, 400) as later:
            assert not set(later) & set(paths)
    assert not any(path.exists() for path in paths)
    with pytest.raises(NotRetainedError, match=f"from boundary {log.start} on; 100 is older"):
        log.reader.pinned(100, 200).__enter__()


def test_files_without_rows_in_the_interval_are_left_out(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(10, logged([(5, 1)]))
    log.append(20, None)
    log.append(30, logged([(25, 1)]))
    with log.reader.pinned(BEGINNING, 30) as paths:
        assert len(paths) == 2
    with log.reader.pinned(5, 24) as paths:
        assert paths == []


def test_counting_reads_only_where_an_end_lies_within_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = filled(tmp_path, 4, size=5)  # the stimes are 1..5, 11..15, 21..25, 31..35
    opened_files: list[str] = []
    really = epochs.pq.ParquetFile

    def opening(path: Path, **options: Any) -> pq.ParquetFile:
        opened_files.append(path.name)
        return really(path, **options)

    monkeypatch.setattr(epochs.pq, "ParquetFile", opening)
    assert log.reader.count(BEGINNING, END) == 20
    assert log.reader.count(0, 20) == 10
    assert log.reader.count(5, 29) == 10, "cut where there are no rows"
    assert opened_files == []
    assert log.reader.count(12, 23) == 3 + 3
    assert opened_files == ["10_20.parquet", "20_30.parquet"]
    assert log.reader.count(30, 12) == 0


def test_dropped_tuples_are_not_counted_as_none(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 10, history_us=0)
    log.upkeep.retain(0.0)
    assert log.start > 0
    with pytest.raises(NotRetainedError):
        log.reader.count(log.start - 1, log.boundary)
    (tmp_path / f"{log.start}_{log.boundary}.parquet").write_bytes(b"PAR1")
    said: list[str] = []
    log.damage.found.add(said.append)
    for _ in range(2):
        with pytest.raises(NotRetainedError, match=f"up to {log.boundary} are damaged"):
            log.reader.count(log.start, log.boundary - 8)
    assert len(said) == 1


async def test_a_commit_returns_its_cpu_time(tmp_path: Path) -> None:
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
    log.retention.hold(Hold("task"), 35)
    log.retention.hold(Hold("call"), 0, expires=100.0)
    # drops the empty epoch up to 0, which all readers have passed
    assert log.upkeep.retain(99.0) == 1
    assert log.start == 0
    assert log.upkeep.retain(100.0) == 3
    assert log.start == 30
    log.retention.hold(Hold("task"), 1000)
    log.upkeep.retain(101.0)
    assert log.start == 150
    log.retention.release(Hold("task"))
    assert all_rows(log) == [row for row in rows if row[0] > 150]
    with pytest.raises(NotRetainedError, match="from boundary 150 on; 149 is older"):
        log.reader.read(149)


def test_a_log_rests_until_it_changes_or_a_hold_ends(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 20, history_us=50)
    woken: list[float] = []
    log.retention.stirred.add(lambda: woken.append(log.retention.rests_until))
    log.retention.hold(Hold("call"), 0, expires=100.0)
    log.upkeep.retain(0.0)
    assert log.retention.rests_until == 100.0
    assert log.upkeep.retain(99.9) == 0
    log.upkeep.retain(100.0)
    assert log.start == 150
    assert log.retention.is_at_rest
    assert woken == []
    for boundary in (210, 220):
        log.append(boundary, logged([(boundary - 1, 1)]))
    assert len(woken) == 1  # woken once, until the log rests again
    log.upkeep.retain(101.0)
    assert log.start == 170
    log.retention.history_us = 0
    assert len(woken) == 2
    log.upkeep.retain(102.0)
    assert log.start == 210
    log.retention.hold(Hold("task"), 220)
    log.retention.release(Hold("task"))
    assert len(woken) == 3


def test_a_log_does_not_rest_while_a_reader_or_another_participant_delays_it(
    tmp_path: Path,
) -> None:
    log, _ = filled(tmp_path, 20, history_us=50)
    with log.reader.pinned(10, 20):
        log.upkeep.retain(0.0)
        assert not log.retention.is_at_rest
    assert log.upkeep.retain(0.0) > 0
    assert log.retention.is_at_rest
    log.retention.hold(Hold("subscriber", "utah.edu me"), 160, holder="utah.edu")
    log.upkeep.retain(0.0)
    assert not log.retention.is_at_rest
    assert list(log.upkeep.held_by_others(0.0)) == []
    log.append(300, logged([(299, 1)]))
    ((_, holder, _, since),) = log.upkeep.held_by_others(7.0)
    assert (holder, since) == ("utah.edu", 7.0)


def test_an_ended_stream_keeps_its_history(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 20, history_us=50)
    log.append(END, None)
    log.upkeep.retain(0.0)
    assert all_rows(log) == [row for row in rows if row[0] > 140]
    quick, rows = filled(tmp_path / "b", 3, history_us=0)
    quick.append(END, None)
    quick.upkeep.retain(0.0)
    assert quick.boundary == END  # the newest file gives the boundary, whatever rows it holds
    assert all_rows(opened(tmp_path / "b")) == rows[-3:]


def test_compaction_merges_likes_and_keeps_the_rows(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 100, 20)
    files = len(names(tmp_path))
    while trio.run(log.upkeep.compact):
        pass
    assert len(names(tmp_path)) < RUN + 2 < files
    assert all_rows(log) == rows == all_rows(opened(tmp_path))
    assert (log.files.rows, log.boundary) == (2000, 1000)


def test_compaction_makes_no_file_of_more_rows_than_a_job_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files may be ever so small on the disk: equal rows take next to nothing there."""
    log, rows = filled(tmp_path, 100)
    limit = 20 * log.files[1].content
    monkeypatch.setattr("medusa.engine.streams.log.folder.JOB_BYTES", limit)
    while trio.run(log.upkeep.compact):
        assert max(file.content for file in log.files) <= limit
    assert len(log.files) < 20
    assert [file.content for file in opened(tmp_path).files] == [file.content for file in log.files]
    assert all_rows(log) == rows


async def test_retention_during_compaction_wins(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 40, history_us=0)
    run = choose(log.files)
    writer = merge(run, tmp_path, SCHEMA.source, durable=False)
    log.upkeep.retain(0.0)
    assert log._folder.replace(run, writer) == 0
    assert all_rows(log) == rows[-3:]
    assert len(names(tmp_path)) == 1


async def test_appends_go_on_during_compaction(tmp_path: Path) -> None:
    log, rows = filled(tmp_path, 40)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.upkeep.compact)
        nursery.start_soon(log.upkeep.compact)
        await log.commit(410, logged([(405, 1)]))
    assert all_rows(opened(tmp_path)) == [*rows, (405, 1)]
    assert len(names(tmp_path)) < 10


def test_a_log_past_its_share_of_the_disk_refuses_until_retention(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 3, history_us=0, disk_bytes=20_000)
    big = logged([(100, n) for n in range(1_000)])
    with pytest.raises(StorageFullError, match="at most 20000"):
        log.append(100, big)
    assert log.boundary == 30
    log.append(90, None)
    log.append(100, logged([(100, 1)]))


OPERATION = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(1, 12), max_size=8), st.integers(0, 3)),
    st.tuples(st.sampled_from(["compact", "retain", "reopen", "read", "hold", "release"])),
)


def check_counts(log: StreamLog, model: list[Row], intervals: list[tuple[int, int]]) -> None:
    for ends in (*intervals, (log.start, log.boundary), (log.start, END)):
        after, upto = max(log.start, min(ends)), max(ends)
        between = [stime for stime, _ in model if after < stime <= upto]
        assert log.reader.count(after, upto) == len(between)


@settings(max_examples=150)
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
        patch.setattr("medusa.engine.streams.log.folder.RUN", run)
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
                    trio.run(log.upkeep.compact)
                case ("retain",):
                    log.upkeep.retain(0.0)
                    if held is not None:
                        assert log.start <= held
                    assert log.start <= max(BEGINNING, log.boundary - 20)
                case ("hold",):
                    held = log.start
                    log.retention.hold(Hold("task"), held)
                case ("release",):
                    held = None
                    log.retention.release(Hold("task"))
                case ("reopen",):
                    start, boundary = log.start, log.boundary
                    log.close()
                    log = opened(folder, history_us=20, recent_bytes=recent)
                    assert (log.start, log.boundary) == (start, boundary)
                    if held is not None:
                        log.retention.hold(Hold("task"), held)
                case ("read",):
                    pass
            state = [row for row in model if row[0] > log.start]
            assert all_rows(log, limit_rows=4) == state
            middle = state[len(state) // 2][0] if state else log.boundary
            if middle >= log.start:
                assert all_rows(log, middle) == [row for row in state if row[0] > middle]
            with log.reader.pinned(log.start, log.boundary) as paths:
                tables = [pq.read_table(path) for path in paths]
            found = pa.concat_tables([SCHEMA.source.empty_table(), *tables])
            assert pairs(found) == state
            check_counts(log, model, counted)
            assert log.files.bytes == sum(
                path.stat().st_size for path in log.folder.glob("*.parquet")
            )


def test_a_log_that_forgets_all_begins_again_later(tmp_path: Path) -> None:
    log, _ = filled(tmp_path, 5)
    end = log.boundary
    log.forget(end)
    assert (log.boundary, log.files.rows, log.files.bytes) == (BEGINNING, 0, 0)
    assert not list(log.folder.glob("*.parquet"))
    log.begin(end + 100)
    log.append(end + 110, logged([(end + 105, 1)]))
    assert (log.start, all_rows(log)) == (end + 100, [(end + 105, 1)])
    assert all_rows(opened(tmp_path)) == [(end + 105, 1)]


def test_a_log_that_crashes_while_it_forgets_begins_early_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = filled(tmp_path, 5)
    middle = log.boundary // 2
    drop, left = EpochFolder.drop_newest, []

    def look(folder: EpochFolder) -> None:
        left.append(opened(tmp_path))
        drop(folder)

    monkeypatch.setattr(EpochFolder, "drop_newest", look)
    log.forget(middle)
    assert len(left) > 1
    assert all(each.start <= middle <= each.boundary for each in left)
    assert opened(tmp_path).boundary == BEGINNING


def test_a_log_that_is_read_forgets_nothing(tmp_path: Path) -> None:
    log, before = filled(tmp_path, 3)
    with log.reader.pinned(log.start, log.boundary), pytest.raises(BusyError):
        log.forget(log.boundary)
    assert all_rows(log) == before
