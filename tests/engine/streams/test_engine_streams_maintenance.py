"""The maintenance of streams visits each stream after a change, and leaves it alone while it
rests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from engine_peers import until
from engine_streams_data import SCHEMA, logged
from filled_logs import filled, opened

from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.streams.config import EngineConfig, Timing
from medusa.engine.streams.load import Rate
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.maintenance import Maintenance
from medusa.engine.streams.store.stream_state import LogKey, Role, StreamState
from medusa.engine.streams.store.subscriptions import Subscriptions
from medusa.overlay.events import Events


def entry_of(folder: Path) -> StreamEntry:
    return StreamEntry(StreamDefinition(f"medusa://mit.edu/{folder.name}", SCHEMA.name), SCHEMA)


def stream(folder: Path) -> StreamState:
    """Return a stream without history, in twenty files."""
    log, _ = filled(folder, 20, history_us=0)
    return StreamState(entry_of(folder), Role.SOURCE, log)


async def saved() -> None:
    await trio.lowlevel.checkpoint()


@pytest.fixture
async def maintenance(nursery: trio.Nursery, tmp_path: Path) -> Maintenance:
    subscriptions: Any = SimpleNamespace(maintain=saved)
    config = EngineConfig(timing=Timing(maintenance_s=0.01))
    made = Maintenance(tmp_path, cast("Subscriptions", subscriptions), config, Events())
    nursery.start_soon(made.maintain)
    return made


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[LogKey]:
    """Return the visited streams, in order."""
    found: list[LogKey] = []
    measure = StreamState.measure

    def counted(state: StreamState, now: float, before: float) -> None:
        found.append(state.key)
        measure(state, now, before)

    monkeypatch.setattr(StreamState, "measure", counted)
    return found


async def test_a_stream_is_looked_at_after_a_change_and_then_left_alone(
    tmp_path: Path, maintenance: Maintenance, looks: list[LogKey]
) -> None:
    idle, busy = stream(tmp_path / "idle"), stream(tmp_path / "busy")
    for state in (idle, busy):
        maintenance.watch(state)
    await until(lambda: {idle.key, busy.key} <= {*looks})
    assert idle.log.start == busy.log.start == 190  # all files except the newest were dropped
    looks.clear()
    for boundary in range(210, 260, 10):
        busy.log.append(boundary, logged([(boundary - 1, 1)]))
        await until(lambda: busy.log.start == boundary - 10)  # noqa: B023 - awaited here
    assert looks == 5 * [busy.key]


async def test_the_disk_that_streams_take_is_counted_while_they_rest_as_well(
    tmp_path: Path, maintenance: Maintenance, looks: list[LogKey]
) -> None:
    streams = [stream(tmp_path / name) for name in ("one", "two")]

    def taken() -> bool:
        return maintenance.quota.short_bytes == sum(state.log.files.bytes for state in streams)

    maintenance.quota.allow(1)
    for state in streams:
        maintenance.watch(state)
        assert maintenance.quota.short_bytes > 0
    await until(lambda: len(looks) >= 2)
    assert taken()
    streams[0].log.append(210, logged([(209, 1)]))
    assert taken()
    await until(lambda: streams[0].log.start == 200)
    assert taken()
    maintenance.forget(streams.pop().key)
    assert taken()


async def test_the_end_of_a_hold_is_no_change_and_counts(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    state = stream(tmp_path / "held")
    state.log.retention.hold(Hold("call"), 100, expires=trio.current_time() + 0.1)
    maintenance.watch(state)
    await until(lambda: state.log.start == 190)


async def test_a_forgotten_stream_is_not_touched(
    tmp_path: Path, maintenance: Maintenance, looks: list[LogKey]
) -> None:
    gone, other = stream(tmp_path / "gone"), stream(tmp_path / "other")
    rows = gone.log.files.rows
    maintenance.watch(gone)
    maintenance.forget(gone.key)
    gone.log.append(210, logged([(209, 1)]))
    maintenance.watch(other)
    await until(lambda: other.key in looks)
    assert gone.log.files.rows == rows + 1


async def test_the_rate_of_a_stream_that_was_idle_begins_as_if_it_had_been_watched(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    state = StreamState(entry_of(tmp_path), Role.SOURCE, log)
    watched = Rate()
    for second in range(100):
        rows = 5 if second in {3, 4, 90} else 0
        if rows:
            log.append(second, logged([(second, number) for number in range(rows)]))
            state.measure(second, second - 1)
        watched.add(rows, second)
        if second > 3:
            assert state.rate.read(second) == pytest.approx(watched.value)
