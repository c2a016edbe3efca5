"""A task runs at the leader of its input: its owner reads nothing of the input, and can take the
task home."""

from __future__ import annotations

import msgspec
import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, passing, until
from moving_tasks import SIZE_US, Reader, Sums, post, windows

from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.engine.tasks.runner import TaskRunner
from medusa.overlay.names import PeerId
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = [
    pytest.mark.cluster(timing=Timing(maintenance_s=0.05, workers_s=0.05, confirm_s=0.05)),
    pytest.mark.usefixtures("interpreted"),
]


def task_of(owner: Place, path: str = "out") -> Copy:
    return owner.up.engine.queries.find(owner.name(path))[1]


async def move(owner: Place, to: Place, path: str = "out") -> None:
    await owner.up.engine.mover.move(owner.name(path), to.peer_id, Deal(giver=owner.id))


def kept_from(leader: Place) -> int:
    """Return the boundary from which on the leader of `s` keeps tuples for readers elsewhere."""
    retention = leader.state("s").log.retention
    return retention.held(frozenset(h for h in retention.consumers if h.kind != "subscriber"))


class Scene:
    """A query at one peer over a stream of another one, which keeps no history."""

    def __init__(
        self, owner: Place, leader: Place, client: AsyncMedusaClient, poster: AsyncMedusaClient
    ) -> None:
        self.owner, self.leader = owner, leader
        self.client, self.poster = client, poster
        self.source = owner.name("s")
        self.sums = Sums(client, owner.name("out"))

    async def feed(self, stimes: range) -> None:
        await self.sums.feed(self.poster, self.source, stimes)

    async def fall_asleep(self, begin: int) -> int:
        """Post from `begin` on until the owner stops reading; return the next stime."""
        with trio.fail_after(DEADLINE_S):
            while self.owner.state("s").log.boundary > BEGINNING:
                await self.feed(range(begin, begin + 10))
                begin += 10
                await trio.sleep(0.05)
        return begin

    async def finish(self, begin: int) -> None:
        """Post the rest, and compare all sums with all posted rows."""
        await self.sums.finish(self.poster, self.source, range(begin, begin + 130))


async def spared(cluster: Cluster) -> tuple[Scene, int]:
    """Give a task at the leader of its input, whose owner has stopped reading, and the next
    stime."""
    return await spared_between(cluster, *await cluster.siblings(2))


async def spared_between(cluster: Cluster, owner: Place, leader: Place) -> tuple[Scene, int]:
    """The same as `spared`, in a scene."""
    poster, client = await cluster.clients(leader, owner)
    await make_stream(poster, leader, "s", history_us=0)
    await begin(client, windows(owner, owner.name("s")))
    scene = Scene(owner, leader, client, poster)
    await scene.feed(range(200))
    await move(owner, leader)
    return scene, await scene.fall_asleep(200)


async def reads_on(
    cluster: Cluster, owner: Place, leader: Place, worker: Place, query: Query
) -> None:
    """Move the task of this query to the worker; check that its owner continues to read the
    input."""
    poster, client = await cluster.clients(leader, owner)
    source = await make_stream(poster, leader, "s")
    await begin(client, query)
    sums = Sums(client, owner.name("out"))
    await sums.feed(poster, source, range(200))
    await move(owner, worker)
    await until(lambda: task_of(owner).reading is not None)
    assert not task_of(owner).spared.value
    await sums.finish(poster, source, range(200, 400))
    assert owner.state("s").log.appended_rows == 400


async def test_no_row_comes_while_the_task_is_where_they_are(cluster: Cluster) -> None:
    scene, begin = await spared(cluster)
    log = scene.owner.state("s").log
    before = log.appended_rows
    await scene.feed(range(begin, begin + 1_000))
    assert (log.appended_rows, log.files.rows, log.boundary) == (before, 0, BEGINNING)
    assert not list(log.folder.glob("*.parquet"))
    # the leader keeps the stream for the owner from the open window on, and no earlier tuples
    reached = begin + 999
    await until(lambda: kept_from(scene.leader) >= reached - SIZE_US, "its hold goes on")
    assert kept_from(scene.leader) <= reached // SIZE_US * SIZE_US
    await scene.finish(begin + 1_000)


async def test_a_task_comes_home_with_its_open_window(cluster: Cluster) -> None:
    scene, begin = await spared(cluster)
    await scene.feed(range(begin, begin + 50))
    await scene.owner.up.engine.mover.take_back(scene.owner.name("out"))
    log = scene.owner.state("s").log
    assert log.boundary == begin + 49, "the move has waited for the input"
    assert log.start >= begin - SIZE_US, "of no more than the open window"
    await until(lambda: not scene.leader.up.engine.assignments.all())
    await scene.feed(range(begin + 50, begin + 320))
    assert log.boundary == begin + 319
    await scene.finish(begin + 320)


async def test_there_and_back_again_and_again(cluster: Cluster) -> None:
    scene, begin = await spared(cluster)
    for _ in range(3):
        await scene.owner.up.engine.mover.take_back(scene.owner.name("out"))
        await scene.feed(range(begin, begin + 70))
        await move(scene.owner, scene.leader)
        begin = await scene.fall_asleep(begin + 70)
    await scene.finish(begin)


@pytest.mark.parametrize("who", ["owner", "leader", "leader, then owner"])
async def test_a_restart_changes_nothing(cluster: Cluster, who: str) -> None:
    scene, begin = await spared(cluster)
    for name in who.split(", then "):
        await cluster.restart(scene.owner if name == "owner" else scene.leader)
    begin = await scene.fall_asleep(begin)
    await scene.owner.up.engine.mover.take_back(scene.owner.name("out"))
    await scene.finish(begin)


async def test_a_task_that_was_taken_home_goes_on_when_the_leader_is_back(cluster: Cluster) -> None:
    scene, begin = await spared(cluster)
    await scene.feed(range(begin, begin + 50))
    await cluster.stop(scene.leader)
    await scene.owner.up.engine.mover.take_back(scene.owner.name("out"))
    await cluster.start(scene.leader)
    await until(lambda: not scene.leader.up.engine.assignments.all(), "it hears that it is not")
    await scene.finish(begin + 50)


@pytest.mark.cluster(patience_s=0.3)
async def test_a_worker_that_stands_still_is_noticed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, begin = await spared(cluster)
    missed: list[PeerId] = []
    scene.owner.up.engine.mover.home.missed.add(missed.append)
    stuck, run = (
        scene.leader.up.engine.assignments.of_task(scene.owner.name("out")),
        TaskRunner._run_epoch,
    )

    async def stands_still(runner: TaskRunner) -> None:
        if stuck.copy is not None and runner is stuck.copy.runner:
            await trio.sleep_forever()
        await run(runner)

    monkeypatch.setattr(TaskRunner, "_run_epoch", stands_still)
    await scene.feed(range(begin, begin + 250))
    assert missed == [scene.leader.peer_id]
    await scene.finish(begin + 250)


async def test_a_new_query_gets_what_the_stream_still_has(cluster: Cluster) -> None:
    scene, begin = await spared(cluster)
    await begin_query(scene, "also")
    also = Reader(scene.client, scene.owner.name("also"), "value")
    await scene.finish(begin)
    await also.take(END)
    stimes = [stime for stime, _ in also.rows]
    assert stimes == list(range(stimes[0], begin + 130))
    assert stimes[0] <= begin - begin % SIZE_US


async def begin_query(scene: Scene, path: str) -> None:
    owner = scene.owner
    query = passing(owner, f"q/{path}", scene.source, owner.name(path), "value >= 0")
    await begin(scene.client, query)


async def test_an_input_is_read_where_another_query_needs_it(cluster: Cluster) -> None:
    owner, leader = await cluster.siblings(2)
    poster, client = await cluster.clients(leader, owner)
    source = await make_stream(poster, leader, "s")
    await begin(client, windows(owner, source))
    await begin(client, passing(owner, "q/also", source, owner.name("also"), "value >= 0"))
    sums, also = Sums(client, owner.name("out")), Reader(client, owner.name("also"), "value")
    await sums.feed(poster, source, range(200))
    await move(owner, leader)
    await until(lambda: task_of(owner).spared.value)
    for at in range(200, 400, 10):
        await post(poster, source, range(at, at + 10))
        await trio.sleep(0.02)
    await sums.finish(poster, source, range(400, 500))
    await also.take(END)
    assert also.rows == [(at, at) for at in range(500)]
    # the owner keeps the input: its other query still reads it, although that query's task runs at
    # the leader, too
    assert owner.state("s").log.appended_rows == 500


@pytest.mark.parametrize(
    "availability",
    [Availability(bound_s=1.0), Availability(Mode.UPSTREAM_BACKUP)],
    ids=["bound", "secondary"],
)
async def test_a_promise_of_the_query_keeps_its_input_here(
    cluster: Cluster, availability: Availability
) -> None:
    owner, leader = await cluster.siblings(2)
    query = windows(owner, leader.name("s"))
    query = msgspec.structs.replace(query, availability=availability)
    await reads_on(cluster, owner, leader, leader, query)


async def test_so_does_a_worker_that_has_the_input_from_elsewhere(cluster: Cluster) -> None:
    owner, leader, third = await cluster.siblings(3)
    await reads_on(cluster, owner, leader, third, windows(owner, leader.name("s")))


async def test_a_task_moves_on_to_a_third_peer(cluster: Cluster) -> None:
    owner, leader, third = await cluster.siblings(3)
    scene, at = await spared_between(cluster, owner, leader)
    await move(owner, third)
    await scene.feed(range(at, at + 60))
    assert owner.state("s").log.boundary == at + 59
    await scene.finish(at + 60)


async def test_the_load_of_a_task_is_what_its_worker_reads(cluster: Cluster) -> None:
    scene, begin = await spared(cluster)
    for _ in range(30):
        await post(scene.poster, scene.source, range(begin, begin + 20))
        begin += 20
        await trio.sleep(0.02)
    await scene.sums.take(begin - 1)
    await until(lambda: task_of(scene.owner).rate > 10)
    await scene.finish(begin)
