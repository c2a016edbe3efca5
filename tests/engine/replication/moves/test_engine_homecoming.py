"""When a peer is gone, its tasks return to their owner together, however they depend on one
another."""

from __future__ import annotations

import pytest
import trio
from engine_peers import Cluster, Place, begin, make_stream, until
from hypothesis import given
from hypothesis import strategies as st
from moving_tasks import Reader, post
from replicated_queries import Made, believes

from medusa.engine.objects.query import Filter, Query
from medusa.engine.replication.moves.homecoming import Away, to_take_home
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.overlay.gossip.events import Health
from medusa.overlay.names import PeerId
from medusa.tools.client.async_client import AsyncMedusaClient

PATIENCE_S = 4.0
STAGES = ("one", "two", "three")

pytestmark = pytest.mark.cluster(
    patience_s=PATIENCE_S, timing=Timing(maintenance_s=0.05, workers_s=0.05, confirm_s=0.05)
)


def stage(place: Place, source: str, path: str) -> Query:
    box = Filter("all", source, (place.name(path),), ("value >= 0",))
    return Query(place.name("q/" + path), (box,))


async def chain(
    cluster: Cluster, owner: Place, worker: Place
) -> tuple[AsyncMedusaClient, str, Reader, list[str]]:
    """Return three queries, each over the one before, whose tasks all run at the worker."""
    client = await cluster.client(owner)
    source = last = await make_stream(client, owner, "s")
    for path in STAGES:
        await begin(client, stage(owner, last, path))
        last = owner.name(path)
    reader = Reader(client, last, "value")
    await reader.feed(client, source, range(100))
    for path in STAGES:
        await owner.up.engine.mover.move(owner.name(path), worker.peer_id, Deal(giver=owner.id))
    await reader.feed(client, source, range(100, 200))
    return client, source, reader, [owner.name(path) for path in STAGES]


def away(owner: Place, tasks: list[str]) -> list[str]:
    find = owner.up.engine.queries.find
    return [task for task in tasks if find(task)[1].current.term.holder]


async def homecoming_s(owner: Place, tasks: list[str], began: float) -> float:
    await until(lambda: not away(owner, tasks), "all are home")
    return trio.current_time() - began


async def test_the_tasks_of_a_dead_worker_come_home_at_once(cluster: Cluster, made: Made) -> None:
    owner, worker = await cluster.siblings(2)
    client, source, reader, tasks = await chain(cluster, owner, worker)
    gone = worker.id
    await cluster.stop(worker)
    await post(client, source, range(200, 300))
    believes(made, owner, gone, Health.DEAD)
    took_s = await homecoming_s(owner, tasks, trio.current_time())
    await reader.end(client, source, range(300, 400))
    assert reader.rows == [(at, at) for at in range(400)]
    assert took_s < PATIENCE_S  # one after the other they would take at least three times as long


async def test_a_worker_that_is_called_dead_and_answers_keeps_its_tasks(
    cluster: Cluster, made: Made
) -> None:
    owner, worker = await cluster.siblings(2)
    client, source, reader, tasks = await chain(cluster, owner, worker)
    believes(made, owner, worker.id, Health.DEAD)
    await reader.feed(client, source, range(200, 300))
    assert reader.rows == [(at, at) for at in range(300)]
    assert away(owner, tasks) == tasks


async def test_one_patience_is_enough_for_all_tasks_of_a_worker_that_left(
    cluster: Cluster, made: Made
) -> None:
    owner, worker = await cluster.siblings(2)
    client, source, reader, tasks = await chain(cluster, owner, worker)
    missed: list[PeerId] = []
    owner.up.engine.mover.home.missed.add(missed.append)
    gone = worker.id
    await cluster.stop(worker)
    believes(made, owner, gone, Health.LEFT)
    await trio.sleep(1.2 * PATIENCE_S)
    assert away(owner, tasks) == tasks, "nothing waits for it"
    began = trio.current_time()
    await post(client, source, range(200, 300))
    took_s = await homecoming_s(owner, tasks, began)
    assert missed == [bytes.fromhex(gone)]
    assert took_s >= PATIENCE_S
    await reader.end(client, source, range(300, 400))
    assert reader.rows == [(at, at) for at in range(400)]
    # each move is noted with the first epoch that the task computes at home
    records = owner.up.engine.mover.records
    await until(lambda: len(records) == 2 * len(STAGES))
    came_at = [each.at for each in records if each.target == owner.id]
    assert max(came_at) - min(came_at) < PATIENCE_S


HEALTH = st.sampled_from(Health)
TASKS = st.lists(
    st.builds(
        Away,
        st.text("abc", min_size=1),
        st.sampled_from([b"1", b"2", b"3"]),
        st.sampled_from([0.0, 5.0, 31.0]),
        st.sampled_from([30.0, 60.0]),
        st.booleans(),
    ),
    unique_by=lambda each: each.task,
)


@given(TASKS, st.fixed_dictionaries({b"1": HEALTH, b"2": HEALTH, b"3": HEALTH}))
def test_tasks_come_home_by_the_health_of_their_worker(
    tasks: list[Away], health: dict[bytes, Health]
) -> None:
    home = to_take_home(tasks, health.__getitem__)
    for each in tasks:
        together = [other for other in tasks if other.worker == each.worker]
        left = health[each.worker] is Health.LEFT and any(other.is_late for other in together)
        is_dead = health[each.worker] is Health.DEAD
        at_once = each.is_late or (left and not each.spared)
        assert (each in home.at_once) is at_once
        dialled = is_dead and not each.is_late and not each.spared
        assert (each in home.unless_reached.get(each.worker, [])) is dialled
