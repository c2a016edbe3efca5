"""The boundary of a source stream waits for the producers that are present."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_streams_data import Row, body
from source_streams import Stream, opened

from medusa.engine.objects.definitions import Idle
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.presence import MAX_PRESENT
from medusa.overlay.errors import BusyError

S = 1_000_000
START = 1_700_000_000
IDLE = 30
CONFIG = SourceConfig(idle_timeout_us=IDLE * S)
ONE, OTHER = Writer("one"), Writer("other")
UTAH, EVIL = Writer("sensor", "utah.edu"), Writer("p", "evil.org")


class Producers:
    """Producers of a stream, at given times: seconds from `START`, as stimes are."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.late = 0

    def post(self, writer: Writer, *times: float, at: float, **more: object) -> Posted:
        number = self.stream.sequence.get(writer, 0) + 1
        rows: list[Row] = [(int((START + time) * S), number) for time in times]
        posted = self.stream.source.post(
            PostRequest(writer, Post(number, **more), body(rows) if rows else b""), now=START + at
        )
        self.stream.sequence[writer] = number
        self.late += posted.late
        return posted

    def promise(self, writer: Writer, time: float, *, at: float) -> Posted:
        return self.post(writer, at=at, boundary=int((START + time) * S))

    def leave(self, writer: Writer, *, at: float) -> None:
        self.stream.source.post(PostRequest(writer, Post(0, done=True)), now=START + at)

    def tick(self, at: float) -> None:
        self.stream.source.tick(START + at)

    @property
    def boundary(self) -> float:
        """The boundary in seconds, rounded up to the row below which a slack of 0 lies."""
        return (self.stream.source.boundary + 1) / S - START


@pytest.fixture
def producers(tmp_path: Path) -> Iterator[Producers]:
    with opened(tmp_path, CONFIG) as stream:
        yield Producers(stream)


def test_the_boundary_is_the_least_of_the_present_producers(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    assert producers.boundary == 10
    producers.post(OTHER, 11, at=11)
    assert producers.boundary == 10
    producers.post(ONE, 20, at=20)
    assert producers.boundary == 11
    assert producers.post(OTHER, 12, 19, at=20).late == 0
    assert producers.boundary == 19
    assert producers.post(ONE, 18, at=21).late == 1, "behind what both have said"


def test_a_producer_that_is_done_holds_no_other(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    producers.post(OTHER, 30, at=30)
    producers.leave(ONE, at=31)
    assert producers.boundary == 30
    producers.leave(OTHER, at=31)
    assert producers.boundary == 30, "all that it posted counts"
    assert producers.post(ONE, 29, at=32).late == 1
    producers.leave(ONE, at=32)
    producers.leave(ONE, at=32)


def test_the_last_post_may_say_that_it_is_done(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    producers.post(OTHER, 30, at=30)
    producers.post(ONE, 12, at=31, done=True)
    assert producers.boundary == 30


def test_a_producer_that_stands_still_holds_the_others_for_a_while(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    for at in range(11, 39):
        producers.post(OTHER, at, at=at)
    assert producers.boundary == 10
    producers.tick(39)
    assert producers.boundary == 10
    assert producers.stream.source.acceptance.presence.claim("", "one") is not None
    producers.tick(41)
    assert producers.boundary == 38
    assert producers.post(ONE, 11, 39, at=42).late == 1
    assert producers.boundary == 38, "it is there again, and where the others are"


def test_a_newcomer_pulls_nothing_back(producers: Producers) -> None:
    producers.post(ONE, 100, at=100)
    assert producers.post(OTHER, 50, 60, at=100).late == 2
    producers.post(ONE, 101, at=101)
    assert producers.boundary == 101, "nobody waits for one that is behind"
    producers.post(OTHER, 50, at=129)
    producers.post(ONE, 140, at=140)
    assert producers.boundary == 140


def test_late_rows_are_no_sign_of_life(producers: Producers) -> None:
    producers.post(OTHER, 10, at=10)
    for at in range(11, 60):
        producers.post(ONE, at, at=at)
        producers.post(OTHER, 5, at=at)
    assert producers.boundary == 59


def test_the_end_is_the_owners(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    producers.post(EVIL, 10, at=10)
    for more in ({"end": True}, {"boundary": END}):
        assert producers.post(EVIL, at=11, **more).boundary < END
    assert producers.post(ONE, 12, at=12) == Posted(2, 1, 0, int((START + 12) * S) - 1)
    assert producers.post(ONE, at=13, end=True).boundary == END


def test_a_writers_promise_and_times_bind_its_own_rows(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    producers.promise(EVIL, 3_500, at=10)
    producers.post(EVIL, 3_550, at=11)
    for at in range(12, 60):
        producers.post(ONE, at - 1, at=at)
    assert producers.late == 0
    assert producers.boundary == 58
    assert producers.post(EVIL, 3_400, at=60).late == 0, "it has broken its promise to itself alone"


def test_other_participants_move_the_boundary_up_to_the_clock_only(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    producers.leave(ONE, at=10)
    producers.post(EVIL, 3_550, at=20, done=True)
    assert producers.boundary == 20
    producers.tick(25)
    assert producers.boundary == 25
    assert producers.post(ONE, 26, at=26).late == 0


@pytest.mark.parametrize("names", [1, 3, 2 * MAX_PRESENT])
def test_a_writer_that_crawls_holds_the_others_for_a_while(
    producers: Producers, names: int
) -> None:
    """The writer changes its producer name, and posts a microsecond farther each time."""
    producers.post(ONE, 0, at=0)
    step, worst = 0.25, 0.0
    for turn in range(1, 600):
        at = turn * step
        producers.post(ONE, at, at=at)
        name = Writer(f"p{turn % names}", "evil.org")
        producers.post(name, producers.boundary + 1e-6, at=at)
        worst = max(worst, at - producers.boundary)
    assert producers.late == 0
    assert IDLE / 2 < worst < IDLE + 2


def test_a_writer_that_keeps_pace_is_waited_for(producers: Producers) -> None:
    """The writer may be ever so far behind the others."""
    for at in range(200):
        if at in {0, *range(21, 200)}:
            producers.post(UTAH, max(0, at - 20), at=at)
        producers.post(ONE, at, at=at)
    assert producers.late == 0
    assert producers.boundary == 199 - 20


def test_a_flood_of_names_pushes_out_its_own(producers: Producers) -> None:
    producers.post(ONE, 10, at=10)
    producers.post(UTAH, 10, at=10)
    for number in range(MAX_PRESENT + 100):
        producers.post(Writer(f"flood {number}", "evil.org"), 10, at=10)
    presence = producers.stream.source.acceptance.presence
    assert presence.claim("", "one") is not None
    assert presence.claim("utah.edu", "sensor") is not None
    assert sum(map(len, presence.state.present.values())) == MAX_PRESENT


def test_the_clock_moves_the_boundary_while_no_producer_holds_it(tmp_path: Path) -> None:
    config = SourceConfig(idle=Idle.CLOCK, idle_timeout_us=IDLE * S, slack_us=2 * S)
    with opened(tmp_path, config) as stream:
        producers = Producers(stream)
        producers.tick(68)
        assert stream.source.boundary == BEGINNING, "somebody may be about to post"
        producers.tick(100)
        assert producers.boundary == 98
        producers.post(ONE, 99, at=100)
        for at in range(101, 125):
            producers.tick(at)
        assert producers.boundary == 98
        producers.promise(ONE, 120, at=125)
        assert producers.post(ONE, 122, at=125).late == 0
        producers.leave(ONE, at=126)
        producers.tick(126)
        assert producers.boundary == 124


def test_producers_are_there_after_a_restart(tmp_path: Path) -> None:
    """The stream waits for them anew: the leader was away, and they may return after it."""
    with opened(tmp_path, CONFIG) as stream:
        producers = Producers(stream)
        producers.post(ONE, 10, at=10)
        producers.post(OTHER, 20, at=20)
        for _ in range(2):
            stream.crash()
            assert producers.boundary == 10
        producers.post(OTHER, 500, at=600)
        assert producers.boundary == 10
        assert producers.post(ONE, 400, at=620).late == 0
        producers.post(OTHER, 600, at=640)
        assert producers.boundary == 400
        producers.tick(651)
        assert producers.boundary == 600


def test_less_slack_counts_at_once_for_each_producer(tmp_path: Path) -> None:
    with opened(tmp_path, SourceConfig(slack_us=5 * S, idle_timeout_us=IDLE * S)) as stream:
        producers = Producers(stream)
        producers.post(ONE, 10, at=10)
        producers.post(OTHER, 20, at=20)
        assert producers.boundary == 5
        stream.close()
        stream.config = CONFIG
        stream.open()
        assert producers.boundary == 10


def test_a_fast_producer_leaves_room_for_the_producer_that_it_waits_for(tmp_path: Path) -> None:
    config = SourceConfig(idle_timeout_us=IDLE * S, pending_bytes=400_000, slack_us=S)
    with opened(tmp_path, config) as stream:
        producers = Producers(stream)
        producers.post(ONE, 10, at=10)

        def fill() -> None:
            for turn in range(1000):
                producers.post(OTHER, *[100 + turn + n / 1000 for n in range(500)], at=11)

        with pytest.raises(BusyError, match="wait for other producers"):
            fill()
        for turn in range(20):
            assert producers.post(ONE, *[10 + turn + n / 1000 for n in range(500)], at=12).late == 0
            stream.move()
        producers.leave(ONE, at=12)
        assert stream.move()
        assert producers.post(OTHER, 2000, at=12).late == 0
