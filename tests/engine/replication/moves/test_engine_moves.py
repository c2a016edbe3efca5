"""Tasks move between complete peers (`engine_peers`): subscribers receive the same results from
every worker."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, executor_of, make_stream, rows, until
from moving_tasks import Sums, expected, owner_and_worker, post, windows

from medusa.engine.objects.query import QueryStatus
from medusa.engine.objects.schema import END
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.mover import Mover
from medusa.engine.replication.moves.notifications import Notifier
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.names import PeerId
from medusa.tools.commands.medusa import calls

pytestmark = [
    pytest.mark.cluster(timing=Timing(maintenance_s=0.05, workers_s=0.05, confirm_s=0.05)),
    pytest.mark.usefixtures("interpreted"),
]


async def test_there_and_back_under_traffic(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    await begin(client, windows(one, source))
    sums = Sums(client, one.name("out"))
    mover = one.up.engine.mover
    await sums.feed(client, source, range(250))
    record = await mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    assert (record.source, record.target) == (one.id, two.id)
    first = record.term_number
    await sums.feed(client, source, range(250, 520))
    assert [task.boundary for task in two.up.engine.assignments.all()] == [519]
    record = await mover.take_back(one.name("out"))
    assert (record.source, record.target) == (two.id, one.id)
    assert record.term_number > first
    await until(lambda: not two.up.engine.assignments.all(), "dropped by the worker")
    await sums.finish(client, source, range(520, 777))
    assert [state.name for state in two.up.engine.store.all()] == []


async def test_a_subscriber_elsewhere_follows_the_task(cluster: Cluster) -> None:
    one, two, three = await cluster.siblings(3)
    client, reader = await cluster.clients(one, three)
    source = await make_stream(client, one, "s")
    await begin(client, windows(one, source))
    sums = Sums(reader, one.name("out"))
    await sums.feed(client, source, range(250))
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    served = two.up.engine.store.serving
    await sums.feed(client, source, range(250, 520))
    await until(
        lambda: (out := served(one.name("out"))) is not None and out.subscribers == 2,
        "the owner and the relay read from the worker",
    )
    await one.up.engine.mover.move(one.name("out"), three.peer_id, Deal(giver=one.id))
    await sums.feed(client, source, range(520, 777))
    late = Sums(reader, one.name("out"))
    await late.take(776)
    assert late.rows == sums.rows == [row for row in expected(range(777)) if row[0] < 776]


@pytest.mark.parametrize("victim", ["owner", "worker"])
@pytest.mark.parametrize(
    "step",
    [
        "Mover._prepare",
        "Mover._until_there",
        "Mover._send_subscribers",
        "Notifier._notify_one",
        "Assignments._take",
        "Assignments._start",
        "Assignments.activate",
        "Assignments.release",
        "Assignments._drop",
    ],
)
async def test_either_side_restarts_at_any_step(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str, victim: str
) -> None:
    """A peer stops when it reaches the step, before the step is done, and is started again.
    (test_engine_moving_kills has real processes killed with -9.)"""
    one, two = await cluster.siblings(2)
    client = await cluster.open(one.client(patience_s=DEADLINE_S))
    source = await make_stream(client, one, "s")
    await begin(client, windows(one, source))
    sums = Sums(client, one.name("out"))
    await sums.feed(client, source, range(250))
    reached, go_on = _stop_at(monkeypatch, step)
    # the move runs in the nursery of the owner's mover, so that a restart of the owner ends it
    one.up.engine.mover._nursery.start_soon(_move, one, two)
    with trio.fail_after(DEADLINE_S):
        await reached.wait()
    await cluster.restart(one if victim == "owner" else two)
    go_on.set()
    await sums.feed(client, source, range(250, 520))
    with trio.fail_after(DEADLINE_S):
        await _back_again(one)
    await sums.finish(client, source, range(520, 777))
    await until(lambda: not two.up.engine.assignments.all(), "dropped by the worker")


async def _move(one: Place, two: Place) -> None:
    try:
        await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
        await one.up.engine.mover.take_back(one.name("out"))
    except MedusaError:
        pass


async def _back_again(one: Place) -> None:
    while True:
        _, placed = one.up.engine.queries.find(one.name("out"))
        if not placed.current.term.holder:
            return
        try:
            await one.up.engine.mover.take_back(one.name("out"))
        except MedusaError:
            await trio.sleep(0.05)


def _stop_at(monkeypatch: pytest.MonkeyPatch, step: str) -> tuple[trio.Event, trio.Event]:
    """Let a method wait when it is first called: one event says that it waits, the other one ends
    the wait."""
    name, method = step.split(".")
    owner = {c.__name__: c for c in (Assignments, Mover, Notifier)}[name]
    reached, go_on = trio.Event(), trio.Event()
    original = getattr(owner, method)

    async def wait(*arguments: object) -> object:
        if not reached.is_set():
            reached.set()
            await go_on.wait()
        return await original(*arguments)

    monkeypatch.setattr(owner, method, wait)
    return reached, go_on


@pytest.mark.cluster(patience_s=0.3)
async def test_a_worker_that_never_comes_back_loses_nothing(cluster: Cluster) -> None:
    one, two, client, source, sums = await owner_and_worker(cluster)
    missed: list[PeerId] = []
    one.up.engine.mover.home.missed.add(missed.append)
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    await sums.feed(client, source, range(250, 380))
    gone = two.peer_id
    await cluster.stop(two)
    await sums.feed(client, source, range(380, 520))
    assert missed == [gone]
    await cluster.start(two)
    await until(lambda: not two.up.engine.assignments.all(), "it hears that it is not")
    await client.post_event(source, rows([(600, 600)]), end=True)
    await sums.take(END)
    assert sums.rows == expected([*range(520), 600])


async def test_invalid_input_is_refused(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    other = await cluster.settle("utah.edu")
    await cluster.acquainted(one, two, other)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    await client.create_query(windows(one, source))
    mover = one.up.engine.mover
    with pytest.raises(NotFoundError, match="no task"):
        await mover.move(one.name("none"), two.peer_id, Deal())
    with pytest.raises(MedusaError, match="does not run"):
        await mover.move(one.name("out"), two.peer_id, Deal())
    await client.start_query(one.name("q/out"))
    with pytest.raises(ConflictError, match="there already"):
        await mover.move(one.name("out"), one.peer_id, Deal())
    with pytest.raises(NotAuthorisedError, match="not accepted"):
        await mover.move(one.name("out"), other.peer_id, Deal())
    private = await make_stream(client, one, "private", readers=("mit.edu",))
    await begin(client, windows(one, private, "hidden"))
    other.up.engine.assignments.admit = lambda *_: None
    with pytest.raises(NotAuthorisedError, match="may not read"):
        await mover.move(one.name("hidden"), other.peer_id, Deal())
    await until(lambda: not other.up.engine.assignments.all())


async def test_stopping_a_query_frees_its_worker(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    await begin(client, windows(one, source))
    await post(client, source, range(250))
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    await client.set_query_status(one.name("q/out"), QueryStatus.STOPPED)
    await until(lambda: not two.up.engine.assignments.all())
    await client.start_query(one.name("q/out"))
    await client.post_event(source, rows([(300, 1)]), end=True)
    sums = Sums(client, one.name("out"))
    await sums.take(END)
    assert sums.rows == [*expected(range(250)), (399, 1)]


async def test_a_suffix_that_the_producer_released_comes_from_the_owner(cluster: Cluster) -> None:
    """The input's leader keeps nothing; the owner keeps what its open window needs."""
    one, two = await cluster.siblings(2)
    three = await cluster.settle("mit.edu", sibling=True)
    await cluster.acquainted(one, two, three)
    poster, client = await cluster.clients(three, one)
    source = await make_stream(poster, three, "s", history_us=0)
    await begin(client, windows(one, source))
    sums = Sums(client, one.name("out"))
    for start in range(0, 260, 20):
        await post(poster, source, range(start, start + 20))
        await sums.take(start + 19)
    await until(lambda: three.state("s").log.start > 200, "the home has let go")
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    await poster.post_event(source, rows([(260, 7)]), end=True)
    await sums.take(END)
    assert sums.rows == [*expected(range(260))[:-1], (299, sum(range(200, 260)) + 7)]


async def test_moved_by_hand(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    home = str(one.home.folder)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    await begin(client, windows(one, source))
    await post(client, source, range(250))
    moved = await trio.to_thread.run_sync(calls.move_task, home, one.name("out"), two.id[:12])
    assert (moved.source, moved.target) == (one.id, two.id)
    with pytest.raises(NotFoundError, match="begins with 'ffff0000'"):
        await trio.to_thread.run_sync(calls.move_task, home, one.name("out"), "ffff0000")
    back = await trio.to_thread.run_sync(calls.move_task, home, one.name("out"), "home")
    assert (back.source, back.target) == (two.id, one.id)


async def test_a_peer_that_cannot_compute_takes_no_task(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    await begin(client, windows(one, source))
    sums = Sums(client, one.name("out"))
    mover, deal = one.up.engine.mover, Deal(giver=one.id)
    executor: Any = executor_of(two)
    monkeypatch.setattr(executor, "trouble", "Spark does not start: no Java")

    async def mended(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        executor.trouble = ""

    monkeypatch.setattr(executor, "prepare", mended)
    await sums.feed(client, source, range(250))
    with pytest.raises(BusyError, match="computes nothing now: Spark does not start"):
        await mover.move(one.name("out"), two.peer_id, deal)
    await until(lambda: not executor.trouble, "it tries again")
    await mover.move(one.name("out"), two.peer_id, deal)
    await sums.finish(client, source, range(250, 777))
