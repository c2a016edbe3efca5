"""Whoever is leader, streams with replicas have each revision once, and answer it the same."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from time import sleep
from typing import Any

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, received, rows, send_rows, until
from leaders_cluster import QUIET_S, new_leader, replicas_of, state_at, take_over, voter
from revised_streams import (
    ClientCopy,
    changes_of,
    counted,
    deletions,
    keyed_stream,
    logged,
    replacements,
    window_of,
)

from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import END
from medusa.engine.streams.config import Timing
from medusa.engine.streams.source.revising import LookedUp, Revising
from medusa.engine.streams.store.store import REPLICATED
from medusa.engine.streams.store.stream_state import Role
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.tools.client.async_client import AsyncMedusaClient, Corrections

pytestmark = [pytest.mark.cluster(leader_silence_s=QUIET_S), pytest.mark.usefixtures("interpreted")]


class Oracle:
    """The stream in plain Python: for each time the value of its newest tuple, and the deleted
    tuples."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}

    async def post(self, client: AsyncMedusaClient, stream: str, times: range) -> None:
        for time in times:
            await client.post_event(stream, rows([(time, time)]))
            self.values[time] = time
        await client.flush()

    async def replace(
        self, client: AsyncMedusaClient, stream: str, pairs: list[tuple[int, int]], **more: int
    ) -> None:
        expected = [n for n, (time, _) in enumerate(pairs) if time not in self.values]
        assert await client.post_revisions(stream, replacements(pairs), **more) == expected
        self.values |= {time: value for time, value in pairs if time in self.values}

    async def delete(self, client: AsyncMedusaClient, stream: str, times: list[int]) -> None:
        expected = []
        for number, time in enumerate(times):
            if self.values.pop(time, None) is None:
                expected.append(number)
        assert await client.post_revisions(stream, deletions(times)) == expected

    def windows(self, size_us: int = 100) -> Counter[tuple[object, ...]]:
        found: dict[int, list[int]] = {}
        for time, value in self.values.items():
            found.setdefault(time // size_us * size_us, []).append(value)
        return Counter(window_of(start, len(v), sum(v), size_us) for start, v in found.items())


def folded(place: Place, stream: str) -> dict[int, int]:
    """Return the rows of the stream from a peer's own logs, with all revisions applied, by
    value."""
    home = state_at(place, stream).leader
    assert home is not None
    assert home.logs.revisions is not None
    found: Counter[tuple[int, int]] = Counter()
    epoch = home.logs.stream.reader.read(home.logs.stream.start)
    after = home.logs.stream.start
    while (epoch := home.logs.stream.reader.read(after)) is not None:
        columns = (epoch.table.column(name).to_pylist() for name in ("stime", "value"))
        found += Counter(zip(*columns, strict=True))
        after = epoch.upto
    after = home.logs.revisions.start
    while (epoch := home.logs.revisions.reader.read(after)) is not None:
        for _, kind, time, value in changes_of(epoch.table):
            found[time, value] += 1 if kind == "INSERTION" else -1
        after = epoch.upto
    assert set(found.values()) <= {0, 1}
    return {time: value for (time, value), count in found.items() if count}


async def known(place: Place, stream: str) -> None:
    """Wait until the catalog names the leader: a new leader takes posts before that."""
    with trio.fail_after(DEADLINE_S):
        while True:
            with suppress(NotFoundError):
                await place.up.engine.directory.entry(stream)
                return
            await trio.sleep(0.02)


async def test_leader_after_leader_dies_between_revisions(cluster: Cluster) -> None:
    """A query elsewhere, and a client that asks for corrections, follow the present leader."""
    peers = await cluster.siblings(4)
    async with peers[0].client() as client:
        stream = await keyed_stream(client, peers[0], k_safety=1)
    voters = voter(peers[0], stream).election.ballot.voters
    places = [place for place in peers if place.id in voters]
    (side,) = [place for place in peers if place.id not in voters]
    oracle = Oracle()
    client = await cluster.client(side)
    query = Query(side.name("q"), (counted("sums", stream, side.name("sums")),))
    await begin(client, query)
    sums, source = ClientCopy(), ClientCopy()
    of_sums = client.follow(side.name("sums"), Corrections.REVISIONS)
    of_source = client.follow(stream, Corrections.UNDO)
    for at in (0, 100, 200):
        home = await new_leader(places, stream)
        await oracle.post(client, stream, range(at, at + 100, 10))
        await oracle.replace(client, stream, [(at, 1000), (at + 5, 1)])
        await oracle.delete(client, stream, [at + 10, at + 10, max(0, at - 70)])
        await cluster.stop(home)
        await oracle.replace(client, stream, [(at + 20, 2000), (at + 10, 7), (at, 1001)])
        await oracle.delete(client, stream, [max(0, at - 60), at + 20])
        await cluster.start(home)
    await send_rows(client, stream, end=True)
    await sums.follow(of_sums, END)
    await source.follow(of_source, END)
    assert sums.tuples == oracle.windows()
    assert {row[0]: row[-1] for row in source.tuples} == oracle.values
    members = voter(await new_leader(places, stream), stream).election.ballot.term
    assert members is not None
    for place in [place for place in places if place.id in members.members]:
        await until(lambda p=place: state_at(p, stream).log.boundary == END)
        assert folded(place, stream) == oracle.values


async def test_a_retry_at_the_next_leader_gets_the_same_answer(
    cluster: Cluster, places: list[Place]
) -> None:
    """Another leader may have received the journal without the segment that had the revisions."""
    first = places[0]
    async with places[1].client(producer="me") as client:
        stream = await keyed_stream(client, first, k_safety=1, leader=first.id)
        await client.post_event(stream, rows([(10, 1), (20, 2)]), boundary=30)
        assert await client.post_revisions(stream, deletions([10, 11])) == [1]
        assert await client.post_revisions(stream, deletions([12]), boundary=40) == [0]
    for turn in range(3):
        home = await new_leader(places, stream)
        await until(lambda h=home: state_at(h, stream).log.boundary >= 40)
        await cluster.stop(home)
        await new_leader([place for place in places if place is not home], stream)
        await cluster.start(home)
        async with places[turn].client(producer="me") as client:
            await client.post_event(stream, rows([(10, 1), (20, 2)]), boundary=30)
            assert await client.post_revisions(stream, deletions([10, 11])) == [1]
            assert await client.post_revisions(stream, deletions([12]), boundary=40) == [0]
            poster = await client.poster(stream)
            assert (poster.rows, poster.duplicates) == (0, 3)
    home = await new_leader(places, stream)
    assert folded(home, stream) == {20: 2}


async def test_the_leader_serves_the_revisions(cluster: Cluster, places: list[Place]) -> None:
    """The test asks any peer, also one that was the leader until now."""
    client = await cluster.client(places[0])
    first = places[0]
    stream = await keyed_stream(client, first, k_safety=1)
    oracle = Oracle()
    await oracle.post(client, stream, range(0, 50, 10))
    await known(first, f"{stream}/revisions")
    subscription = client.subscribe(f"{stream}/revisions")
    await oracle.delete(client, stream, [10])
    await oracle.post(client, stream, range(50, 60, 10))
    assert len(await received(subscription, 1)) == 1
    # otherwise the boundary waits for the idle timeout of its producer
    await (await client.poster(stream)).leave()
    (replica,) = replicas_of(places, stream, first)
    store = replica.up.engine.store
    name = f"{stream}/revisions"
    await until(lambda: store.get(name, REPLICATED) is not None, "the replica has them")
    assert store.serving(name) is None
    state = store.get(name, REPLICATED)
    assert state is not None
    assert state.role is Role.REPLICA
    await take_over(replica, stream, without=first.id)
    await until(lambda: state.role is Role.REVISIONS and store.serving(name) is state, "it leads")
    await until(lambda: first.up.engine.store.serving(name) is None, "it hears")
    async with places[2].client() as there:
        await oracle.delete(there, stream, [20, 21])
        await oracle.replace(there, stream, [(30, 3)], boundary=70)
    with trio.fail_after(DEADLINE_S):
        assert await received(subscription, 3) != []
    async with places[1].client() as there:
        found = await received(there.subscribe(name), 4)
    assert [time for time, _ in found] == [40, 50, 50, 50]


async def test_revisions_are_acknowledged_only_once_settled(
    cluster: Cluster, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await cluster.client(places[0])
    first = places[0]
    stream = await keyed_stream(client, first, k_safety=1)
    await send_rows(client, stream, [(10, 1), (20, 2)], boundary=30)
    held = trio.Event()
    (replica,) = replicas_of(places, stream, first)
    done = trio.Event()

    async def revise() -> None:
        assert await client.post_revisions(stream, deletions([10]), boundary=50) == []
        done.set()

    home = state_at(first, stream).leader
    assert home is not None
    read = home.sources.read

    async def later(*args: object) -> object:
        await held.wait()
        return await read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(home.sources, "read", later)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(revise)
        await until(lambda: home.boundary == 50, "it is journaled here")
        await trio.sleep(0.2)
        assert not done.is_set()
        assert home.logs.revisions is not None
        assert home.logs.revisions.boundary <= 30, "and nobody has seen it"
        held.set()
    assert done.is_set()
    await until(lambda: logged_at(replica, stream) == [(31, "DELETION", 10, 1)])


def logged_at(place: Place, stream: str) -> list[tuple[int, str, int, int]]:
    log = state_at(place, stream).leader.logs.revisions  # type: ignore[union-attr]
    assert log is not None
    epoch = log.reader.read(log.start)
    return [] if epoch is None else changes_of(epoch.table)


async def test_a_leader_that_looks_long_for_a_tuple_stays_leader(
    cluster: Cluster, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await cluster.client(places[0])
    first = places[0]
    stream = await keyed_stream(client, first, k_safety=1)
    look_up = Revising.look_up
    term_number = voter(first, stream).election.number

    def slowly(*args: Any) -> LookedUp:
        sleep(5 * QUIET_S)
        return look_up(*args)

    monkeypatch.setattr(Revising, "look_up", slowly)
    await client.post_event(stream, rows([(10, 1)]))
    assert await client.post_revisions(stream, deletions([10]), boundary=20) == []
    assert voter(first, stream).is_leader
    assert voter(first, stream).election.number == term_number


async def test_a_witness_that_becomes_leader_finds_the_whole_history(
    cluster: Cluster, places: list[Place]
) -> None:
    """The leader that recruits the witness sends it the logs, also that of the revisions."""
    first = places[0]
    oracle = Oracle()
    async with first.client() as client:
        stream = await keyed_stream(client, first, k_safety=1)
        (replica,) = replicas_of(places, stream, first)
        (witness,) = [place for place in places if place not in (first, replica)]
        await oracle.post(client, stream, range(0, 200, 10))
        await oracle.delete(client, stream, [10, 20])
        await oracle.replace(client, stream, [(30, 3), (40, 4)], boundary=250)
        await until(lambda: state_at(first, stream).log.boundary == 250)
        await cluster.stop(replica)
        await until(lambda: witness in replicas_of(places, stream, first), "it is recruited")
    await cluster.start(replica)
    await cluster.stop(first)
    home = await new_leader(places, stream)
    async with home.client() as client:
        await oracle.delete(client, stream, [10, 30, 50, 20])
        await oracle.replace(client, stream, [(40, 5), (30, 6)])
        await send_rows(client, stream, end=True)
    await until(lambda: state_at(home, stream).log.boundary == END)
    assert folded(home, stream) == oracle.values


@pytest.mark.cluster(timing=Timing(maintenance_s=0.02))
async def test_a_replica_that_was_away_beyond_the_history_begins_anew(
    cluster: Cluster, places: list[Place]
) -> None:
    """The leader's history begins later than the replica's logs end."""
    first = places[0]
    async with first.client() as client:
        stream = await keyed_stream(client, first, k_safety=1, history_us=100)
        (replica,) = replicas_of(places, stream, first)
        (witness,) = [place for place in places if place not in (first, replica)]
        oracle = Oracle()
        await oracle.post(client, stream, range(0, 30, 10))
        await oracle.delete(client, stream, [10])
        await until(lambda: state_at(first, stream).log.boundary >= 18)
        await cluster.stop(replica)
        await until(lambda: witness in replicas_of(places, stream, first), "it is recruited")
        await client.post_event(stream, None, boundary=500)
        home = state_at(first, stream).leader
        assert home is not None
        await until(lambda: home.logs.stream.boundary == 500)
        # in one post: a preceding empty epoch would merge with the epoch that the test drops
        await client.post_event(stream, rows([(600, 600), (700, 700)]))
        oracle.values |= {600: 600, 700: 700}
        await until(lambda: home.logs.stream.start == 500, "it lets go")
        await oracle.post(client, stream, range(1000, 1050, 10))
        await oracle.delete(client, stream, [1010])
        await oracle.post(client, stream, range(1050, 1060, 10))
        await until(lambda: home.logs.stream.boundary == 1049)
        await cluster.start(replica)
        await cluster.stop(witness)
        await until(lambda: replica in replicas_of(places, stream, first), "it is back")
        assert state_at(replica, stream).log.start >= 500
    await cluster.start(witness)
    await cluster.stop(first)
    leader_now = await new_leader([replica, witness], stream)
    client = await cluster.client(leader_now)
    await oracle.delete(client, stream, [1020, 1010])
    # one of the revisions is beyond the history
    assert await client.post_revisions(stream, deletions([20])) == [0]


async def test_revisions_refused_with_replicas(cluster: Cluster, places: list[Place]) -> None:
    client = await cluster.client(places[0])
    stream = await keyed_stream(client, places[0], k_safety=1)
    await client.post_event(stream, rows([(10, 1)]), end=True)
    with pytest.raises(InvalidInputError, match="has ended"):
        await client.post_revisions(stream, deletions([10]))
    assert logged(places[0], f"{stream}/revisions", REPLICATED).num_rows == 0
