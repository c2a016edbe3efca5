from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S
from engine_streams_data import SCHEMA, Row, logged, messages_of, pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.log import parts
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import MAX_BATCH_BYTES, Tuples
from medusa.engine.streams.reading import assembling
from medusa.engine.streams.reading.assembling import COLUMN_BYTES, Assembler
from medusa.engine.streams.reading.feed import Cursor, Feed
from medusa.overlay.errors import BrokenError, DecodeError, NotRetainedError
from medusa.overlay.rpc import EndOfCall

LOG = SCHEMA.source
Message = tuple[Tuples, memoryview]


async def collect(log: StreamLog, after: int) -> list[Message]:
    return [message async for message in messages_of(Cursor(log, after))]


def assembled(messages: list[Message], after: int = BEGINNING) -> list[Row]:
    assembler = Assembler(LOG, after)
    rows: list[Row] = []
    for message, body in messages:
        if (epoch := assembler.add(message, body)) is not None:
            rows += pairs(epoch.table)
    return rows


@asynccontextmanager
async def subscribed(log: StreamLog) -> AsyncIterator[list[Message]]:
    """Give the rows that a subscriber received from the beginning to the end, which comes within
    the block."""
    got: list[Message] = []

    async def subscribe() -> None:
        got.extend([message async for message in messages_of(Cursor(log, BEGINNING))])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(subscribe)
        await wait_all_tasks_blocked()
        yield got


async def test_a_subscriber_gets_everything_and_then_the_end(tmp_path: Path) -> None:
    log = StreamLog.open(tmp_path, LOG)
    async with subscribed(log) as got:
        await log.commit(10, logged([(1, 1), (2, 2)]))
        await wait_all_tasks_blocked()
        await log.commit(20, None)
        await wait_all_tasks_blocked()
        await log.commit(30, logged([(25, 3)]))
        await wait_all_tasks_blocked()
        await log.commit(END, None)
    assert [m.upto for m, _ in got] == [10, 20, 30, END]
    assert got[1] == (Tuples(10, 20, 0), memoryview(b""))
    assert assembled(got) == [(1, 1), (2, 2), (25, 3)]


async def test_subscribers_share_one_encoding(tmp_path: Path) -> None:
    log = StreamLog.open(tmp_path, LOG)
    await log.commit(END, logged([(1, 1)]))
    first, second = await collect(log, BEGINNING), await collect(log, BEGINNING)
    assert first[0][1].obj is second[0][1].obj
    assert assembled(first) == assembled(second) == [(1, 1)]


async def test_a_large_epoch_comes_in_parts_with_boundaries_of_their_own(tmp_path: Path) -> None:
    log = StreamLog.open(tmp_path, LOG)
    table = logged([(n // 3, n) for n in range(700_000)])
    await log.commit(END, table)
    messages = await collect(log, BEGINNING)
    assert len(messages) > 2
    assert all(m.upto is not None and len(body) <= MAX_BATCH_BYTES for m, body in messages)
    assert [m.after for m, _ in messages[1:]] == [m.upto for m, _ in messages[:-1]]
    assembler = Assembler(LOG, BEGINNING)
    epochs = [epoch for m, body in messages if (epoch := assembler.add(m, body)) is not None]
    assert pa.concat_tables([epoch.table for epoch in epochs]).equals(table)


async def test_tuples_of_one_stime_come_in_parts_of_one_epoch(tmp_path: Path) -> None:
    for recent_bytes in (0, 2**30):
        log = StreamLog.open(tmp_path, LOG, recent_bytes=recent_bytes)
        table = logged([(7, n) for n in range(300_000)])
        if log.boundary == BEGINNING:
            await log.commit(10, table)
        parts = []
        async with aclosing(messages_of(Cursor(log, BEGINNING))) as feed:
            async for message, body in feed:
                parts.append((message, body))
                if message.upto is not None:
                    break
        assert len(parts) > 2
        assembler = Assembler(LOG, BEGINNING)
        epochs = [epoch for part in parts if (epoch := assembler.add(*part)) is not None]
        assert len(epochs) == 1
        assert epochs[0].table.equals(table)
        assert assembler.held == 0


async def test_a_reader_of_dropped_tuples_is_refused(tmp_path: Path) -> None:
    log = StreamLog.open(tmp_path, LOG, history_us=0)
    for n in range(1, 5):
        log.append(n * 10, logged([(n * 10, n)]))
    log.upkeep.retain(0.0)
    with pytest.raises(NotRetainedError, match="from boundary 30 on"):
        await collect(log, 20)


async def test_the_beginning_of_an_empty_log_is_where_it_begins(tmp_path: Path) -> None:
    log = StreamLog.open(tmp_path, LOG)
    async with subscribed(log) as got:
        log.begin(348)
        await wait_all_tasks_blocked()
        await log.commit(400, logged([(350, 1)]))
        await log.commit(END, None)
    assert got[0][0].after == 348
    assert assembled(got) == [(350, 1)]


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 50)), max_size=6),
    st.integers(0, 12),
)
def test_cut_and_repeated_feeds_give_every_row_once(
    tmp_path_factory: pytest.TempPathFactory,
    epochs: list[list[int]],
    breaks: list[tuple[int, int]],
    behind: int,
) -> None:
    """Connections break after any part; the next sender cuts epochs elsewhere, or repeats some."""
    folder = tmp_path_factory.mktemp("log")
    log = StreamLog.open(folder, LOG)
    rows: list[Row] = []
    log.append(0, None)
    for n, stimes in enumerate(epochs):
        new = [(n * 5 + 1 + stime, len(rows) + i) for i, stime in enumerate(sorted(stimes))]
        log.append(n * 5 + 5, logged(new) if new else None)
        rows += new
    log.append(END, None)

    async def run() -> list[Row]:
        got: list[Row] = []
        assembler = Assembler(LOG, BEGINNING)
        for count, limit in [*breaks, (10**6, 7)]:
            assembler.reconnected()
            after = assembler.boundary - behind if assembler.boundary > 0 else BEGINNING
            if after >= END - behind:
                break
            patch.setattr(parts, "PART_ROWS", limit)
            for message, body in (await collect(log, after))[:count]:
                epoch = assembler.add(message, body)
                if epoch is not None:
                    assert epoch.upto == assembler.boundary
                    got += pairs(epoch.table)
        return got

    with pytest.MonkeyPatch.context() as patch:
        assert trio.run(run) == rows


def part(rows: list[Row], after: int, upto: int | None, count: int | None = None) -> Message:
    body = encode(logged(rows)) if rows else memoryview(b"")
    return Tuples(after, upto, len(rows) if count is None else count), body


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([part([(5, 1)], 10, 20)], "outside of their epoch"),
        ([part([(25, 1)], 10, 20)], "outside of their epoch"),
        ([part([(15, 1)], 10, None), part([(14, 1)], 10, 20)], "outside of their epoch"),
        ([part([(15, 1), (14, 1)], 10, 20)], "not ordered"),
        ([part([(15, 1)], 10, 20, 2)], "a part of 1 rows that says 2"),
        ([part([], 10, 20, -1)], "a part of 0 rows that says -1"),
        ([part([], 10, None)], "not the last"),
        ([part([], 11, 20)], "an epoch from 11, but 10 was reached"),
        ([part([], 10, 10)], "an epoch from 10 up to 10"),
        ([part([], 10, 2**70)], "an epoch from 10 up to"),
        ([part([(15, 1)], 10, None), part([(16, 1)], 9, 20)], "before that from 10 ended"),
        ([(Tuples(10, 20, 1), memoryview(b"garbage"))], "not an Arrow IPC stream"),
    ],
)
def test_a_message_that_no_sender_sends_is_a_decode_error(
    parts: list[Message], message: str
) -> None:
    assembler = Assembler(LOG, 10)
    for good in parts[:-1]:
        assert assembler.add(*good) is None
    with pytest.raises(DecodeError, match=message):
        assembler.add(*parts[-1])
    assert assembler.boundary == 10


def test_repeated_and_overlapping_epochs_give_only_what_is_new() -> None:
    assembler = Assembler(LOG, 10)
    assert assembler.add(*part([(15, 1)], 10, 20)) is not None
    assert assembler.add(*part([(5, 0)], 0, 10)) is None
    assert assembler.add(*part([(15, 1)], 10, 20)) is None
    assert assembler.boundary == 20
    epoch = assembler.add(*part([(18, 2), (20, 3), (21, 4), (30, 5)], 15, 30))
    assert epoch is not None
    assert (epoch.after, epoch.upto, pairs(epoch.table)) == (20, 30, [(21, 4), (30, 5)])


def test_an_endless_epoch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling, "MAX_EPOCH_BYTES", 50_000)
    assembler = Assembler(LOG, 10)
    with pytest.raises(DecodeError, match="an epoch of more than 50000 bytes"):
        assembler.add(*part([(15, 1)] * 5000, 10, None))


def test_parts_count_for_more_than_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one row each take more memory than their rows."""
    monkeypatch.setattr(assembling, "MAX_EPOCH_BYTES", 2**20)
    message, body = part([(15, 1)], 10, None)
    most = 2**20 // (len(body) + COLUMN_BYTES * len(LOG))
    assembler = Assembler(LOG, 10)
    for _ in range(most):
        assert assembler.add(message, body) is None
    with pytest.raises(DecodeError, match="an epoch of more than"):
        assembler.add(message, body)


@settings(max_examples=150)
@given(
    st.integers(-(2**63), 2**63),
    st.none() | st.integers(-(2**63), 2**63),
    st.integers(),
    st.binary(max_size=50),
)
def test_random_messages_are_a_decode_error_or_move_on(
    after: int, upto: int | None, rows: int, body: bytes
) -> None:
    assembler = Assembler(LOG, 0)
    try:
        epoch = assembler.add(Tuples(after, upto, rows), body)
    except DecodeError:
        return
    assert epoch is None or (body == b"" and epoch.upto == upto)


class Reader:
    """The other end of a feed's call; it acknowledges when the test says so."""

    def __init__(self) -> None:
        self.got: list[Tuples] = []
        self.say, self._said = trio.open_memory_channel[int](100)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send(self, message: Any, _body: Any = b"") -> None:
        self.got.append(message)
        await trio.lowlevel.checkpoint()

    async def receive(self, kind: Any) -> Any:
        try:
            return kind(await self._said.receive()), b""
        except trio.EndOfChannel:
            raise EndOfCall from None


async def ended(log: StreamLog) -> None:
    await log.commit(10, logged([(1, 1)]))
    await log.commit(20, logged([(11, 2)]))
    await log.commit(END, None)


async def test_a_feed_stays_open_until_the_end_of_the_stream_is_acknowledged(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    log, reader, heard, over = StreamLog.open(tmp_path, LOG), Reader(), [], trio.Event()
    await ended(log)

    async def serve() -> None:
        await Feed(Cursor(log, BEGINNING), acknowledged=heard.append).serve(reader)
        over.set()

    nursery.start_soon(serve)
    await wait_all_tasks_blocked()
    assert reader.got[-1].upto == END
    await reader.say.send(10)
    await wait_all_tasks_blocked()
    assert not over.is_set()
    await reader.say.send(END)
    with trio.fail_after(DEADLINE_S):
        await over.wait()
    assert heard == [10, END]


async def test_a_feed_up_to_a_boundary_asks_for_no_acknowledgement(tmp_path: Path) -> None:
    log, reader = StreamLog.open(tmp_path, LOG), Reader()
    await log.commit(10, logged([(1, 1)]))
    with trio.fail_after(DEADLINE_S):
        await Feed(Cursor(log, BEGINNING), 10).serve(reader)
    assert reader.got[-1].upto == 10


async def test_a_feed_ends_when_its_reader_leaves_or_must_leave(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    log, reader = StreamLog.open(tmp_path, LOG), Reader()
    reader.say.close()
    with trio.fail_after(DEADLINE_S):
        await Feed(Cursor(log, BEGINNING)).serve(reader)

    async def must_leave() -> None:
        raise BrokenError("it moved away")

    with pytest.raises(BrokenError):
        await Feed(Cursor(log, BEGINNING)).serve(Reader(), must_leave)


async def test_a_gate_holds_the_boundary_back_and_not_the_rows_before_it(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    log, reader, gate = StreamLog.open(tmp_path, LOG), Reader(), trio.Event()
    await log.commit(10, logged([(1, 1)]))

    async def released(after: int, upto: int) -> None:
        if upto > 10:
            await gate.wait()

    nursery.start_soon(Feed(Cursor(log, BEGINNING), released=released).serve, reader)
    await wait_all_tasks_blocked()
    await log.commit(20, logged([(11, 2)]))
    await log.commit(END, None)
    await wait_all_tasks_blocked()
    assert [message.upto for message in reader.got] == [10]
    gate.set()
    await wait_all_tasks_blocked()
    assert reader.got[-1].upto == END
    await reader.say.send(END)


@pytest.mark.parametrize("kept", ["one epoch", "several epochs", "files alone"])
async def test_a_part_is_encoded_once_for_all_readers_at_its_boundary(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = StreamLog.open(tmp_path, LOG)
    for upto in range(10, 20 if kept == "one epoch" else 40, 10):
        log.append(upto, logged([(upto - 1, upto)]))
    if kept == "files alone":
        log = StreamLog.open(tmp_path, LOG)
    encoded: list[pa.Table] = []

    def counted(table: pa.Table) -> memoryview:
        encoded.append(table)
        return encode(table)

    monkeypatch.setattr(parts, "encode", counted)
    bodies: list[memoryview] = []
    for _ in range(5):
        found = await Cursor(log, log.start).read()
        assert found is not None
        bodies.append(found[1].body())
    assert len(encoded) == 1
    assert all(body is bodies[0] for body in bodies)


async def test_a_reader_of_a_reopened_stream_gets_no_end_that_others_were_given(
    tmp_path: Path,
) -> None:
    log = StreamLog.open(tmp_path, LOG)
    for upto in (10, 20, END):
        log.append(upto, logged([(upto - 1, 1)]) if upto < END else None)
    assert (await log.reader.part(log.start)).upto == END
    log.reopen(20)
    part = await log.reader.part(log.start)
    assert (part.upto, part.rows) == (20, 2)
