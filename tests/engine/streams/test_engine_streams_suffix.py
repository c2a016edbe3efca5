"""The tentative suffix of a stream, and how readers receive it."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pyarrow.parquet as pq
import trio
from engine_streams_data import SCHEMA, Row, logged, messages_of, pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.schema import BEGINNING, END, STIME
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.log.suffix import State, Suffix
from medusa.engine.streams.reading.assembling import Incoming
from medusa.engine.streams.reading.feed import BothCursor
from medusa.engine.streams.store.stream_state import Role, StreamState


def opened(folder: Path, limit_bytes: int = 2**20) -> tuple[StreamLog, Suffix]:
    log = StreamLog.open(folder / "log", SCHEMA.source)
    return log, Suffix(log, limit_bytes)


async def test_the_suffix_exists_while_it_reaches_further_than_the_log(tmp_path: Path) -> None:
    log, suffix = opened(tmp_path)
    await log.commit(10, logged([(5, 1)]))
    assert (suffix.boundary, suffix.visible, suffix.state) == (BEGINNING, 10, State.STABLE)
    await suffix.add(10, 20, logged([(15, 2)]), failing=True)
    assert (suffix.boundary, suffix.visible, suffix.state) == (20, 20, State.UP_FAILURE)
    epoch = await suffix.part(10, 0)
    assert epoch is not None
    assert (epoch.after, epoch.upto, pairs(epoch.table)) == (10, 20, [(15, 2)])
    await log.commit(15, logged([(12, 3)]))
    assert suffix.state is State.STABILIZATION
    await log.commit(25, None)
    assert (suffix.boundary, suffix.visible, suffix.state) == (BEGINNING, 25, State.STABLE)
    assert await suffix.part(15, 0) is None
    suffix.tidy()
    assert not list((tmp_path / "log.tentative").glob("*"))


async def test_tuples_that_the_log_has_are_not_added(tmp_path: Path) -> None:
    log, suffix = opened(tmp_path)
    await log.commit(20, None)
    await suffix.add(10, 20, logged([(15, 2)]), failing=False)
    assert suffix.boundary == BEGINNING
    await suffix.add(10, 30, logged([(15, 2), (25, 3)]), failing=False)
    epoch = await suffix.part(20, 0)
    assert epoch is not None
    assert pairs(epoch.table) == [(25, 3)]


async def test_the_files_of_the_suffix_have_no_row_of_the_log(tmp_path: Path) -> None:
    log, suffix = opened(tmp_path)
    await log.commit(10, None)
    await suffix.add(10, 20, logged([(11, 1), (15, 2), (18, 3)]), failing=True)
    await suffix.add(20, 30, logged([(25, 4)]), failing=True)
    await log.commit(15, None)
    async with suffix.files(15, 30) as paths:
        stimes = [t for path in paths for t in pq.read_table(path).column(STIME).to_pylist()]
    assert stimes == [18, 25]
    async with suffix.files(30, 40) as none:
        assert none == []


async def test_the_suffix_keeps_within_its_bytes_and_gives_the_rest(tmp_path: Path) -> None:
    log, suffix = opened(tmp_path, limit_bytes=20_000)
    await log.commit(0, None)
    for number in range(30):
        await suffix.add(number, number + 1, logged([(number + 1, number)]), failing=True)
    epoch = await suffix.part(0, 0)
    assert epoch is not None
    assert epoch.after > 0
    assert epoch.upto == 30
    assert len(list((tmp_path / "log.tentative").glob("*/*.parquet"))) < 30


async def test_the_remains_of_a_crash_are_removed(tmp_path: Path) -> None:
    log, suffix = opened(tmp_path)
    await log.commit(10, None)
    await suffix.add(10, 20, logged([(15, 2)]), failing=True)
    log.close()
    _, again = opened(tmp_path)
    assert again.boundary == BEGINNING
    assert not list((tmp_path / "log.tentative").glob("*"))


def stream_state(folder: Path) -> StreamState:
    entry = StreamEntry(StreamDefinition("medusa://mit.edu/s", SCHEMA.name), SCHEMA)
    return StreamState(entry, Role.DERIVED, StreamLog.open(folder / "log", SCHEMA.source))


async def test_a_reader_of_history_receives_no_tentative_tuples(tmp_path: Path) -> None:
    state = stream_state(tmp_path)
    await state.log.commit(10, logged([(5, 1)]))
    await state.suffix.add(10, 20, logged([(15, 2)]), failing=True)
    got: list[tuple[bool, int | None]] = []
    async with aclosing(messages_of(BothCursor(state, BEGINNING, BEGINNING))) as feed:
        async for message, _ in feed:
            got.append((message.tentative, message.upto))
            if len(got) == 2:
                break
    assert got == [(False, 10), (True, 20)]


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[str, int, list[Row]]]:
    """Draw the steps of a stream: stable and tentative epochs, and reconnections."""
    steps: list[tuple[str, int, list[Row]]] = []
    stable, seen = 0, 0
    for _ in range(draw(st.integers(0, 12))):
        what = draw(st.sampled_from(["stable", "tentative", "reconnect"]))
        if what == "reconnect":
            steps.append((what, 0, []))
            continue
        after = stable if what == "stable" else max(seen, stable)
        upto = after + draw(st.integers(1, 20))
        stimes = draw(st.lists(st.integers(after + 1, upto), max_size=4))
        steps.append((what, upto, [(t, len(steps)) for t in sorted(stimes)]))
        if what == "stable":
            stable = upto
        else:
            seen = upto
    return steps


@given(steps=lives())
@settings(max_examples=60)
def test_a_subscriber_ends_with_the_stable_rows_whatever_happens_between(
    tmp_path_factory: object, steps: list[tuple[str, int, list[Row]]]
) -> None:
    folder = tmp_path_factory.mktemp("suffix")  # type: ignore[attr-defined]
    trio.run(_live, folder, steps)


async def _live(folder: Path, steps: list[tuple[str, int, list[Row]]]) -> None:
    state = stream_state(folder)
    stable: list[Row] = []
    incoming = Incoming(SCHEMA.source, BEGINNING, BEGINNING)
    got: list[Row] = []
    tentative: list[tuple[int, int]] = []

    async def read() -> None:
        incoming.reconnected()
        async with aclosing(
            messages_of(BothCursor(state, incoming.boundary, incoming.seen))
        ) as feed:
            async for message, body in feed:
                epoch = incoming.add(message, body)
                if epoch is not None and message.tentative:
                    tentative.append((epoch.after, epoch.upto))
                elif epoch is not None:
                    got.extend(pairs(epoch.table))

    await state.log.commit(0, None)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def connect() -> None:
            with scope:
                await read()

        nursery.start_soon(connect)
        for what, upto, rows in steps:
            await trio.testing.wait_all_tasks_blocked(0.001)
            if what == "reconnect":
                scope.cancel()
                scope = trio.CancelScope()
                nursery.start_soon(connect)
            elif what == "stable":
                stable += rows
                await state.log.commit(upto, logged(rows) if rows else None)
            else:
                await state.suffix.add(
                    state.suffix.visible, upto, logged(rows) if rows else None, failing=True
                )
        await state.log.commit(END, None)
    assert got == stable
    assert all(after < upto for after, upto in tentative)
    assert [a for a, _ in tentative[1:]] >= [u for _, u in tentative[:-1]]
    state.log.close()


async def test_a_reader_of_the_suffix_keeps_its_files_though_the_log_has_their_tuples(
    tmp_path: Path,
) -> None:
    log, suffix = opened(tmp_path)
    await log.commit(10, None)
    await suffix.add(10, 20, logged([(15, 2)]), failing=True)
    async with suffix.files(10, 20) as paths:
        await log.commit(30, None)
        suffix.tidy()
        await suffix.add(30, 40, logged([(35, 3)]), failing=True)
        assert [pq.read_table(path).num_rows for path in paths] == [1]
    assert not any(path.exists() for path in paths)
    epoch = await suffix.part(30, 0)
    assert epoch is not None
    assert pairs(epoch.table) == [(35, 3)]
