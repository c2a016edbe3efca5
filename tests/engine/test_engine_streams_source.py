from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from engine_streams_data import ARRIVING, SCHEMA, Row, all_rows, body, pairs, payload
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.objects.definitions import Idle
from engine.objects.schema import BEGINNING, END, Schema
from engine.streams import waiting
from engine.streams.acceptance import (
    MAX_PRODUCERS,
    Acceptance,
    Entry,
    Snapshot,
    Writer,
    decode_entry,
)
from engine.streams.config import SourceConfig
from engine.streams.entries import MAX_META_BYTES
from engine.streams.ipc import encode
from engine.streams.log import StreamLog
from engine.streams.messages import MAX_BATCH_BYTES, Posted
from engine.streams.source import Source
from overlay.errors import (
    BusyError,
    DecodeError,
    InvalidInputError,
    SequenceGapError,
    StorageError,
    StorageFullError,
)

NOW = 1_700_000_000.0
NOW_US = 1_700_000_000_000_000
DEFAULT = SourceConfig()
P = Writer("p")
UTAH = Writer("p", "utah.edu")


@dataclass
class Stream:
    """A source with its log and the late tuples', as a leader has them; synchronous."""

    folder: Path
    config: SourceConfig = DEFAULT
    schema: Schema = SCHEMA
    sequence: dict[Writer, int] = field(default_factory=dict)

    def open(self) -> Stream:
        durable = self.config.durable
        self.log = StreamLog.open(self.folder / "log", self.schema.source, durable=durable)
        self.late_log = StreamLog.open(self.folder / "late", self.schema.source, durable=durable)
        self.late = Source.open(
            self.folder / "late-journal",
            "s/late",
            replace_time(self.schema),
            committed=self.late_log.boundary,
            config=SourceConfig(segment_bytes=self.config.segment_bytes),
            late=None,
            now=NOW,
        )
        self.source = Source.open(
            self.folder / "journal",
            "s",
            self.schema,
            committed=self.log.boundary,
            config=self.config,
            late=self.late,
            now=NOW,
        )
        return self

    def close(self) -> None:
        self.source.close()
        self.late.close()
        self.log.close()
        self.late_log.close()

    def crash(self) -> None:
        """What kill -9 leaves is what is on disk now."""
        self.close()
        self.open()

    def post(self, rows: list[Row], writer: Writer = P, **more: object) -> Posted:
        number = self.sequence.get(writer, 0) + 1
        posted = self.source.post(writer, number, body(rows) if rows else b"", now=NOW, **more)
        self.sequence[writer] = number
        return posted

    def post_until(self, error: type[Exception], message: str, rows: list[Row]) -> int:
        """Posts the rows again and again, each time later; how many posts were taken."""
        for n in range(100):
            try:
                self.post([(stime + len(rows) * n, value) for stime, value in rows])
            except error as refused:
                assert message in str(refused)  # noqa: PT017
                assert n
                return n
        pytest.fail("never refused")

    def move(self) -> bool:
        moved = False
        for source, log in ((self.source, self.log), (self.late, self.late_log)):
            if (cut := source.cut()) is not None:
                log.append(*cut)
                source.committed(cut[0])
                moved = True
        return moved

    def rows(self) -> list[Row]:
        return all_rows(self.log)

    def late_values(self) -> list[int]:
        return [value for _, value in all_rows(self.late_log)]


def replace_time(schema: Schema) -> Schema:
    return Schema(schema.name, schema.fields)


@contextmanager
def opened(
    folder: Path, config: SourceConfig = DEFAULT, schema: Schema = SCHEMA
) -> Iterator[Stream]:
    stream = Stream(folder, config, schema).open()
    try:
        yield stream
    finally:
        stream.close()


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Stream]:
    with opened(tmp_path) as stream:
        yield stream


def test_rows_come_out_in_order_once_the_boundary_passes_them(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=10)) as s:
        assert s.post([(100, 1), (95, 2), (100, 3)]) == Posted(1, 3, 0, 89)
        assert s.post([(98, 4), (92, 5)]) == Posted(2, 2, 0, 89)
        s.move()
        assert s.rows() == []
        assert s.post([(110, 6)]) == Posted(3, 1, 0, 99)
        s.move()
        assert s.rows() == [(92, 5), (95, 2), (98, 4)]
        assert s.post([], end=True) == Posted(4, 0, 0, END)
        s.move()
        assert s.rows() == [(92, 5), (95, 2), (98, 4), (100, 1), (100, 3), (110, 6)]


def test_late_rows_are_counted_and_go_to_their_own_stream(s: Stream) -> None:
    s.post([(100, 1)])
    assert s.post([(99, 2), (100, 3), (50, 4)]) == Posted(2, 1, 2, 99)
    assert s.source.waiting.late_rows == 2
    s.post([], boundary=1000)
    assert s.post([(1000, 5)]) == Posted(4, 0, 1, 1000)
    s.move()
    assert s.rows() == [(100, 1), (100, 3)]
    assert s.late_values() == [2, 4, 5]
    late = [stime for stime, _ in all_rows(s.late_log)]
    assert late == [NOW_US, NOW_US, NOW_US + 1]


def test_after_the_end_everything_is_late(s: Stream) -> None:
    s.post([(5, 1)], end=True)
    assert s.post([(2**62, 2)]) == Posted(2, 0, 1, END)
    s.move()
    s.crash()
    assert s.post([(7, 3)]) == Posted(3, 0, 1, END)
    s.move()
    assert s.rows() == [(5, 1)]
    assert s.late_values() == [2, 3]


def test_the_boundary_never_moves_back(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=1000)) as s:
        assert s.post([], boundary=500).boundary == 500
        assert s.post([], boundary=400).boundary == 500
        assert s.post([(600, 1)], boundary=BEGINNING).boundary == 500
        with pytest.raises(InvalidInputError, match="not an int64"):
            s.source.post(P, 4, boundary=2**63, now=NOW)


def test_a_repeated_post_is_answered_and_not_stored_again(s: Stream) -> None:
    s.post([(10, 1)])
    for _ in range(2):
        again = s.source.post(P, 1, body([(10, 1)]), now=NOW)
        assert again == Posted(1, 0, 0, 9, duplicate=True)
        s.crash()
    s.post([], end=True)
    s.move()
    assert s.rows() == [(10, 1)]


def test_a_gap_says_what_was_expected_and_stores_nothing(s: Stream) -> None:
    s.post([(10, 1)])
    for number in (3, 2**62, END):
        with pytest.raises(SequenceGapError, match=f"sent post {number}; expected 2"):
            s.source.post(P, number, body([(11, 2)]), now=NOW)
    assert s.source.waiting.pending.rows == 1
    assert s.source.post(P, 2, body([(11, 3)]), now=NOW).rows == 1


def test_a_new_producer_begins_at_one(s: Stream) -> None:
    for number in (2, 2**62, END):
        with pytest.raises(SequenceGapError, match="a new producer begins at 1"):
            s.source.post(P, number, body([(10, 1)]), now=NOW)
    with pytest.raises(InvalidInputError, match="not a post's number"):
        s.source.post(P, END + 1, now=NOW)
    assert s.post([(10, 1)]) == Posted(1, 1, 0, 9)


def test_no_number_of_one_participant_is_taken_for_anothers(s: Stream) -> None:
    s.post([(10, 1)], UTAH)
    assert s.post([(20, 2)], P) == Posted(1, 1, 0, 19)
    s.crash()
    assert s.source.post(UTAH, 1, body([(10, 1)]), now=NOW).duplicate
    s.post([(30, 3)], UTAH, end=True)
    s.move()
    assert s.rows() == [(10, 1), (20, 2), (30, 3)]


def test_an_invalid_post_stores_nothing_and_its_number_is_free(s: Stream) -> None:
    long_name = payload([(1, 1)]).set_column(1, "name", pa.array(["x" * 9]))
    for bad in (b"garbage", encode(long_name), encode(payload([(1, 1)]).select(["t"]))):
        with pytest.raises(InvalidInputError):
            s.source.post(P, 1, bad, now=NOW)
    with pytest.raises(InvalidInputError, match="send at most"):
        s.source.post(P, 1, bytes(MAX_BATCH_BYTES + 1), now=NOW)
    with pytest.raises(InvalidInputError, match="1 to 512 bytes"):
        s.source.post(Writer("ü" * 257), 1, now=NOW)
    with pytest.raises(InvalidInputError, match="not a post's number"):
        s.source.post(P, -1, now=NOW)
    assert s.post([(1, 1)]) == Posted(1, 1, 0, 0)


def entry(producer: str, sequence: int, missed: tuple[int, ...] = ()) -> Entry:
    return Entry(producer, sequence, BEGINNING, 0, 0, BEGINNING, None, None, 0, missed=missed)


def posted_by(state: Acceptance, writer: Writer, sequence: int = 1) -> None:
    post = entry(writer.producer, sequence)
    state.apply(msgspec.structs.replace(post, participant=writer.participant))


def test_producers_are_forgotten_longest_quiet_first() -> None:
    state = Acceptance(slack_us=0, arrival=False)
    for number in range(MAX_PRODUCERS + 1):
        if number == 5:
            posted_by(state, Writer("p0"), 2)
        posted_by(state, Writer(f"p{number}"))
    assert len(state.snapshot().producers_of[""]) == MAX_PRODUCERS
    assert state.is_duplicate(Writer("p0"), 2)
    assert not state.is_duplicate(Writer("p1"), 1)
    assert state.is_duplicate(Writer("p2"), 1)


def test_who_has_most_producers_forgets_its_own_first() -> None:
    state = Acceptance(slack_us=0, arrival=False)
    for number in range(3):
        posted_by(state, Writer(f"sensor-{number}", "utah.edu"))
    for number in range(2 * MAX_PRODUCERS):
        posted_by(state, Writer(f"flood-{number}", "evil.org"))
    assert all(state.is_duplicate(Writer(f"sensor-{n}", "utah.edu"), 1) for n in range(3))
    remembered = state.snapshot().producers_of
    assert {who: len(last) for who, last in remembered.items()} == {
        "utah.edu": 3,
        "evil.org": MAX_PRODUCERS - 3,
    }
    with pytest.raises(SequenceGapError, match="post the rest as another one"):
        state.is_duplicate(Writer("flood-0", "evil.org"), 2)


def test_a_replica_forgets_what_its_home_forgets() -> None:
    leader, replica = (Acceptance(slack_us=0, arrival=False) for _ in range(2))
    for number in range(MAX_PRODUCERS):
        posted_by(leader, Writer(f"p{number}", ("", "utah.edu", "mit.edu")[number % 3]))
    replica.restore(leader.snapshot())
    for number in range(100):
        for state in (leader, replica):
            posted_by(state, Writer(f"q{number}", "abc"[number % 3]))
    assert leader.snapshot() == replica.snapshot()
    assert list(leader.snapshot().producers_of) == list(replica.snapshot().producers_of)


def test_a_full_snapshot_fits_its_journal() -> None:
    state = Acceptance(slack_us=0, arrival=False)
    for number in range(MAX_PRODUCERS):
        posted_by(state, Writer(f"{number:04}" + "\U0001f600" * 127, f"{number:064}"), END)
    for number in range(64):
        post = entry(f"{number}" + "\U0001f600" * 127, END, tuple(range(4096)))
        state.apply(msgspec.structs.replace(post, participant=f"{number:064}"))
    assert len(msgspec.msgpack.encode(state.snapshot())) < MAX_META_BYTES


def test_producers_in_an_old_journal_are_the_owners() -> None:
    old = msgspec.msgpack.encode(
        [{"sensor": 7}, 0, BEGINNING, BEGINNING, 0, 0, 3, 0, [["r", 2, [1]]]]
    )
    state = Acceptance(slack_us=0, arrival=False)
    state.restore(msgspec.msgpack.decode(old, type=Snapshot))
    assert state.is_duplicate(Writer("sensor"), 7)
    assert state.missed(Writer("r"), 2) == (1,)
    assert not state.is_duplicate(Writer("sensor", "utah.edu"), 1)
    state.apply(decode_entry(msgspec.msgpack.encode(["sensor", 8, 0, 0, 0, 0, None, None, 0])))
    assert state.is_duplicate(Writer("sensor"), 8)


@given(st.binary(max_size=40) | st.sampled_from([b"\x91\xa1\xff", b"\x91\xa3s\xff\xff"]))
def test_an_entry_is_decoded_or_refused_with_one_error(meta: bytes) -> None:
    """A name that is no UTF-8 as well."""
    with suppress(DecodeError):
        decode_entry(meta)


def test_arrival_gives_the_time_where_no_field_does(tmp_path: Path) -> None:
    with opened(tmp_path, schema=ARRIVING) as s:
        s.post([(1, 1), (2, 2)])
        s.post([(3, 3)])
        s.crash()
        s.move()
        assert s.rows() == [(NOW_US, 1), (NOW_US, 2), (NOW_US + 1, 3)]
        s.post([], end=True)
        assert s.post([(4, 4)]) == Posted(4, 0, 1, END)
        s.move()
        assert s.late_values() == [4]


def test_the_clock_moves_an_idle_stream(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=50, idle=Idle.CLOCK)) as s:
        s.post([(NOW_US - 30, 1)])
        s.source.tick(NOW)
        assert s.source.boundary == NOW_US - 51
        s.source.tick(NOW + 1)
        s.source.tick(NOW)
        s.move()
        assert s.log.boundary == NOW_US + 1_000_000 - 51
        assert s.rows() == [(NOW_US - 30, 1)]
        assert s.post([(NOW_US, 2)]).late == 1
    with opened(tmp_path / "explicit") as s:
        s.source.tick(NOW)
        assert s.source.cut() is None


def test_a_cut_that_the_log_refused_comes_again_with_later_rows_after_it(s: Stream) -> None:
    s.post([(10, 1), (20, 2)])
    first = s.source.cut()
    s.post([(30, 3)])
    second = s.source.cut()
    assert first is not None
    assert second is not None
    assert first[0] == second[0] == 19
    assert pairs(second[1]) == [(10, 1)]
    s.move()
    s.move()
    assert s.rows() == [(10, 1), (20, 2)]


def test_a_full_source_is_busy_until_the_log_takes_some(tmp_path: Path) -> None:
    config = SourceConfig(pending_bytes=100_000)
    rows = [(i, i) for i in range(200)]
    with opened(tmp_path, config) as s:
        taken = s.post_until(BusyError, "wait for its log", rows)
        assert s.source.waiting.pending.bytes <= 100_000
        s.move()
        assert s.post([(10_000, 1)]).rows == 1
        assert len(s.rows()) == taken * 200 - 1


def test_slack_that_holds_more_than_may_wait_is_told_apart(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=10**9, pending_bytes=10_000)) as s:
        rows = [(i, i) for i in range(100)]
        s.post_until(InvalidInputError, "slack of 1000 s holds more than 10000 bytes", rows)
        # A post that moves the boundary is what mends it.
        assert s.post([(5000 + i, i) for i in range(100)], boundary=4999).rows == 100
        s.move()
        assert s.source.waiting.pending.rows == 100


def test_few_rows_left_behind_do_not_keep_a_large_body_alive(s: Stream) -> None:
    before = pa.total_allocated_bytes()
    s.post([(i, i) for i in range(100_000)])
    s.move()
    del s.log._recent._epochs[0]
    assert pa.total_allocated_bytes() - before < 100_000
    assert s.source.waiting.pending.bytes < 10_000


def test_journal_segments_go_when_their_rows_are_in_the_log(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(segment_bytes=3000)) as s:
        s.post([], Writer("quiet"))
        for n in range(60):
            s.post([(n * 10 + i, i) for i in range(10)])
            if n % 7 == 0:
                s.move()
        s.move()
        assert len(list((tmp_path / "journal").iterdir())) <= 2
        s.crash()
        again = s.source.post(Writer("quiet"), 1, body([(1, 1)]), now=NOW)
        assert again.duplicate, "the snapshot knows the producers of segments that went"
        s.post([], end=True)
        s.move()
        assert len(s.rows()) == 600


def test_late_rows_that_their_stream_cannot_take_are_owed_over_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageFullError("no room")

    with opened(tmp_path, SourceConfig(segment_bytes=600)) as s:
        s.post([(100, 1)])
        monkeypatch.setattr(Source, "take_late", full)
        assert s.post([(101, 2), (50, 3)]) == Posted(2, 1, 1, 100)
        for n in range(10):
            s.post([(200 + n, 10 + n), (150 + n, 30 + n)])
            s.move()
        s.crash()
        s.post([], end=True)
        s.move()
        assert s.late_values() == []
        monkeypatch.undo()
        s.crash()
        s.move()
        assert s.late_values() == [3, *(30 + n for n in range(1, 10))]
        assert [value for _, value in s.rows()] == [1, 2, 30, *range(10, 20)]


def test_a_slack_that_changes_over_a_restart_loses_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=50)) as s:
        s.post([(100, 1)])
        s.post([(60, 2), (49, 3)])
        s.close()
        s.config = SourceConfig(slack_us=0)
        s.open()
        assert s.source.boundary == 99
        s.post([], end=True)
        s.move()
        assert s.rows() == [(60, 2), (100, 1)]
        assert s.late_values() == [3]


@dataclass
class Model:
    """What a source must hold, by rows and loops."""

    slack: int
    boundary: int = BEGINNING
    greatest: int = BEGINNING
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    number: int = 0

    def post(self, rows: list[Row], promise: int | None) -> None:
        before = self.boundary
        for stime, value in rows:
            if stime <= before:
                self.late.append(value)
            else:
                self.rows.append((stime, self.number, value))
            self.number += 1
            self.greatest = max(self.greatest, stime)
            self.boundary = max(self.boundary, self.greatest - self.slack - 1)
        if promise is not None:
            self.boundary = max(self.boundary, promise)


POST = st.tuples(
    st.just("post"),
    st.sampled_from([P, UTAH, Writer("q")]),
    st.lists(st.integers(-30, 60), max_size=6),
    st.none() | st.integers(-30, 60),
    st.integers(0, 3),
)
STEP = POST | st.tuples(st.sampled_from(["move", "append", "crash", "torn", "clock"]))


@settings(max_examples=120, deadline=None)
@given(
    st.lists(STEP, max_size=25),
    st.integers(0, 20),
    st.sampled_from([600, 2**20]),
    st.sampled_from([1, 2**20]),
)
def test_any_history_of_posts_and_crashes_gives_the_model_rows(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple],
    slack: int,
    segment: int,
    epoch: int,
) -> None:
    model, value, base = Model(slack), 0, 0
    config = SourceConfig(slack_us=slack, idle=Idle.CLOCK, segment_bytes=segment)
    with (
        pytest.MonkeyPatch.context() as patch,
        opened(tmp_path_factory.mktemp("source"), config) as s,
    ):
        patch.setattr(waiting, "EPOCH_BYTES", epoch)
        for step in steps:
            match step:
                case ("post", writer, stimes, promise, forward):
                    base += forward * 10
                    rows = [(base + stime, value + i) for i, stime in enumerate(stimes)]
                    value += len(rows)
                    promise = None if promise is None else base + promise
                    model.post(rows, promise)
                    posted = s.post(rows, writer, boundary=promise)
                    assert posted.boundary == model.boundary
                    again = s.source.post(writer, s.sequence[writer], b"junk", now=NOW)
                    assert again.duplicate
                case ("move",):
                    s.move()
                case ("clock",):
                    s.source.tick((base + slack + 1) / 1e6)
                    model.boundary = max(
                        model.boundary, int((base + slack + 1) / 1e6 * 1e6) - slack - 1
                    )
                case ("append",):  # killed between the log's commit and the source's
                    if (cut := s.source.cut()) is not None:
                        s.log.append(*cut)
                    s.crash()
                    model.boundary = s.source.boundary
                case ("torn",):
                    newest = max((s.folder / "journal").glob("*.journal"))
                    with newest.open("ab") as file:
                        file.write(b"\x01\x02\x03 torn")
                    s.crash()
                    model.boundary = s.source.boundary
                case ("crash",):
                    s.crash()
                    # A tick that nothing was cut by is forgotten, and was seen by nobody.
                    assert s.source.boundary <= model.boundary
                    model.boundary = s.source.boundary
        s.post([], end=True)
        while s.move():
            pass
        assert s.rows() == [(stime, v) for stime, _, v in sorted(model.rows)]
        assert s.late_values() == model.late
        table = pa.concat_tables([s.log.read(BEGINNING, 0, 10**9).table])
        assert table.column("seq").to_pylist() == [n for _, n, _ in sorted(model.rows)]


def test_a_large_cut_comes_in_several_epochs(s: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "EPOCH_BYTES", 100)
    for n in range(5):
        s.post([(10 * n + i // 2, n) for i in range(10)])
    s.post([(44, 9)])
    boundaries = []
    while s.move():
        boundaries.append(s.log.boundary)
    assert boundaries == [9, 19, 29, 39, 43]
    assert len(s.rows()) == 48


def test_bytes_that_are_no_post_are_refused(s: Stream) -> None:
    with pytest.raises(DecodeError):
        s.source.post(Writer("p"), 1, b"\0" * 8, now=NOW)


def test_tiny_posts_count_for_what_they_take_in_memory(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=10**9, pending_bytes=2**18)) as s:
        posts = s.post_until(InvalidInputError, "slack of 1000 s holds", [(1, 1)])
        assert posts < 90, "each takes some kilobytes, whatever its 20 bytes of data"


def test_what_a_home_adds_to_narrow_rows_counts(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=10**9, pending_bytes=5 * 2**20)) as s:
        s.post([(i, 1) for i in range(100_000)])
        before = s.source.waiting.pending.bytes
        with pytest.raises(InvalidInputError, match="slack of 1000 s holds"):
            s.post([(i, 1) for i in range(100_000)])
        assert before > 100_000 * 16


# -- a damaged journal -----------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_flipped_bit_takes_the_post_that_it_is_in(s: Stream, tmp_path: Path) -> None:
    ends = []
    for n in range(50):
        s.post([(n, n)], Writer("ab"[n % 2]))
        ends.append(s.source.position[1])
    s.close()
    flip(tmp_path / "journal" / "000000000001.journal", ends[20] - 1)
    s.open()
    damaged, post = s.source.lost
    assert f"{ends[20] - ends[19]} bytes from byte {ends[19]} on are damaged" in damaged
    assert post.startswith("posts 11 to 11 of a are missing from the journal")
    s.crash()
    assert s.source.lost == ()
    s.post([], Writer("a"), end=True)
    while s.move():
        pass
    assert s.rows() == [(n, n) for n in range(50) if n != 20]


def test_a_producer_whose_last_posts_are_lost_goes_on(s: Stream, tmp_path: Path) -> None:
    for n in range(4):
        s.post([(n, n)], Writer("a"))
        end = s.source.position[1]
    s.post([(5, 5)], Writer("b"))
    s.close()
    flip(tmp_path / "journal" / "000000000001.journal", end - 1)
    s.open()
    assert len(s.source.lost) == 1, "nobody knows whose post that was"
    s.crash()
    s.source.post(Writer("new"), 1, body([(6, 6)]), now=NOW)
    with pytest.raises(SequenceGapError):
        s.source.post(Writer("new"), 3, body([(6, 6)]), now=NOW)
    assert s.source.post(Writer("a"), 3, b"junk", now=NOW).duplicate
    assert not s.post([(7, 7)], Writer("a")).duplicate
    (lost,) = s.source.lost
    assert lost.startswith("posts 4 to 4 of a are missing")
    with pytest.raises(SequenceGapError):
        s.source.post(Writer("a"), 7, body([(8, 8)]), now=NOW)
    s.post([(9, 9)], Writer("b"))
    with pytest.raises(SequenceGapError):
        s.source.post(Writer("b"), 4, body([(9, 9)]), now=NOW)
    s.post([], Writer("b"), end=True)
    while s.move():
        pass
    assert s.rows() == [(0, 0), (1, 1), (2, 2), (5, 5), (6, 6), (7, 7), (9, 9)]


def test_a_producer_all_of_whose_posts_are_lost_goes_on(s: Stream, tmp_path: Path) -> None:
    """Its next one has a number that only a producer may have which has posted before."""
    s.post([(0, 0)], Writer("a"))
    _, start = s.source.position
    for n in range(1, 4):
        s.post([(n, n)], Writer("b", "utah.edu"))
    _, end = s.source.position
    s.post([(5, 5)], Writer("a"))
    s.close()
    path = tmp_path / "journal" / "000000000001.journal"
    data = bytearray(path.read_bytes())
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    s.open()
    s.post([(7, 7)], Writer("b", "utah.edu"))
    assert s.source.lost[-1].startswith("posts 1 to 3 of b of utah.edu are missing")
    with pytest.raises(SequenceGapError):
        s.source.post(Writer("b", "utah.edu"), 9, body([(8, 8)]), now=NOW)
    s.post([], Writer("a"), end=True)
    while s.move():
        pass
    assert s.rows() == [(0, 0), (5, 5), (7, 7)]


def test_late_tuples_keep_coming_after_damage(s: Stream, tmp_path: Path) -> None:
    """They are numbered by the posts that had some, and two of those are missing in the journal."""
    ends = []
    for n in range(6):
        s.post([(10 * n, n), (0, 100 + n)])  # late from the third on
        ends.append(s.source.position[1])
    s.close()
    for end in ends[3:5]:
        flip(tmp_path / "journal" / "000000000001.journal", end - 1)
    s.open()
    for n in range(6, 9):
        s.post([(10 * n, n), (0, 100 + n)])
    while s.move():
        pass
    assert s.late_values() == [*range(102, 109)]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 60), max_size=4)), max_size=30
    ),
    st.sets(st.integers(0, 29)),
    st.sampled_from([300, 2**20]),
    st.lists(st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)), min_size=1, max_size=2),
)
def test_what_damage_does_not_touch_is_there_once(
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
            placed.append((rows, posted.late, *s.source.position))
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
        assert s.source.lost == s.late.lost == ()


# -- a disk that fails -----------------------------------------------------------------------------


class FailingDisk:
    """Lets operations fail, before they do anything or after they have.

    Attributes:
        faults: of the next operations: None, or whether the fault comes after it.
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


@settings(max_examples=120, deadline=None)
@given(st.lists(WORK, max_size=40), st.booleans(), st.sampled_from([300, 2**20]))
def test_a_failing_disk_loses_nothing_that_was_acknowledged(
    tmp_path_factory: pytest.TempPathFactory,
    work: list[tuple[str, str, int, list[bool | None]]],
    durable: bool,
    segment: int,
) -> None:
    """What was refused is posted again, under its number, when its producer comes again."""
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
                        trio.run(s.log.compact)
                        s.log.retain(0.0)
                    case "crash":
                        disk.faults = []
                        s.crash()
                        assert s.source.lost == ()
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
        assert not s.log.lost_files
        s.crash()
        assert (s.rows(), s.late_values()) == (there, late)
        assert not s.log.lost_files
