"""Moving tasks between peers that lie, die, or do two things at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, rows, schema_of, until
from moving_tasks import SIZE_US, Sums, expected, owner_and_worker, post, running, windows

from medusa.engine.objects.definitions import ANY, StreamDefinition, StreamEntry
from medusa.engine.objects.query import Filter, Query, QueryStatus
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.following import origin
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.messages import (
    Assignment,
    GiveBackTask,
    MoveRecord,
    PassOn,
    Progress,
    Release,
)
from medusa.engine.replication.moves.mover import Mover
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    StorageFullError,
)
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import PeerId

QUICK = Timing(maintenance_s=0.05, workers_s=0.05, confirm_s=0.05)
pytestmark = [pytest.mark.cluster(timing=QUICK), pytest.mark.usefixtures("interpreted")]


HOUR_US = 3_600_000_000


async def assign(hostile: Place, worker: Place, request: Assignment) -> Progress:
    """Assign a task as an honest peer does."""
    connection = await hostile.up.engine.overlay.connect(parse_peer_id(worker.id))
    return await connection.call("task.assign", request, Progress, timeout_s=DEADLINE_S)


def assignment(
    owner: Place, query: Query, entries: Iterable[StreamEntry], **more: Any
) -> Assignment:
    inputs = {entry.stream.name: entry for entry in entries}
    return Assignment(
        **{
            "task": owner.name("out"),
            "term_number": 1,
            "query": query,
            "inputs": inputs,
            "kept": (),
            "after": BEGINNING,
            "deal": Deal(giver=owner.id),
            **more,
        }
    )


def welcome(place: Place) -> None:
    """Let a peer run any task; its other refusals stay."""
    place.up.engine.assignments.expect = lambda *_: None
    place.up.engine.assignments.admit = lambda *_: None


def placed(place: Place) -> Copy:
    return place.up.engine.queries.find(place.name("out"))[1]


# -- hostile requests of an owner to a worker ------------------------------------------------------


async def test_a_stranger_cannot_replace_the_task_of_an_owner(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    stranger = await cluster.settle("utah.edu")
    await cluster.acquainted(one, two, stranger)
    client = await cluster.client(one)
    source, sums = await running(client, one)
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    entry = one.state("s").entry
    request = assignment(stranger, windows(stranger, source), [entry], task=one.name("out"))
    for forged in (
        replace_struct(request, term_number=2**60),
        replace_struct(request, query=windows(one, source), term_number=2**60),
    ):
        with pytest.raises(NotAuthorisedError):
            await assign(stranger, two, forged)
    assert [task.stored.owner for task in two.up.engine.assignments.all()] == [one.id]
    await sums.finish_after_250(client, source)


def replace_struct(request: Assignment, **changes: Any) -> Assignment:
    return msgspec.structs.replace(request, **changes)


@pytest.mark.parametrize("voter", ["the worker", "a third one"])
async def test_a_worker_reads_no_input_for_an_owner_that_may_not_read_it(
    cluster: Cluster, voter: str
) -> None:
    """The worker may read the stream; the participant that wants its tuples through a task may
    not."""
    bank = await cluster.settle("bank.com")
    thief = await cluster.settle("thief.org")
    third = await cluster.settle("third.net")
    await cluster.acquainted(bank, thief, third)
    at = bank if voter == "the worker" else third
    client = await cluster.client(at)
    private = await make_stream(client, at, "private", readers=("bank.com",))
    await post(client, private, range(250))
    welcome(bank)
    entry = StreamEntry(  # the record as the thief claims it to be: everyone may read the stream
        StreamDefinition(private, schema_of(at.participant).name, readers=(ANY,)),
        schema_of(at.participant),
    )
    with pytest.raises(NotAuthorisedError, match=r"thief\.org may not read"):
        await assign(thief, bank, assignment(thief, windows(thief, private), [entry]))
    # the thief's query claims to make `private` itself, as an intermediate stream
    source = thief.name("nothing")
    for_all = StreamDefinition(source, entry.schema.name, readers=(ANY,))
    made = StreamEntry(for_all, entry.schema)
    first = Filter("all", source, (private,), ("value >= 0",))
    query = windows(thief, private)
    query = Query(query.name, (first, *query.boxes))
    with pytest.raises(NotAuthorisedError, match=r"thief\.org may not read"):
        await assign(thief, bank, assignment(thief, query, [made], kept=(private,)))
    assert bank.up.engine.assignments.all() == []


@pytest.mark.parametrize(
    "change",
    [
        {"after": 2**63},
        {"after": END + 1},
        {"term_number": -1},
        {"term_number": 2**63},
        {"load": float("nan")},
        {"load": -1.0},
        {"rate": float("inf")},
    ],
)
async def test_an_assignment_beyond_all_limits(cluster: Cluster, change: dict[str, Any]) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    request = assignment(one, windows(one, source), [one.state("s").entry])
    with pytest.raises(InvalidInputError):
        await assign(one, two, replace_struct(request, **change))
    assert two.up.engine.assignments.all() == []
    await cluster.restart(two)


@pytest.mark.cluster(timing=dataclasses.replace(QUICK, worker_call_s=0.2))
async def test_a_call_that_is_left_leaves_a_task_that_works(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner loses patience while the worker opens logs, on a slow disk."""
    one, two, client, source, sums = await owner_and_worker(cluster)
    go_on = trio.Event()
    calls: list[str] = []
    original, assign = Assignments._follow_inputs, Assignments.assign

    async def slow(self: Assignments, *arguments: Any) -> Any:
        await go_on.wait()
        return await original(self, *arguments)

    async def count(self: Assignments, *arguments: Any) -> Progress:
        calls.append("assign")
        return await assign(self, *arguments)

    monkeypatch.setattr(Assignments, "assign", count)

    monkeypatch.setattr(Assignments, "_follow_inputs", slow)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _() -> None:
            await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))

        await until(lambda: len(calls) > 1, "the first call was left")
        go_on.set()
    await sums.finish_after_250(client, source)


async def test_inputs_are_shared_only_where_they_reach_back_far_enough(cluster: Cluster) -> None:
    """A mirror that has not begun begins where its first reader needs it, no earlier; the past of
    an input from one owner serves no other owner."""

    silent = (origin.Place(bytes(20)),)  # the worker is a peer that nobody knows
    one, two = await cluster.siblings(2)
    async with one.client() as client:
        await make_stream(client, one, "s")
    entry = one.state("s").entry
    followers = two.up.engine.followers

    async def follow(user: str, owner: str, after: int) -> StreamState:
        return await followers.follow_from(entry, user, silent, after, owner)

    first = await follow("a 1", one.id, 500)
    assert await follow("b 1", one.id, 600) is first
    assert await follow("c 1", one.id, 100) is not first
    assert await follow("d 1", "ff" * 20, 600) is not first


# -- hostile messages of a worker to an owner ------------------------------------------------------


@pytest.mark.cluster(patience_s=0.3)
@pytest.mark.parametrize("boundary", [END, 10_000])
async def test_an_output_is_never_ahead_of_its_inputs(cluster: Cluster, boundary: int) -> None:
    """A worker says that no tuple is to come, or that all have come already."""
    one, two, client, source, sums = await owner_and_worker(cluster)
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    (lying,) = two.up.engine.assignments.all()
    assert lying.copy is not None
    lying.work.cancel()
    lying.copy.state.log.append(boundary, None)
    await sums.feed(client, source, range(250, 520))
    assert not placed(one).current.term.holder
    await client.post_event(source, rows([(600, 600)]), end=True)
    await sums.take(END)
    assert sums.rows == expected([*range(520), 600])


async def test_a_task_is_not_passed_on_to_its_owner(cluster: Cluster) -> None:
    """The worker that passed it on would be paid for the owner's own work."""
    one, two, three = await cluster.siblings(3)
    client = await cluster.client(one)
    await running(client, one)
    task = one.name("out")
    mover = one.up.engine.mover
    mover.agree = lambda _task, _placement: None
    mover.may_pass_on = lambda _placement: None
    owed = Deal("c" * 32, one.id, 5, 5)
    welcome(two)
    term_number = (await mover.move(task, two.peer_id, owed)).term_number
    for to in (one.id, ""):
        with pytest.raises(NotAuthorisedError, match="give it back"):
            await mover.pass_on(two.peer_id, PassOn(task, term_number, to, Deal("d", two.id, 1, 1)))
    with pytest.raises(NotAuthorisedError, match="you pay for"):
        await mover.pass_on(
            two.peer_id, PassOn(task, term_number, three.id, Deal("d", one.id, 1, 1))
        )
    assert placed(one).current.term.holder == two.peer_id


async def test_a_task_goes_only_where_its_inputs_may_be_read(cluster: Cluster) -> None:
    """The owner has the inputs' past, and the next worker would receive it from there."""
    one, two = await cluster.siblings(2)
    other = await cluster.settle("utah.edu")
    await cluster.acquainted(one, two, other)
    client = await cluster.client(one)
    private = await make_stream(client, one, "s", readers=("mit.edu",))
    await begin(client, windows(one, private))
    mover = one.up.engine.mover
    await post(client, private, range(250))
    term_number = (await mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))).term_number
    welcome(other)
    onwards = PassOn(one.name("out"), term_number, other.id, Deal("d", two.id, 1, 1))
    for going in (
        mover.move(one.name("out"), other.peer_id, Deal(giver=one.id)),
        mover.pass_on(two.peer_id, onwards),
    ):
        with pytest.raises(NotAuthorisedError, match=r"utah\.edu may not read"):
            await going
    assert other.up.engine.assignments.all() == []


async def test_a_worker_that_only_prepares_gives_nothing_back(cluster: Cluster) -> None:
    one, two, three = await cluster.siblings(3)
    client = await cluster.client(one)
    await running(client, one)
    mover = one.up.engine.mover
    await mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    with mover.workers.preparing(one.name("out"), three.peer_id, 2):
        connection = await three.up.engine.overlay.connect(parse_peer_id(one.id))
        with pytest.raises(NotAuthorisedError, match="not its worker"):
            await connection.call(
                "task.give_back", GiveBackTask(one.name("out"), 2), MoveRecord, timeout_s=DEADLINE_S
            )
    assert placed(one).current.term.holder == two.peer_id


# -- concurrent requests ---------------------------------------------------------------------------


async def test_deleting_a_query_whose_task_is_away(cluster: Cluster) -> None:
    one, two, client, *_ = await owner_and_worker(cluster)
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    await client.set_query_status(one.name("q/out"), QueryStatus.DELETED)
    await until(lambda: not two.up.engine.assignments.all())
    with pytest.raises(NotFoundError):
        one.up.engine.queries.find(one.name("out"))
    assert [state.name for state in one.up.engine.store.all()] == [
        one.name("s"),
        one.name("s/late"),
    ] or one.up.engine.store.get(one.name("out")) is None


@pytest.mark.parametrize("status", [QueryStatus.STOPPED, QueryStatus.DELETED])
async def test_a_query_stopped_at_the_moment_of_a_switch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, status: QueryStatus
) -> None:
    """The move waited for the output to rest; the stop of the query, not the move, made it rest."""
    one, two, *_ = await owner_and_worker(cluster)
    mover = one.up.engine.mover
    original = Mover._prepare

    async def stop_then(self: Mover, *arguments: Any) -> int:
        carried = await original(self, *arguments)
        monkeypatch.setattr(mover, "_check_movable", lambda *_: None)
        await one.up.engine.lifecycle.set_status(one.name("q/out"), status)
        monkeypatch.delattr(mover, "_check_movable")
        return carried

    monkeypatch.setattr(Mover, "_prepare", stop_then)
    with pytest.raises(MedusaError, match="does not run"):
        await mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    await until(lambda: not two.up.engine.assignments.all())


async def test_a_move_decided_on_old_knowledge_is_off(cluster: Cluster) -> None:
    one, two, three = await cluster.siblings(3)
    client = await cluster.client(one)
    source, sums = await running(client, one)
    mover, task = one.up.engine.mover, one.name("out")
    term_number = (await mover.move(task, two.peer_id, Deal(giver=one.id))).term_number
    outcomes: list[str] = []

    async def pass_on() -> None:
        try:
            await mover.pass_on(
                two.peer_id, PassOn(task, term_number, three.id, Deal(giver=two.id))
            )
        except MedusaError as error:
            outcomes.append(type(error).__name__)

    async with trio.open_nursery() as nursery, placed(one).moving:
        nursery.start_soon(pass_on)
        await trio.testing.wait_all_tasks_blocked()
        here = placed(one).placements
        placed(one).placements = (*here, replace_placement(here[-1], number=7))
    assert outcomes == ["ConflictError"]
    placed(one).placements = here
    await client.post_event(source, rows([(300, 1)]), end=True)
    await sums.take(END)


def replace_placement(placement: Any, **changes: Any) -> Any:
    term = msgspec.structs.replace(placement.term, **changes)
    return msgspec.structs.replace(placement, term=term)


async def test_a_term_number_is_never_used_twice(cluster: Cluster) -> None:
    """Otherwise a message about a failed move could end a later one."""
    one, two, three = await cluster.siblings(3)
    client = await cluster.client(one)
    await running(client, one)
    mover, task = one.up.engine.mover, one.name("out")

    def refuse(*_: Any) -> None:
        raise BusyError("not now")

    asked: list[int] = []
    original = two.up.engine.assignments.assign

    async def remember(owner: PeerId, participant: str, request: Assignment) -> Progress:
        asked.append(request.term_number)
        return await original(owner, participant, request)

    two.up.engine.assignments.assign = remember  # type: ignore[method-assign]
    two.up.engine.assignments.admit = refuse
    for _ in range(2):
        with pytest.raises(BusyError):
            await mover.move(task, two.peer_id, Deal(giver=one.id))
    record = await mover.move(task, three.peer_id, Deal(giver=one.id))
    assert asked[0] < asked[1] < record.term_number


# -- the end, restarts, full disks -----------------------------------------------------------------


async def test_a_task_whose_output_has_ended_leaves_its_worker(cluster: Cluster) -> None:
    one, two, client, source, sums = await owner_and_worker(cluster)
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    await sums.finish_after_250(client, source)
    await until(lambda: not two.up.engine.assignments.all(), "released")
    assert placed(one).current.term.since == END
    assert [state.name for state in two.up.engine.store.all()] == []


@pytest.mark.cluster(patience_s=DEADLINE_S)
async def test_a_worker_restarts_where_it_was_not_where_it_began(cluster: Cluster) -> None:
    """The tuples that it needed at first are gone everywhere."""
    one, two = await cluster.siblings(2)
    three = await cluster.settle("mit.edu", sibling=True)
    await cluster.acquainted(one, two, three)
    poster, client = await cluster.clients(three, one)
    source = await make_stream(poster, three, "s", history_us=0)
    await begin(client, windows(one, source))
    sums = Sums(client, one.name("out"))
    await sums.feed(poster, source, range(250))
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    for hours in range(1, 6):
        at = hours * HOUR_US
        await poster.post_event(source, rows([(at, hours)]), boundary=at + 9)
        await sums.take(at + 9)
    begun = placed(one).current.term.since
    await until(
        lambda: two.up.engine.assignments.all()[0].copy.state.log.start > begun,  # type: ignore[union-attr]
        "the output's beginning is gone",
    )
    await until(lambda: three.state("s").log.start > HOUR_US, "and so is the input's")
    await cluster.restart(two)
    at = 6 * HOUR_US
    await poster.post_event(source, rows([(at, 6)]), boundary=at + SIZE_US)
    await sums.take(at + SIZE_US)
    assert placed(one).current.term.holder == two.peer_id, "it went on there"
    late = [(hours * HOUR_US + SIZE_US - 1, hours) for hours in range(1, 7)]
    assert sums.rows == [*expected(range(250)), *late]


@pytest.mark.parametrize("method", ["activate", "release"])
async def test_a_full_disk_at_the_worker_ends_no_peer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    one, two, client, source, sums = await owner_and_worker(cluster)
    failed: list[str] = []
    original = getattr(Assignments, method)

    async def full(self: Assignments, *arguments: Any) -> None:
        if len(failed) < 3:
            failed.append(method)
            raise StorageFullError("no room")
        await original(self, *arguments)

    monkeypatch.setattr(Assignments, method, full)
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    if method == "release":
        await one.up.engine.mover.take_back(one.name("out"))
    await until(lambda: len(failed) == 3)
    await sums.finish_after_250(client, source)
    await until(lambda: not two.up.engine.assignments.all())


async def test_a_query_that_a_crash_stopped_half_way_has_no_worker(cluster: Cluster) -> None:
    """The peer had stored the stop of the query, but not the return of its task."""
    one, two = await cluster.siblings(2)
    async with one.client() as client:
        await running(client, one)
        await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
        lifecycle = one.up.engine.lifecycle

        async def crash(_: Any) -> None:
            raise ConflictError("killed here")

        lifecycle._stop = crash  # type: ignore[method-assign]
        with pytest.raises(ConflictError):
            await lifecycle.set_status(one.name("q/out"), QueryStatus.STOPPED)
    await cluster.restart(one)
    assert not placed(one).current.term.holder
    await until(lambda: not two.up.engine.assignments.all())


@pytest.mark.cluster(timing=dataclasses.replace(QUICK, leave_s=0.2), patience_s=0.5)
async def test_a_worker_may_leave_an_owner_that_never_takes_its_task_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, client, source, sums = await owner_and_worker(cluster)
    mover = one.up.engine.mover
    await mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    monkeypatch.setattr(mover, "give_back", refuse_all)
    guests, returning = two.up.engine.assignments, two.up.engine.returning
    with pytest.raises(NotAuthorisedError):
        await returning.give_back(one.name("out"))
    assert guests.all(), "it is given time"
    await trio.sleep(0.3)
    with pytest.raises(NotAuthorisedError):
        await returning.give_back(one.name("out"))
    assert not guests.all()
    await sums.finish_after_250(client, source)


async def refuse_all(*_: Any) -> Any:
    raise NotAuthorisedError("no")


async def test_inputs_that_no_peer_counts_are_released(cluster: Cluster) -> None:
    """Peers of one participant send each other no bills."""
    one, two, client, source, sums = await owner_and_worker(cluster)
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    since = placed(one).current.term.since
    for start in range(250, 750, 100):
        await post(client, source, range(start, start + 100))
        await sums.take(start + 99)
    (guest,) = two.up.engine.assignments.all()
    assert guest.copy is not None
    log = guest.copy.inputs[source].log
    await until(lambda: log.start > since, "the worker lets go")


async def test_a_placement_of_the_future_is_refused_and_never_made_after(cluster: Cluster) -> None:
    """A stolen key, or a wrong clock, made the placement: the owner can place its task all the
    same."""
    home, owner, worker = await cluster.siblings(3)
    poster, client = await cluster.clients(home, owner)
    source = await make_stream(poster, home, "s")
    query = windows(home, source)
    await begin(client, query)
    entry = home.state("s").entry
    for term_number in (int((home.wall() + 601) * 1000), 2**62):
        with pytest.raises(InvalidInputError, match="is no term"):
            await assign(owner, worker, assignment(owner, query, [entry], term_number=term_number))
    (placed,) = owner.up.engine.queries.get(query.name).tasks
    placed.tried = int((home.wall() + 100 * 86_400) * 1000)
    record = await client.move_task(home.name("out"), worker.id)
    assert record.term_number <= home.wall() * 1000
    await post(poster, source, range(520))
    await until(lambda: placed.current.term.holder == worker.peer_id)


async def test_consumers_at_the_worker_find_what_they_need_at_the_owner(cluster: Cluster) -> None:
    one, two, client, source, sums = await owner_and_worker(cluster)
    name, mover = one.name("out"), one.up.engine.mover
    log = one.state("out").log
    await mover.move(name, two.peer_id, Deal(giver=one.id))
    await sums.feed(client, source, range(250, 380))
    there = two.up.engine.assignments.of_task(name).copy
    assert there is not None
    consumer = Hold("subscriber", "slow")
    there.state.log.retention.hold(consumer, 379)
    await sums.feed(client, source, range(380, 520))
    await until(lambda: log.upkeep.needed(frozenset()) == 379, "the worker tells its owner")
    await mover.take_back(name)
    await sums.feed(client, source, range(520, 640))
    assert log.upkeep.needed(frozenset()) == 379


@pytest.mark.cluster(patience_s=DEADLINE_S)
async def test_a_task_that_another_owner_released_meanwhile_comes_home(cluster: Cluster) -> None:
    """A takeover was reversed: the owner in between has released the worker."""
    one, two, client, source, sums = await owner_and_worker(cluster)
    name, mover = one.name("out"), one.up.engine.mover
    record = await mover.move(name, two.peer_id, Deal(giver=one.id))
    await sums.feed(client, source, range(250, 380))
    _, placed = one.up.engine.queries.find(name)
    await until(lambda: not mover.notifier.to_notify(placed), "the worker has heard of it")
    await two.up.engine.assignments.release(one.peer_id, Release(name, record.term_number))
    one.up.engine.overlay.clock.set.notify()  # the query has a later term
    await until(lambda: not placed.current.term.holder, "the owner takes it home")
    await sums.finish(client, source, range(380, 520))
