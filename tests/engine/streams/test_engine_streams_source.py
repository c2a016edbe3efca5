from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from engine_streams_data import ARRIVING, Row, all_rows, body, pairs, payload
from hypothesis import given, settings
from hypothesis import strategies as st
from source_streams import NOW, NOW_US, UTAH, P, Stream, opened

from medusa.engine.objects.definitions import Idle
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import MAX_BATCH_BYTES, Post, Posted
from medusa.engine.streams.source import waiting
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.source import Source
from medusa.overlay.errors import (
    BusyError,
    DecodeError,
    InvalidInputError,
    SequenceGapError,
    StorageFullError,
)


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


def test_a_producer_that_asks_or_leaves_learns_how_many_rows_wait(tmp_path: Path) -> None:
    """A producer that leaves may have been the one for which they waited."""
    other = Writer("other")
    with opened(tmp_path, SourceConfig(slack_us=10, idle_timeout_us=10**9)) as s:
        s.post([(100, 1)])
        s.post([(130, 4)], other)
        s.post([(150, 2), (155, 3)])
        assert s.source.post(PostRequest(P, Post(0)), now=NOW) == Posted(
            0, 0, 0, 119, last=2, waiting=3
        )
        left = s.source.post(PostRequest(other, Post(0, done=True)), now=NOW)
        assert left == Posted(0, 0, 0, 144, last=1, waiting=2)
        s.move()
        assert s.source.post(PostRequest(P, Post(0)), now=NOW).waiting == 2


def test_late_rows_are_counted_and_go_to_their_own_stream(s: Stream) -> None:
    s.post([(100, 1)])
    assert s.post([(99, 2), (100, 3), (50, 4)]) == Posted(2, 1, 2, 99)
    assert s.source.acceptance.late_rows == 2
    s.post([], boundary=1000)
    assert s.post([(1000, 5)]) == Posted(4, 0, 1, 1000)
    s.move()
    assert s.rows() == [(100, 1), (100, 3)]
    assert s.late_values() == [2, 4, 5]
    late = [stime for stime, _ in all_rows(s.late_log)]
    assert late == [NOW_US, NOW_US, NOW_US + 1]
    s.crash()
    assert s.source.acceptance.late_rows == 3, "in all, not since the start"
    s.source.journal.begin_segment()
    s.crash()
    assert s.source.acceptance.late_rows == 3


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
            s.source.post(PostRequest(P, Post(4, boundary=2**63)), now=NOW)


def test_a_repeated_post_is_answered_and_not_stored_again(s: Stream) -> None:
    s.post([(10, 1)])
    for _ in range(2):
        again = s.source.post(PostRequest(P, Post(1), body([(10, 1)])), now=NOW)
        assert again == Posted(1, 0, 0, 9, duplicate=True)
        s.crash()
    s.post([], end=True)
    s.move()
    assert s.rows() == [(10, 1)]


def test_a_gap_says_what_was_expected_and_stores_nothing(s: Stream) -> None:
    s.post([(10, 1)])
    for number in (3, 2**62, END):
        with pytest.raises(SequenceGapError, match=f"sent post {number}; expected 2"):
            s.source.post(PostRequest(P, Post(number), body([(11, 2)])), now=NOW)
    assert s.source.waiting.pending.rows == 1
    assert s.source.post(PostRequest(P, Post(2), body([(11, 3)])), now=NOW).rows == 1


def test_a_new_producer_begins_at_one(s: Stream) -> None:
    for number in (2, 2**62, END):
        with pytest.raises(SequenceGapError, match="a new producer begins at 1"):
            s.source.post(PostRequest(P, Post(number), body([(10, 1)])), now=NOW)
    with pytest.raises(InvalidInputError, match="not a post's number"):
        s.source.post(PostRequest(P, Post(END + 1)), now=NOW)
    assert s.post([(10, 1)]) == Posted(1, 1, 0, 9)


def test_no_number_of_one_participant_is_taken_for_anothers(s: Stream) -> None:
    s.post([(10, 1)], UTAH)
    assert s.post([(20, 2)], P) == Posted(1, 1, 0, 19)
    s.crash()
    assert s.source.post(PostRequest(UTAH, Post(1), body([(10, 1)])), now=NOW).duplicate
    s.post([(30, 3)], UTAH)
    s.post([], P, end=True)
    s.move()
    assert s.rows() == [(10, 1), (20, 2), (30, 3)]


def test_an_invalid_post_stores_nothing_and_its_number_is_free(s: Stream) -> None:
    long_name = payload([(1, 1)]).set_column(1, "name", pa.array(["x" * 9]))
    for bad in (b"garbage", encode(long_name), encode(payload([(1, 1)]).select(["t"]))):
        with pytest.raises(InvalidInputError):
            s.source.post(PostRequest(P, Post(1), bad), now=NOW)
    with pytest.raises(InvalidInputError, match="send at most"):
        s.source.post(PostRequest(P, Post(1), bytes(MAX_BATCH_BYTES + 1)), now=NOW)
    with pytest.raises(InvalidInputError, match="1 to 512 bytes"):
        s.source.post(PostRequest(Writer("ü" * 257), Post(1)), now=NOW)
    with pytest.raises(InvalidInputError, match="not a post's number"):
        s.source.post(PostRequest(P, Post(-1)), now=NOW)
    assert s.post([(1, 1)]) == Posted(1, 1, 0, 0)


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


def test_a_refusal_by_slack_has_its_own_message(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=10**9, pending_bytes=10_000)) as s:
        rows = [(i, i) for i in range(100)]
        s.post_until(InvalidInputError, "slack of 1000 s holds more than 10000 bytes", rows)
        # A post that moves the boundary mends the stream.
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
        again = s.source.post(PostRequest(Writer("quiet"), Post(1), body([(1, 1)])), now=NOW)
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
        assert s.late_values() == [3, *(30 + n for n in range(10))]
        assert [value for _, value in s.rows()] == [1, 2, *range(10, 20)]


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
    """A source in plain Python, by rows and loops."""

    slack: int
    boundary: int = BEGINNING
    greatest: int = BEGINNING
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    number: int = 0

    def post(self, rows: list[Row], promise: int | None) -> None:
        for stime, value in rows:
            if stime <= self.boundary:
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


@settings(max_examples=120)
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
                    again = s.source.post(
                        PostRequest(writer, Post(s.sequence[writer]), b"junk"), now=NOW
                    )
                    assert again.duplicate
                case ("move",):
                    s.move()
                case ("clock",):
                    s.source.tick((base + slack + 1) / 1e6)
                    model.boundary = max(
                        model.boundary, int((base + slack + 1) / 1e6 * 1e6) - slack - 1
                    )
                case ("append",):  # killed between the log's commit and the source's commit
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
                    # a boundary that the clock moved past no row is not in the journal, so the
                    # crash loses it; no reader has seen it
                    assert s.source.boundary <= model.boundary
                    model.boundary = s.source.boundary
        s.post([], end=True)
        while s.move():
            pass
        assert s.rows() == [(stime, v) for stime, _, v in sorted(model.rows)]
        assert s.late_values() == model.late
        table = pa.concat_tables([s.log.reader.read(BEGINNING, 0, 10**9).table])
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
        s.source.post(PostRequest(Writer("p"), Post(1), b"\0" * 8), now=NOW)


def test_tiny_posts_count_for_what_they_take_in_memory(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=10**9, pending_bytes=2**18)) as s:
        posts = s.post_until(InvalidInputError, "slack of 1000 s holds", [(1, 1)])
        assert posts < 90, "each takes some kilobytes, whatever its 20 bytes of data"


def test_the_columns_that_a_leader_adds_count_in_the_memory(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=10**9, pending_bytes=5 * 2**20)) as s:
        s.post([(i, 1) for i in range(100_000)])
        before = s.source.waiting.pending.bytes
        with pytest.raises(InvalidInputError, match="slack of 1000 s holds"):
            s.post([(i, 1) for i in range(100_000)])
        assert before > 100_000 * 16
