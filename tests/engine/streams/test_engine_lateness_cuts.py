"""Whether a tuple is late does not depend on how the tuples were put into posts."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import trio
from engine_streams_data import NOW, SCHEMA, P, all_rows, body
from hypothesis import example, given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, REVISED_SEQ, REVISED_STIME, STIME
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source.leader import Leader, open_leader
from medusa.engine.streams.source.post_request import PostRequest

TIMES = st.lists(st.integers(0, 40), max_size=25)
CUTS = st.sets(st.integers(1, 24))
"""Numbers of the tuples with which a post begins."""


@dataclass
class Expected:
    """The expected fate of each tuple, according to docs/reference/streams.md."""

    slack: int
    lateness: int
    boundary: int = BEGINNING
    in_order: list[tuple[int, int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    inserted: list[tuple[int, int, int]] = field(default_factory=list)

    def take(self, number: int, time: int) -> None:
        if time > self.boundary:
            self.in_order.append((time, number))
        elif time > self.boundary - self.lateness:
            self.inserted.append((self.boundary + 1, time, number))
        else:
            self.late.append(number)
        self.boundary = max(self.boundary, time - self.slack - 1)


@dataclass
class Found:
    """The fate of each tuple at a leader."""

    in_order: list[tuple[int, int]]
    late: list[int]
    inserted: list[tuple[int, int, int]]
    boundary: int


def revisions(log: StreamLog | None) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    after = BEGINNING if log is None else log.start
    while log is not None and (part := log.reader.read(after)) is not None:
        columns = (part.table.column(name) for name in (STIME, REVISED_STIME, REVISED_SEQ))
        found += zip(*(column.to_pylist() for column in columns), strict=True)
        after = log.boundary if part.upto is None else part.upto
    return found


async def posted(
    folder: Path, config: SourceConfig, times: list[int], cuts: set[int], crashes: set[int]
) -> Found:
    """Post the tuples in these pieces, to a leader that is closed and opened again at these
    places."""
    starts = sorted({0, *(cut for cut in cuts if cut < len(times))})
    pieces = list(zip(starts, [*starts[1:], len(times)], strict=True))
    number = 0
    while True:
        async with open_leader(folder, "s", SCHEMA, config, history_us=10**9, now=NOW) as leader:
            while number < len(pieces):
                first, end = pieces[number]
                number += 1
                rows = [(times[row], row) for row in range(first, end)]
                await leader.post(PostRequest(P, Post(number), body(rows)), now=NOW)
                if first in crashes:
                    break
            else:
                return await _at_the_end(leader, number + 1)
            if number % 2:
                await leader.advance(NOW)


async def _at_the_end(leader: Leader, number: int) -> Found:
    boundary = leader.boundary
    await leader.post(PostRequest(P, Post(number, boundary=1000)), now=NOW)
    await leader.advance(NOW)
    return Found(
        all_rows(leader.logs.stream),
        [value for _, value in all_rows(leader.logs.late)],
        revisions(leader.logs.revisions),
        boundary,
    )


@given(TIMES, st.sampled_from((0, 1, 5, 30)), st.sampled_from((0, 0, 3, 20)), CUTS, CUTS)
@example([10, 5], 0, 0, set(), set())
@example([10, 5], 0, 0, {1}, set())
def test_any_cut_into_posts_gives_the_same(
    times: list[int], slack: int, lateness: int, cuts: set[int], crashes: set[int]
) -> None:
    """Each tuple is in time, late or inserted, also when the journal is read again."""
    expected = Expected(slack, lateness)
    for number, time in enumerate(times):
        expected.take(number, time)
    config = SourceConfig(slack_us=slack, lateness_us=lateness)
    folder = Path(tempfile.mkdtemp())
    try:
        found = trio.run(posted, folder, config, times, cuts, crashes)
    finally:
        shutil.rmtree(folder)
    assert found.in_order == sorted(expected.in_order)
    assert found.late == expected.late
    assert found.inserted == expected.inserted
    assert found.boundary == expected.boundary
