"""The state of a log after a crash, a loss of power, or damage."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from damaged_files import flip
from engine_streams_data import Row, all_rows, logged, pairs
from filled_logs import filled, names, opened
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.log import epochs
from medusa.engine.streams.log.scanning import MADE_EMPTY
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.overlay.errors import DamagedError, NotRetainedError, StorageError


@pytest.mark.parametrize("durable", [False, True])
def test_the_remains_of_every_crash_are_one_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """Before every change of the directory a copy of it is opened: it has exactly the committed
    rows."""
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
            trio.run(log.upkeep.compact)
        if n % 9 == 0:
            log.upkeep.retain(0.0)
    assert copies > 100


def lost_in(log: StreamLog) -> list[tuple[int, int]]:
    return [(file.after, file.upto) for file in log.files.lost]


def rows_around(log: StreamLog) -> list[Row]:
    """Return all rows that can be read."""
    found, at, taken = [], log.start, 0
    while at < log.boundary:
        try:
            part = log.reader.read(at, taken, 5)
        except NotRetainedError:
            at = next(file.upto for file in log.files.lost if file.after <= at < file.upto)
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
            log.reader.read(20)
        with pytest.raises(NotRetainedError):
            log.reader.pinned(15, 25).__enter__()
        with pytest.raises(NotRetainedError):
            log.reader.count(15, 25)
        assert log.reader.count(30, 60) == 9
        with log.reader.pinned(30, 60) as paths:
            assert len(paths) == 3
        assert log.reader.tail(9) == 30
        assert log.reader.tail(10) == 30, "fewer rows follow the boundaries before the gap"
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
    """Subscribers have that boundary: no other tuple may appear before it."""
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
    log.damage.found.add(said.append)
    assert log.files.lost == ()
    assert rows_around(log) == rows[:50] + rows[100:]
    (text,) = said
    assert text.startswith(f"{tmp_path / '10_20.parquet'} is damaged")
    assert "after boundary 10 up to 20" in text
    assert log.files.whole_from == log.oldest == 20


def flip_page(path: Path) -> None:
    """Flip one bit in the data of the first column."""
    at = pq.read_metadata(path).row_group(0).column(0).data_page_offset + 120
    flip(path, at)


def test_compaction_merges_nothing_that_is_damaged(tmp_path: Path) -> None:
    _, rows = filled(tmp_path, 40, size=9)
    flip_page(tmp_path / "100_110.parquet")
    log = opened(tmp_path)
    assert trio.run(log.upkeep.compact) == 0
    assert lost_in(log) == [(100, 110)]
    while trio.run(log.upkeep.compact):
        pass
    assert len(log.files) < 30
    assert lost_in(log) == [(100, 110)]
    assert rows_around(log) == [row for row in rows if not 100 < row[0] <= 110]


def test_retention_drops_lost_intervals_in_their_turn(tmp_path: Path) -> None:
    filled(tmp_path, 6)
    (tmp_path / "20_30.parquet").unlink()
    (tmp_path / "30_40.parquet").write_bytes(b"PAR1")
    log = opened(tmp_path, history_us=15, durable=True)
    assert lost_in(log) == [(20, 30), (30, 40)]
    log.upkeep.retain(0.0)
    assert (lost_in(log), log.start) == ([], 40)
    assert names(tmp_path) == ["40_50.parquet", "50_60.parquet"]


def test_retention_waits_for_a_reader_of_the_oldest_file(tmp_path: Path) -> None:
    """If younger files were deleted first, a crash would leave a gap, which counts as damage."""
    log, rows = filled(tmp_path, 6, history_us=0)
    with log.reader.pinned(0, 10) as paths:
        assert log.upkeep.retain(0.0) == 1
        assert log.start == 0
        assert [path.name for path in paths] == ["0_10.parquet"]
        assert all_rows(opened(tmp_path)) == rows
    assert log.upkeep.retain(0.0) == 5


@settings(max_examples=400)
@given(st.floats(0, 1), st.integers(0, 7), st.integers(0, 25), st.integers(0, 25))
def test_no_flipped_bit_gives_other_rows(
    tmp_path_factory: pytest.TempPathFactory, share: float, bit: int, after: int, upto: int
) -> None:
    """The bit is anywhere in a file of several row groups: in a page, its header or the footer."""
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
        count = log.reader.count(max(after, log.start), upto)
        table = pa.concat_tables(
            [
                log.schema.empty_table(),
                *epochs.read_groups(log.files[0].path, log.schema, after, upto),
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
    """If the name stayed, the file would cover, or overlap, the next commit."""
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
    """The log opens as if it had never committed the lost epochs. Old damage, and damage of files
    made since the machine was started, is reported."""
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


def test_a_lost_interval_stays_also_where_a_log_has_nothing_else(tmp_path: Path) -> None:
    """The interval's file was written empty on purpose; no loss of power has torn it."""
    lost = tmp_path / "10_20.parquet"
    lost.touch()
    os.utime(lost, (MADE_EMPTY, MADE_EMPTY))
    log = opened(tmp_path)
    assert (lost_in(log), log.lost, log.boundary) == ([(10, 20)], (), 20)
    log.close()
