"""The beginning of a log, and how far a reader may read at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest
from engine_streams_data import SCHEMA, all_rows, logged, pairs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.log.parts import first_part
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Tuples
from medusa.engine.streams.reading.assembling import Assembler
from medusa.engine.streams.reading.feed import message_of
from medusa.overlay.errors import NotRetainedError


def open_log(folder: Path) -> StreamLog:
    return StreamLog.open(folder, SCHEMA.source)


def test_a_log_that_begins_late_is_contiguous_from_there_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(100)
    assert (log.start, log.boundary) == (100, 100)
    log.append(110, logged([(105, 1)]))
    assert all_rows(log, 100) == [(105, 1)]
    with pytest.raises(NotRetainedError):
        log.reader.read(BEGINNING)


@pytest.mark.parametrize("empty_epoch", [False, True])
def test_a_restart_knows_where_the_log_began(tmp_path: Path, empty_epoch: bool) -> None:
    log = open_log(tmp_path)
    log.begin(100)
    if empty_epoch:
        log.append(120, None)
    log.close()
    log = open_log(tmp_path)
    assert (log.start, log.boundary) == (100, 120 if empty_epoch else 100)
    log.append(130, logged([(125, 1)]))
    log.close()
    assert all_rows(open_log(tmp_path), 100) == [(125, 1)]


def test_a_subscriber_of_everything_receives_the_first_boundary() -> None:
    assembler = Assembler(SCHEMA.source, after=BEGINNING)
    epoch = assembler.add(Tuples(100, 110, 1), encode(logged([(105, 1)])))
    assert epoch is not None
    assert (epoch.after, epoch.upto) == (100, 110)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 3), min_size=1, max_size=60))
def test_pulling_gives_every_row_once_however_large_the_epoch(
    monkeypatch: pytest.MonkeyPatch, gaps: list[int]
) -> None:
    rows = [(sum(gaps[: i + 1]) // 2, i) for i in range(len(gaps))]  # some stimes occur twice
    monkeypatch.setattr("medusa.engine.streams.log.parts.PART_BYTES", 200)
    table, after, end = logged(rows), -1, rows[-1][0] + 1
    pulled: list[tuple[int, int]] = []
    assembler = Assembler(SCHEMA.source, after=after)
    while after < end:
        rest = table.filter(pc.greater(table.column("stime"), after))
        part = first_part(after, end, rest)
        epoch = assembler.add(message_of(part), part.body())
        assert epoch is not None
        assert epoch.upto > after
        pulled += pairs(epoch.table)
        after = epoch.upto
    assert pulled == rows


def test_more_of_one_stime_than_one_answer_holds_reaches_no_boundary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("medusa.engine.streams.log.parts.PART_BYTES", 200)
    assert first_part(0, 9, logged([(5, i) for i in range(100)])).upto is None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 10), st.data())
def test_reach_takes_whole_epochs_within_the_limit_and_at_least_one(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, data: st.DataObject
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"))
    log.append(0, None)
    for size in sizes:
        start = log.boundary
        log.append(start + 10, logged([(start + 1 + i, i) for i in range(size)]))
    after = data.draw(st.sampled_from([file.after for file in log.files]))
    upto = log.files.reach(after, limit)
    rows = len([row for row in all_rows(log, after, 1) if row[0] <= upto])
    files = [file for file in log.files if after < file.upto <= upto]
    assert upto > after
    assert rows <= limit or len(files) == 1
    # and no further epoch would have fitted
    further = [file for file in log.files if file.upto > upto]
    assert not further or rows + further[0].rows > limit


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 300), st.data())
def test_reach_takes_no_more_bytes_than_allowed_and_a_restart_knows_the_positions(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = open_log(folder)
    log.append(0, None)
    content = {0: 0}
    for size in sizes:
        table = logged([(log.boundary + 1 + i, i) for i in range(size)])
        log.append(log.boundary + 10, table)
        content[log.boundary] = table.nbytes
    if data.draw(st.booleans()):
        log.close()
        log = open_log(folder)
    after = data.draw(st.sampled_from(sorted(content)[:-1]))
    upto = log.files.reach(after, 10**6, limit)
    reached = [size for at, size in content.items() if after < at <= upto]
    assert upto > after
    assert sum(reached) <= limit or len([size for size in reached if size]) == 1
    further = [size for at, size in content.items() if at > upto]
    assert not further or sum(reached) + further[0] > limit
