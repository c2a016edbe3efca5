"""Owners change the readers while everything runs: every peer that serves the stream follows within
seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, received, rows, until

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.view import Last, View
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Subscribe, Tuples
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import BrokenError, NotAuthorisedError
from medusa.overlay.rpc import Duplex
from medusa.tools.client.async_client import AsyncMedusaClient, Subscription

NAMES = ("mit.edu", "utah.edu", "brown.edu")
ALL = ("utah.edu", "brown.edu")


pytestmark = pytest.mark.usefixtures("interpreted")


@dataclass
class Three:
    """mit.edu, whose stream the other two, utah.edu and brown.edu, may read."""

    cluster: Cluster
    mit: Place
    utah: Place
    brown: Place
    clients: dict[str, AsyncMedusaClient]
    stream: str
    posted: int = 0

    async def post(self, *, upto: int | None = None) -> int:
        """Post one more row that passes all filters; return its stime, the boundary."""
        self.posted = self.posted + 1 if upto is None else upto
        client = self.clients["mit.edu"]
        row = rows([(self.posted, self.posted)])
        await client.post_event(self.stream, row, boundary=self.posted)
        await client.flush()
        return self.posted

    async def readers(self, *names: str) -> None:
        await self.clients["mit.edu"].alter_stream(self.stream, Alteration(readers=names))

    async def keep(self, place: Place, path: str, source: str, **asked: Any) -> str:
        """Run a query under that path; return its output."""
        client, out = self.clients[place.participant], place.name(f"{path}/out")
        box = Filter("some", source, (out,), ("value > 0",))
        await begin(client, Query(place.name(path), (box,), **asked))
        return out


async def three(cluster: Cluster, **options: object) -> Three:
    places = await cluster.settle_all(*NAMES)
    clients = {place.participant: await cluster.client(place) for place in places}
    options.setdefault("readers", ALL)
    stream = await make_stream(clients["mit.edu"], places[0], "s", **options)
    return Three(cluster, *places, clients, stream)


@pytest.fixture
async def here(cluster: Cluster) -> Three:
    return await three(cluster)


async def goes_on(subscription: Subscription, here: Three) -> None:
    wanted = await here.post()
    assert await received(subscription, 1) == [(wanted, wanted)]


async def is_ended(subscription: Subscription) -> None:
    with trio.fail_after(DEADLINE_S), pytest.raises(NotAuthorisedError):
        await all_of(subscription)


async def all_of(subscription: Subscription) -> None:
    async for _ in subscription:
        pass


async def all_that_comes(duplex: Duplex) -> None:
    while True:
        await duplex.receive(Tuples)


def task(place: Place, output: str) -> TaskStatus:
    (found,) = [each for each in place.up.engine.queries.task_status() if each.name == output]
    return found


async def test_a_removed_reader_and_its_query_read_no_further(here: Three) -> None:
    out = await here.keep(here.utah, "q", here.stream)
    own = here.clients["utah.edu"].subscribe(here.stream)
    other = here.clients["brown.edu"].subscribe(here.stream, subscriber="brown")
    made = here.clients["utah.edu"].subscribe(out)
    stime = await here.post()
    for each in (own, other, made):
        assert await received(each, 1) == [(stime, stime)]
    await here.readers("brown.edu")
    await is_ended(own)
    await goes_on(other, here)
    await until(lambda: task(here.utah, out).state == "failing", "its query says why")
    assert "utah.edu may not read medusa://mit.edu/s" in task(here.utah, out).reason
    assert here.utah.state("q/out").log.boundary == stime  # earlier tuples stay readable
    with pytest.raises(NotAuthorisedError):
        await here.clients["utah.edu"].receive_events(here.stream, stime)
    await here.readers(*ALL)
    assert await received(made, 1) == [(here.posted, here.posted)]
    assert task(here.utah, out).state != "failing"


async def test_an_owners_word_passes_along_a_chain(here: Three) -> None:
    """brown.edu reads, copies and processes a stream that utah.edu derives from mit.edu's."""
    out = await here.keep(here.utah, "q", here.stream)
    await here.clients["utah.edu"].create_view(View(here.utah.name("v"), here.stream, Last(9)))
    then = await here.keep(here.brown, "r", out)
    reader = here.clients["brown.edu"]
    direct, seen, last = (reader.subscribe(n) for n in (out, here.utah.name("v"), then))
    stime = await here.post()
    for each in (direct, seen, last):
        assert await received(each, 1) == [(stime, stime)]
    await here.readers("utah.edu")
    for each in (direct, seen):
        await is_ended(each)
    await here.post()
    await until(lambda: here.utah.state("q/out").log.boundary == here.posted)
    await until(lambda: task(here.brown, then).state == "failing")
    assert here.brown.state("r/out").log.boundary == stime
    for name in (out, here.utah.name("v")):
        with pytest.raises(NotAuthorisedError):
            await anext(reader.subscribe(name))
        with pytest.raises(NotAuthorisedError):
            await reader.stream_entry(name)
    await here.readers(*ALL)
    assert await received(last, 1) == [(here.posted, here.posted)]


async def test_an_output_loses_readers_when_its_input_loses_declassify(cluster: Cluster) -> None:
    here = await three(cluster, readers=("utah.edu",), declassify=("utah.edu",))
    name = here.utah.name("q/out")
    out = await here.keep(here.utah, "q", here.stream, readers=((name, ("*",)),))
    reader = here.clients["brown.edu"].subscribe(out)
    await goes_on(reader, here)
    await here.clients["mit.edu"].alter_stream(here.stream, Alteration(declassify=()))
    await is_ended(reader)
    await goes_on(here.clients["mit.edu"].subscribe(out, here.posted), here)


async def test_a_worker_that_may_not_read_goes_home_and_so_does_its_owners_task(
    here: Three,
) -> None:
    """brown.edu runs a task of utah.edu: mit.edu first removes brown.edu, and, after the task has
    moved again, utah.edu."""
    out = await here.keep(here.utah, "q", here.stream)
    stime = await here.post()
    await until(lambda: here.utah.state("q/out").log.boundary == stime)
    assignments = here.brown.up.engine.assignments
    assignments.expect = assignments.admit = lambda *_: None
    mover = here.utah.up.engine.mover
    await mover.move(out, here.brown.peer_id, Deal(giver=here.utah.id))
    reader = here.clients["mit.edu"].subscribe(out)
    assert await received(reader, 1) == [(stime, stime)]
    await here.readers("utah.edu")
    await until(lambda: not assignments.all(), "brown.edu is rid of it")
    await goes_on(reader, here)

    await here.readers(*ALL)
    running = here.utah.up.engine.queries.get(here.utah.name("q"))
    await until(lambda: running.stored.inputs[here.stream].stream.readers == ALL)
    await mover.move(out, here.brown.peer_id, Deal(giver=here.utah.id))
    before = here.posted
    await here.readers("brown.edu")
    await until(lambda: not assignments.all(), "brown.edu is rid of it")
    await here.post()
    await until(lambda: task(here.utah, out).state == "failing")
    assert here.utah.state("q/out").log.boundary == before


async def test_a_standby_applies_new_readers_and_keeps_them_after_a_takeover(here: Three) -> None:
    sibling = await here.cluster.settle("utah.edu", sibling=True)
    await here.cluster.acquainted(here.mit, here.utah, here.brown, sibling)
    active = Availability(mode=Mode.ACTIVE_STANDBY)
    out = await here.keep(here.utah, "q", here.stream, availability=active)
    stime = await here.post()
    standbys = sibling.up.engine.standbys

    def stands_by() -> bool:
        state = standbys.rendition(out)
        return state is not None and state.log.boundary >= stime

    await until(stands_by, "it has a standby")
    there = await here.brown.up.engine.overlay.connect(bytes.fromhex(sibling.id))
    async with there.open("subscribe", Subscribe(out, stime)) as duplex:
        await here.readers("utah.edu")
        with trio.fail_after(DEADLINE_S), pytest.raises((NotAuthorisedError, BrokenError)):
            await all_that_comes(duplex)
    await until(lambda: _policy(standbys.rendition(out)) == ("utah.edu",))
    async with there.open("subscribe", Subscribe(out, stime)) as duplex:
        with pytest.raises(NotAuthorisedError):
            await duplex.receive(Tuples)
    await here.cluster.stop(here.utah)
    await until(lambda: sibling.up.engine.queries.occupied(here.utah.name("q")))
    with pytest.raises(NotAuthorisedError):
        await anext(here.clients["brown.edu"].subscribe(out))
    await goes_on(here.clients["mit.edu"].subscribe(out, here.posted), here)


def _policy(state: object) -> tuple[str, ...]:
    (policy,) = state.entry.stream.label
    return policy.readers


async def test_a_named_subscriber_that_may_not_read_is_waited_for_no_longer(here: Three) -> None:
    subscriber = here.clients["brown.edu"].subscribe(here.stream, subscriber="b")
    await goes_on(subscriber, here)
    subscriber.close()
    leases = here.mit.up.engine.store.leases
    assert [each.holder for each in leases(here.stream)] == ["brown.edu"]
    await here.readers("utah.edu")
    await until(lambda: not leases(here.stream))


async def test_a_peer_learns_the_new_readers_after_an_absence(here: Three) -> None:
    """mit.edu removes brown.edu while utah.edu is down."""
    out = await here.keep(here.utah, "q", here.stream)
    await goes_on(here.clients["brown.edu"].subscribe(out), here)
    await here.cluster.stop(here.utah)
    await here.readers("utah.edu")
    await here.cluster.start(here.utah)
    await here.cluster.acquainted(here.utah, here.brown)
    await until(lambda: _policy(here.utah.state("q/out")) == ("utah.edu",))
    with pytest.raises(NotAuthorisedError):
        await anext(here.clients["brown.edu"].subscribe(out))
