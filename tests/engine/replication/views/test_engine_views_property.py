"""However a stream is posted to, cut, compacted, dropped and restarted, a view shows the tuples
that plain Python picks from all posts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import trio
from engine_streams_data import SCHEMA, Row, logged, next_epoch, pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.objects.view import Last, Range, Recent, Shows, View
from medusa.engine.replication.following.follower import take
from medusa.engine.replication.views.feeding import set_up, trim
from medusa.engine.replication.views.locating import located
from medusa.engine.streams.log import epochs
from medusa.engine.streams.log import folder as compaction
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.overlay.errors import InvalidInputError, NotRetainedError

STREAM = "medusa://mit.edu/s"


def shown_of(posted: list[Row], shows: Shows, oldest: int, boundary: int) -> list[Row]:
    """Return the tuples that a view shows of a stream at that boundary, of which `oldest` is the
    oldest kept."""
    have = [row for row in posted if oldest < row[0] <= boundary]
    match shows:
        case Last(rows=rows):
            least = have[-rows][0] if len(have) >= rows else BEGINNING
            return [row for row in have if row[0] >= least]
        case Recent(span_us=span):
            present = boundary if boundary < END else (posted[-1][0] if posted else BEGINNING)
            return [row for row in have if row[0] > present - span]
        case Range(after=after, until=until):
            return [row for row in posted if max(after, oldest) < row[0] <= until]


@dataclass
class Made:
    """A view, its log, and the state of the stream when the view was made."""

    state: StreamState
    oldest: int
    boundary: int

    def expected(self, posted: list[Row], boundary: int) -> list[Row]:
        view = self.state.entry.stream.view
        assert view is not None
        if isinstance(view.shows, Range):
            return shown_of(posted, view.shows, self.oldest, boundary)
        if view.frozen:
            return shown_of(posted, view.shows, self.oldest, self.boundary)
        return shown_of(posted, view.shows, view.after, boundary)


class History:
    """A stream and views of it in one folder, changed by a drawn sequence of steps."""

    def __init__(self, folder: Path, rng: random.Random, history_us: int) -> None:
        self._folder = folder
        self._rng = rng
        self._history_us = history_us
        self.posted: list[Row] = []
        self.source = self._log("source", history_us)
        self.made: list[Made] = []

    def _log(self, name: str, history_us: int) -> StreamLog:
        recent_bytes = self._rng.choice([0, 200, 10_000])
        folder = self._folder / name / "log"
        return StreamLog.open(
            folder, SCHEMA.source, history_us=history_us, recent_bytes=recent_bytes
        )

    async def post(self) -> None:
        boundary = max(self.source.boundary, 0)
        upto = boundary + self._rng.randint(1, 12)
        stimes = sorted(
            self._rng.randint(boundary + 1, upto) for _ in range(self._rng.choice([0, 1, 3, 9]))
        )
        first = len(self.posted)
        found = [(stime, first + n) for n, stime in enumerate(stimes)]
        await self.source.commit(upto, logged(found, first) if found else None)
        self.posted += found

    async def tidy(self) -> None:
        logs = [self.source, *(made.state.log for made in self.made)]
        for log in logs:
            log.upkeep.retain(0.0)
            await log.upkeep.compact()

    async def restart(self) -> None:
        self.source.close()
        self.source = self._log("source", self._history_us)
        for made in self.made:
            made.state.log.close()
            made.state = self._state(made.state.entry)
            set_up(made.state)
            self._hold(made)

    def _state(self, entry: StreamEntry) -> StreamState:
        log = self._log(entry.stream.name.rsplit("/", 1)[1], entry.stream.history_us)
        return StreamState(entry, Role.VIEW, log)

    def _hold(self, made: Made) -> None:
        """Take the holds as a peer does, before it drops anything after a restart."""
        view, log = made.state.entry.stream.view, made.state.log
        assert view is not None
        self.source.retention.hold(Hold("task", view.name), max(log.boundary, view.after))

    async def make(self) -> None:
        rng = self._rng
        end = max(self.source.boundary, 0)
        kinds: list[Shows] = [
            Last(rng.choice([1, 2, 5, 30])),
            Recent(rng.choice([1, 10, 60])),
            Range(
                rng.choice([BEGINNING, rng.randint(0, end)]), end + rng.randint(1 - end // 2, 30)
            ),
        ]
        shows = rng.choice(kinds)
        fixed = isinstance(shows, Range) or rng.random() < 0.5
        oldest, boundary = self.source.oldest, self.source.boundary
        try:
            found = located(STREAM, self.source, shows, fixed=fixed)
        except InvalidInputError:
            assert fixed
            assert boundary == BEGINNING
            return
        except NotRetainedError:
            assert fixed
            assert oldest > BEGINNING
            return
        name = f"medusa://mit.edu/v{len(self.made)}"
        view = View(name, STREAM, shows, fixed, after=found.after, until=found.until)
        entry = StreamEntry(StreamDefinition(name, SCHEMA.name, history_us=0, view=view), SCHEMA)
        made = Made(self._state(entry), oldest, boundary)
        self._hold(made)
        set_up(made.state)
        self.made.append(made)

    async def feed(self) -> None:
        """Feed one epoch to each view, as a peer does."""
        for made in self.made:
            view, log = made.state.entry.stream.view, made.state.log
            assert view is not None
            if log.boundary < min(self.source.boundary, END):
                after = self.source.oldest if log.boundary == BEGINNING else log.boundary
                epoch = await self.source.reader.next(after)
                await take(log, epoch, view.until)
                trim(made.state)
                self.source.retention.hold(Hold("task", view.name), log.boundary)

    async def check(self) -> None:
        while any(
            made.state.log.boundary < min(self.source.boundary, END)
            and self.source.boundary > BEGINNING
            for made in self.made
        ):
            await self.feed()
        for made in self.made:
            log = made.state.log
            found = read(log, self._rng.choice([1, 4, 1000]))
            assert found == made.expected(self.posted, self.source.boundary), made.state.entry


def read(log: StreamLog, limit: int) -> list[Row]:
    """Read as a subscriber from the beginning does."""
    found: list[Row] = []
    after = log.oldest
    while (epoch := next_epoch(log, after, limit)) is not None:
        after, table = epoch
        found += pairs(table)
    return found


STEPS = ("post", "post", "post", "tidy", "restart", "make", "feed", "check")


@settings(max_examples=150)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(STEPS), min_size=5, max_size=60),
    st.sampled_from([0, 15, 10_000]),
    st.booleans(),
)
def test_a_view_shows_what_python_picks(
    seed: int, steps: list[str], history_us: int, ends: bool
) -> None:
    async def run(folder: Path) -> None:
        history = History(folder, random.Random(seed), history_us)
        for step in steps:
            await getattr(history, step)()
        if ends:
            await history.source.commit(END, None)
        await history.check()
        await history.tidy()
        await history.restart()
        await history.check()

    run_before, groups_before = compaction.RUN, epochs._GROUP_ROWS
    compaction.RUN, epochs._GROUP_ROWS = 3, 4  # type: ignore[misc]
    try:
        with TemporaryDirectory() as folder:
            trio.run(run, Path(folder))
    finally:
        compaction.RUN, epochs._GROUP_ROWS = run_before, groups_before  # type: ignore[misc]


def test_the_tail_of_a_log_is_found_in_any_file(tmp_path: Path) -> None:
    log = StreamLog.open(tmp_path, SCHEMA.source, recent_bytes=0)
    assert log.reader.tail(1) == BEGINNING
    stimes = [1, 1, 2, 5, 5, 5, 7, 12, 12, 20]
    log.append(7, logged([(s, n) for n, s in enumerate(stimes[:7])]))
    log.append(15, logged([(s, n) for n, s in enumerate(stimes[7:9])]))
    log.append(30, logged([(20, 0)]))
    log.append(40, None)
    for rows in range(1, 11):
        boundary = log.reader.tail(rows)
        assert boundary == stimes[-rows] - 1
        assert log.reader.count(boundary, END) >= rows
    assert log.reader.tail(11) == log.reader.tail(10**9) == BEGINNING
    assert [log.reader.tail(rows, whole_files=True) for rows in (1, 2, 3, 4, 10, 11)] == [
        15,
        7,
        7,
        BEGINNING,
        BEGINNING,
        BEGINNING,
    ]
    empty = pa.table({name: [] for name in SCHEMA.source.names}, schema=SCHEMA.source)
    log.append(50, empty)
    assert log.reader.tail(1) == 19
