"""Secondaries that refuse, are full, lose their state, or are asked at a bad moment."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, begin, make_stream, rows, send_rows, until
from moving_tasks import Sums, post, windows
from replicated_queries import (
    QUICK,
    Made,
    asked,
    begin_stood_by,
    believes,
    die,
    has,
    passed,
    standby_boundary,
    stands_by,
)

from medusa.engine.objects.availability import Mode
from medusa.engine.replication.records.placements import Deal
from medusa.engine.replication.replicas.messages import KeepUp
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.engine.streams.store.store import StreamStore
from medusa.overlay.errors import InvalidInputError, StorageFullError
from medusa.overlay.gossip.events import Health

pytestmark = pytest.mark.cluster(timing=QUICK)


async def test_a_standby_goes_on_when_its_query_is_stopped_and_started(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin_stood_by(owner, query, primary, secondary)
    standby = secondary.up.engine.standbys.get(query.name)
    assert standby is not None
    await until(lambda: standby.stored.entry.status == "RUNNING")
    await owner.stop_query(query.name)
    await until(lambda: standby.stored.entry.status == "STOPPED")
    await owner.start_query(query.name)
    await until(lambda: standby.stored.entry.status == "RUNNING")
    assert secondary.up.engine.standbys.get(query.name) is standby


async def test_a_candidate_that_refuses_does_not_stand_in_the_way(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    stand_by = Standbys.stand_by

    async def refuse(self: Standbys, *args: Any) -> Any:
        if self is secondary.up.engine.standbys:
            raise InvalidInputError("what is this?")
        return await stand_by(self, *args)

    monkeypatch.setattr(Standbys, "stand_by", refuse)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
    await owner.create_query(query)
    await stands_by(primary, home, "q/out")


async def test_consumers_do_not_wait_for_a_secondary_that_lost_everything_and_refuses(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    believes(made, primary, home.id, Health.DEAD)  # not chosen
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "out"), Mode.PASSIVE_STANDBY, secondary)
    await begin_stood_by(owner, query, primary, secondary)
    state = primary.state(home.name("out"))
    await until(lambda: state.gate is not None, "it is caught up")

    async def refuse(self: Standbys, *_: Any) -> Any:
        raise StorageFullError("no room")

    monkeypatch.setattr(Standbys, "stand_by", refuse)
    standbys = secondary.up.engine.standbys
    standby = standbys.get(query.name)
    assert standby is not None
    await standbys._drop(standby)
    subscription = poster.subscribe(home.name("out"))
    await post(poster, source, range(100))
    with trio.fail_after(DEADLINE_S):
        while subscription.boundary < 99:
            await anext(subscription)


async def test_a_takeover_that_was_decided_is_finished_when_there_is_room(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The primary turns out to live."""
    home, primary, secondary, reader = await cluster.siblings(4)
    change_role, full = StreamStore.change_role, True

    async def refuse(self: StreamStore, *args: Any) -> None:
        if full and self is secondary.up.engine.store:
            raise StorageFullError("no room")
        await change_role(self, *args)

    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.PASSIVE_STANDBY, secondary)
    await begin_stood_by(owner, query, primary, secondary)
    sums = Sums(client, home.name("out"))
    await sums.feed(poster, source, range(250))
    monkeypatch.setattr(StreamStore, "change_role", refuse)
    believes(made, secondary, primary.id, Health.DEAD)
    await trio.sleep(0.5)
    believes(made, secondary, primary.id, Health.ALIVE)
    await trio.sleep(0.5)
    full = False
    await until(lambda: has(secondary, query.name) != has(primary, query.name))
    await sums.finish(poster, source, range(250, 777))
    assert has(secondary, query.name) != has(primary, query.name)


@pytest.mark.cluster(timing=dataclasses.replace(QUICK, confirm_s=0.05))
async def test_the_worker_of_a_dead_primary_is_released_by_its_successor(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary, worker = await cluster.siblings(4)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
    await begin(owner, query)
    sums = Sums(poster, home.name("out"))
    await sums.feed(poster, source, range(250))
    await stands_by(primary, secondary, "q/out")
    await primary.up.engine.mover.move(home.name("out"), worker.peer_id, Deal(giver=primary.id))
    await sums.feed(poster, source, range(250, 520))
    await die(made, primary, cluster, home, secondary, worker)
    await until(lambda: not worker.up.engine.assignments.all(), "it is released")
    await sums.finish(poster, source, range(520, 777))


@pytest.mark.cluster(timing=dataclasses.replace(QUICK, save_s=0.0))
async def test_a_secondary_whose_disk_is_full_still_receives_its_primarys_messages(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "out"), Mode.UPSTREAM_BACKUP, secondary)
    bound = msgspec.structs.replace(query.availability, bound_s=1.0)
    query = msgspec.structs.replace(query, availability=bound)
    await begin_stood_by(owner, query, primary, secondary)

    def refuse(*_: object) -> None:
        raise StorageFullError("no room")

    files = secondary.up.engine.queries.files
    monkeypatch.setattr(files, "save", refuse)
    for start in range(0, 300, 10):
        await post(poster, source, range(start, start + 10))
        await trio.sleep(0.1)
    assert has(primary, query.name)
    assert secondary.up.engine.standbys.get(query.name) is not None


async def test_a_stream_whose_time_runs_faster_than_the_clock_deposes_no_primary(
    cluster: Cluster, made: Made
) -> None:
    """A bound counts by the clock, not by the stream's own time: a client may post a day in a
    second."""
    home, primary, secondary = await cluster.siblings(3)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "out"), Mode.ACTIVE_STANDBY, secondary)
    bound = msgspec.structs.replace(query.availability, bound_s=2.0)
    query = msgspec.structs.replace(query, availability=bound)
    await begin_stood_by(owner, query, primary, secondary)
    standby = secondary.up.engine.standbys.get(query.name)
    assert standby is not None
    hour = 3_600_000_000
    made_in_a_day = rows((number * hour, number) for number in range(10))
    await send_rows(poster, source, made_in_a_day, boundary=9 * hour)
    boundary = standby_boundary(secondary, "q/out", "out")
    await until(lambda: boundary() == 9 * hour)
    standby.note_boundaries(trio.current_time())
    late = KeepUp(query.name, standby.term.number, {}, {home.name("out"): 8 * hour})
    assert standby.receive(late, trio.current_time()).behind_us < 1_500_000
    assert standby.receive(late, trio.current_time() + 5).behind_us > 4_000_000


async def test_a_standby_that_is_dropped_as_it_opens_is_dropped(
    cluster: Cluster, made: Made
) -> None:
    """The standby is dropped before its copies have begun."""
    home, primary, secondary = await cluster.siblings(3)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "out"), Mode.PASSIVE_STANDBY, home)
    await owner.create_query(query)
    await stands_by(primary, home, "q/out")
    standbys = secondary.up.engine.standbys
    stored = primary.up.engine.queries.get(query.name).stored
    with trio.fail_after(DEADLINE_S):
        for _ in range(5):
            standby = await standbys._open(stored)
            await standbys._drop(standby)
    assert not secondary.up.engine.store.all()
