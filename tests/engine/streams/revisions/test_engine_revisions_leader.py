"""Revisions at a stream's leader: the tuples that they find, their order, and the state after a
crash."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from field_texts import fields_of

from medusa.engine.objects.schema import (
    BEGINNING,
    END,
    REVISED_STIME,
    REVISION_KIND,
    Field,
    FieldType,
    Schema,
)
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.revisions.columns import request_schema
from medusa.engine.streams.revisions.resolving import MOST_OF_A_KEY, REVISIONS_AT_ONCE
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.leader import Leader, open_leader
from medusa.engine.streams.source.post_request import PostRequest
from medusa.overlay.errors import DecodeError, InvalidInputError

FIELDS = fields_of("t long, k string(4), part int?, v int")
P = Writer("p")
SECONDS = {FieldType.SINGLE, FieldType.DOUBLE}
TIMES = {FieldType.LONG, FieldType.TIMESTAMP} | SECONDS
"""Types that a time field may have."""
SCHEMA = Schema("medusa://mit.edu/keyed", FIELDS, time="t", key=("k", "part"))
Row = tuple[int, str, int | None, int]


def home_in(
    folder: Path, schema: Schema = SCHEMA, slack_us: int = 0
) -> AbstractAsyncContextManager[Leader]:
    config = SourceConfig(slack_us=slack_us)
    return open_leader(folder, "s", schema, config, history_us=1000, now=0.0)


class Poster:
    def __init__(self, leader: Leader, schema: Schema = SCHEMA) -> None:
        self._home = leader
        self._schema = schema
        self.sequence = 0

    async def post(self, *rows: Row, boundary: int | None = None, end: bool = False) -> Posted:
        self.sequence += 1
        names = self._schema.payload.names
        table = pa.Table.from_pylist(
            [dict(zip(names, row, strict=True)) for row in rows], schema=self._schema.payload
        )
        body = encode(table) if rows else b""
        return await self._home.post(
            PostRequest(P, Post(self.sequence, boundary=boundary, end=end), body), now=1.0
        )

    async def revise(self, *rows: tuple[Any, ...], again: bool = False) -> Posted:
        """Return revisions: rows of kind, t, k, part, v."""
        self.sequence += not again
        shape = request_schema(self._schema).payload
        table = pa.Table.from_pylist(
            [dict(zip(shape.names, row, strict=True)) for row in rows], schema=shape
        )
        return await self._home.revise(
            PostRequest(P, Post(self.sequence, revisions=True), encode(table)),
            history_us=1000,
            now=1.0,
        )


def gone(k: str, part: int | None) -> tuple[Any, ...]:
    return ("DELETION", None, k, part, None)


def replaced(t: int, k: str, part: int | None, v: int) -> tuple[Any, ...]:
    return ("REPLACEMENT", t, k, part, v)


def logged(log: StreamLog | None) -> list[tuple[Any, ...]]:
    assert log is not None
    found: list[tuple[Any, ...]] = []
    after = log.start
    while (epoch := log.reader.read(after)) is not None:
        names = ("stime", REVISION_KIND, REVISED_STIME, "v")
        columns = (epoch.table.column(name).to_pylist() for name in names)
        found += zip(*columns, strict=True)
        after = epoch.upto
    return found


async def test_a_revision_finds_the_newest_remaining_tuple_of_its_key(tmp_path: Path) -> None:
    async with home_in(tmp_path) as leader:
        poster = Poster(leader)
        await poster.post((10, "a", 1, 1), (20, "a", 1, 2), (20, "a", 2, 3), (30, "a", None, 4))
        for _ in range(2):  # whether the tuples wait in memory or are in the log
            await poster.post(boundary=40)
            await leader.advance(1.0)
        posted = await poster.revise(
            gone("a", 1), gone("a", 1), gone("a", 1), gone("a", None), gone("b", 1)
        )
        assert (posted.rows, posted.missed) == (2, (2, 3, 4))  # a null key matches no other key
        again = await poster.revise(gone("a", 1), again=True)
        assert (again.duplicate, again.missed) == (True, (2, 3, 4))
        moved = await poster.revise(replaced(25, "a", 2, 5))
        assert moved.missed == ()
        assert (await poster.revise(gone("a", 2))).missed == ()
        await poster.post(end=True)
        await leader.advance(1.0)
        assert logged(leader.logs.revisions) == [
            (41, "DELETION", 20, 2),
            (41, "DELETION", 10, 1),
            (41, "DELETION", 20, 3),
            (41, "INSERTION", 25, 5),
            (41, "DELETION", 25, 5),
        ]


@pytest.mark.parametrize("retained", [False, True])
async def test_tuples_behind_the_history_do_not_count(tmp_path: Path, *, retained: bool) -> None:
    """If the leader still found such a tuple, its replacement would move a deleted row behind the
    history."""
    async with home_in(tmp_path) as leader:
        poster = Poster(leader)
        await poster.post((10, "a", 1, 1), boundary=20)
        await leader.advance(1.0)
        await poster.post((500, "c", 1, 1), boundary=900)
        await leader.advance(1.0)
        await poster.post((2000, "b", 1, 2), boundary=1990)
        await leader.advance(1.0)
        if retained:
            assert leader.logs.stream.upkeep.retain(0.0) == 1
        posted = await poster.revise(replaced(3100, "a", 1, 3), gone("b", 1))
        assert posted.missed == (0,)


async def test_where_stime_is_the_time_of_arrival(tmp_path: Path) -> None:
    schema = Schema("medusa://mit.edu/arriving", FIELDS, key=("k",))
    async with home_in(tmp_path, schema) as leader:
        poster = Poster(leader, schema)
        await poster.post((0, "a", 1, 1))
        await poster.revise(replaced(0, "a", 1, 2))
        await poster.revise(gone("a", 1))
        await leader.advance(1.0)
        at = leader.boundary
        assert leader.logs.stream.boundary == at
        assert logged(leader.logs.revisions) == [
            (at - 1, "DELETION", at - 2, 1),
            (at - 1, "INSERTION", at - 2, 2),
            (at, "DELETION", at - 2, 2),
        ]


async def test_a_crash_at_any_moment(tmp_path: Path) -> None:
    async with home_in(tmp_path) as leader:
        poster = Poster(leader)
        await poster.post((10, "a", 1, 1), (20, "b", 1, 2), boundary=30)
        await poster.revise(gone("a", 1), gone("x", 1))
    for step in range(3):
        async with home_in(tmp_path) as leader:
            again = await poster.revise(gone("a", 1), again=True)
            assert (again.duplicate, again.missed) == (True, (1,))
            if step == 1:
                poster._home = leader
            if step == 2:
                await leader.advance(1.0)
    async with home_in(tmp_path) as leader:
        poster._home = leader
        assert (await poster.revise(gone("a", 1), replaced(20, "b", 1, 7))).missed == (0,)
        await poster.post(end=True)
        await leader.advance(1.0)
        assert logged(leader.logs.revisions) == [
            (31, "DELETION", 10, 1),
            (31, "DELETION", 20, 2),
            (31, "INSERTION", 20, 7),
        ]


async def test_the_stream_is_never_ahead_of_its_revisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with home_in(tmp_path) as leader:
        poster = Poster(leader)
        await poster.post((10, "a", 1, 1), boundary=20)
        assert leader.logs.revisions is not None
        commit = leader.logs.revisions.commit

        async def commit_and_be_overtaken(upto: int, table: pa.Table) -> float:
            await poster.revise(gone("a", 1))
            await poster.post(boundary=50)
            return await commit(upto, table)

        with monkeypatch.context() as patch:
            patch.setattr(leader.logs.revisions, "commit", commit_and_be_overtaken)
            await leader.advance(1.0)
        assert leader.logs.stream.boundary == leader.logs.revisions.boundary == 20
        await leader.advance(1.0)
        assert leader.logs.stream.boundary == leader.logs.revisions.boundary == 50


async def test_invalid_input_is_refused(tmp_path: Path) -> None:
    async with home_in(tmp_path) as leader:
        poster = Poster(leader)
        await poster.post((10, "a", 1, 1))

        async def refused(error: type[Exception], match: str, *rows: tuple[Any, ...]) -> None:
            with pytest.raises(error, match=match):
                await poster.revise(*rows)
            poster.sequence -= 1

        wrong = InvalidInputError
        await refused(wrong, "'INSERTION' is neither", ("INSERTION", 1, "a", 1, 1))
        await refused(wrong, "field v is null in row 1", ("REPLACEMENT", 1, "a", 1, None))
        await refused(wrong, "takes 5 bytes", replaced(1, "aaaaa", 1, 1))
        await refused(wrong, "is no time", replaced(2**62 + 1, "a", 1, 1))
        await refused(wrong, "at most 4096", *[gone("a", 1)] * (REVISIONS_AT_ONCE + 1))
        await refused(wrong, "of one key", *[gone("a", 1)] * (MOST_OF_A_KEY + 1))
        with pytest.raises(DecodeError):
            await leader.revise(
                PostRequest(P, Post(2, revisions=True), b"no arrow"), history_us=1000, now=1.0
            )
        assert (
            await leader.revise(
                PostRequest(P, Post(2, boundary=99, revisions=True)), history_us=1000, now=1.0
            )
        ).rows == 0
        assert leader.boundary == 99
        await leader.post(PostRequest(P, Post(3, end=True)), now=1.0)
        with pytest.raises(InvalidInputError, match="has ended"):
            await leader.revise(PostRequest(P, Post(4, revisions=True)), history_us=1000, now=1.0)
        await leader.advance(1.0)
        assert leader.logs.stream.boundary == END
    plain = Schema("medusa://mit.edu/plain", FIELDS, time="t")
    async with home_in(tmp_path / "plain", plain) as leader:
        with pytest.raises(InvalidInputError, match="takes no revisions"):
            await leader.revise(PostRequest(P, Post(1, revisions=True)), history_us=1000, now=1.0)
        assert leader.logs.revisions is None
        assert leader.logs.stream.boundary == BEGINNING
        assert not (tmp_path / "plain" / "revisions").exists()


@pytest.mark.parametrize("time", [t for t in FieldType if t in TIMES])
@pytest.mark.parametrize("key", [("k",), ("t", "k")], ids=["key", "key with time"])
async def test_deletions_alone_whatever_the_time_is(
    tmp_path: Path, time: FieldType, key: tuple[str, ...]
) -> None:
    """A post without replacements contains no time to check."""
    schema = Schema("medusa://mit.edu/keyed", (Field("t", time), *FIELDS[1:]), time="t", key=key)
    times: list[Any] = [1 / 4096, 2 / 4096, 3 / 4096] if time in SECONDS else [244, 488, 732]
    async with home_in(tmp_path, schema) as leader:
        poster = Poster(leader, schema)
        await poster.post(*((at, name, 1, 0) for at, name in zip(times, "abc", strict=True)))
        # one tuple waits, one is in the log
        for at, name, upto in zip(times, "ab", (800, 900), strict=False):
            posted = await poster.revise(("DELETION", at, name, 1, None))
            assert (posted.rows, posted.missed) == (1, ())
            await poster.post(boundary=upto)
            await leader.advance(1.0)
        assert [row[2] for row in logged(leader.logs.revisions)] == [244, 488]


@pytest.mark.parametrize(
    ("time", "bad"), [(FieldType.DOUBLE, float("nan")), (FieldType.LONG, 2**63 - 1)]
)
async def test_a_time_that_is_none_is_named_by_its_row_in_the_post(
    tmp_path: Path, time: FieldType, bad: float
) -> None:
    schema = Schema("medusa://mit.edu/keyed", (Field("t", time), *FIELDS[1:]), time="t", key=("k",))
    async with home_in(tmp_path, schema) as leader:
        poster = Poster(leader, schema)
        with pytest.raises(InvalidInputError, match=r"row 3, field .* is no time"):
            await poster.revise(gone("a", 1), replaced(1, "b", 1, 2), replaced(bad, "c", 1, 3))
