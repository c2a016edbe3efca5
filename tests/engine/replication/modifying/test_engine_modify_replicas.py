"""A query with a secondary is modified: after any failover the new primary has the same
editions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from engine_peers import Cluster, Place, begin, executor_of, make_stream, until
from modified_queries import (
    LONGER,
    MORE,
    SHORTER,
    Edition,
    ModifiedReader,
    edition,
    modify,
    sieve_and_sums,
    stored,
)
from moving_tasks import post
from replicated_queries import LOSSLESS, Made, asked, believes, cast, die, has, stands_by

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import END
from medusa.engine.reference.executor import ReferenceTask
from medusa.engine.replication.replicas.primaries import Primaries
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import InvalidInputError, UnavailableError
from medusa.overlay.gossip.events import Health
from medusa.tools.client.async_client import AsyncMedusaClient

QUICK = Timing(modified_s=0.05, maintenance_s=0.05, keep_up_s=0.05, parted_s=0.3)
pytestmark = pytest.mark.cluster(timing=QUICK)


def standby_edition(place: Place, query: str) -> int:
    standby = place.up.engine.standbys.get(query)
    return -1 if standby is None else standby.stored.entry.edition


@pytest.mark.parametrize("when", ["before T", "after T"])
@pytest.mark.parametrize("mode", LOSSLESS)
async def test_a_dead_primary_is_succeeded_with_what_was_modified(
    cluster: Cluster, made: Made, mode: Mode, when: str
) -> None:
    home, one, two, reader = await cast(cluster, made)
    async with home.client() as poster, one.client() as owner, reader.client() as client:
        source = await make_stream(poster, home, "s")
        query = asked(sieve_and_sums(one, source), mode, two)
        await begin(owner, query)
        sums = ModifiedReader(client, one.name("sums"), "total", "number")
        await sums.feed(poster, source, range(250))
        await stands_by(one, two, "q")
        await sums.feed(poster, source, range(250, 530))
        at = 1599 if when == "before T" else None
        since = (await modify(owner, query.name, MORE, LONGER, at=at)).since
        assert standby_edition(two, query.name) == 1
        if when == "after T":
            await sums.feed(poster, source, range(530, 1000))
            assert since < 999
        await die(made, one, cluster, home, two, reader)
        await post(poster, source, range(1000 if when == "after T" else 530, 1777))
        await sums.take(1776)
        assert stored(two).entry.edition == 1
        editions = [Edition(query), edition(query, since, MORE, LONGER)]
        async with two.client() as successor:
            later = await modify(successor, query.name, SHORTER, alone=True)
        editions.append(edition(editions[-1].query, later.since, SHORTER))
        await sums.end(poster, source, range(1777, 2500))
    sums.check(editions, source, range(2500))


class Brake:
    """Blocks the jobs of one peer while it is on."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self._off = trio.Event()
        executor, run = executor_of(place), ReferenceTask.run

        async def held(task: ReferenceTask, *arguments: Any) -> Any:
            if task._executor is executor:
                await self._off.wait()
            return await run(task, *arguments)

        monkeypatch.setattr(ReferenceTask, "run", held)

    def release(self) -> None:
        self._off.set()


async def test_a_secondary_that_is_ahead_puts_the_boundary_off(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, one, two, reader = await cast(cluster, made)
    poster, owner, client = await cluster.clients(home, one, reader)
    source = await make_stream(poster, home, "s")
    query = asked(sieve_and_sums(one, source), Mode.ACTIVE_STANDBY, two)
    await begin(owner, query)
    sums = ModifiedReader(client, one.name("sums"), "total", "number")
    await sums.feed(poster, source, range(250))
    await stands_by(one, two, "q")
    await until(ahead(two, query.name, one.name("kept"), 249), "it is as far")
    brake = Brake(one, monkeypatch)
    await post(poster, source, range(250, 730))
    await until(ahead(two, query.name, one.name("kept"), 729), "it is ahead")
    with pytest.raises(InvalidInputError, match=r"from 799 .* on, not from 399"):
        await modify(owner, query.name, MORE, at=399)
    assert stored(one).entry.edition == 0
    assert not stored(one).editions
    done = await modify(owner, query.name, MORE)
    assert done.since == 799
    assert standby_edition(two, query.name) == 1
    brake.release()
    await sums.end(poster, source, range(730, 1500))
    editions = [Edition(query), edition(query, 799, MORE)]
    sums.check(editions, source, range(1500))
    standby = two.up.engine.standbys.get(query.name)
    assert standby is not None
    await until(lambda: standby.boundaries[one.name("sums")] == END, "the secondary, too")
    for stream in (one.name("kept"), one.name("sums")):
        own, other = one.state(stream).log, standby.copy.logs[stream].log
        assert own.reader.read(own.start).table.equals(other.reader.read(other.start).table)


def ahead(place: Place, query: str, stream: str, boundary: int) -> Callable[[], bool]:
    def is_there() -> bool:
        standby = place.up.engine.standbys.get(query)
        return standby is not None and standby.boundaries[stream] >= boundary

    return is_there


async def test_a_modification_without_the_secondary_is_refused(
    cluster: Cluster, made: Made
) -> None:
    home, one, two, reader = await cast(cluster, made)
    poster = await cluster.client(home)
    owner = await cluster.open(one.client(patience_s=1.0))
    client = await cluster.client(reader)
    source = await make_stream(poster, home, "s")
    query = asked(sieve_and_sums(one, source), Mode.ACTIVE_STANDBY, two)
    await begin(owner, query)
    sums = ModifiedReader(client, one.name("sums"), "total", "number")
    await sums.feed(poster, source, range(250))
    await stands_by(one, two, "q")
    await cluster.stop(two)  # and no peer announces that it has stopped
    with pytest.raises(UnavailableError):
        await modify(owner, query.name, MORE)
    assert stored(one).entry.edition == 0
    await sums.feed(poster, source, range(250, 530))
    believes(made, one, reader.id, Health.ALIVE)
    believes(made, one, query.availability.secondary, Health.DEAD)
    await stands_by(one, reader, "q")
    with pytest.raises(UnavailableError, match="it is gone for good, with --alone"):
        await modify(owner, query.name, MORE)
    done = await modify(owner, query.name, MORE, alone=True)
    assert standby_edition(reader, query.name) == 1
    await sums.end(poster, source, range(530, 1500))
    editions = [Edition(query), edition(query, done.since, MORE)]
    sums.check(editions, source, range(1500))


@pytest.mark.cluster(timing=dataclasses.replace(QUICK, sure_s=1.0, parted_s=2.0, ask_s=1e9))
async def test_a_takeover_waits_for_a_peer_that_may_still_believe_to_be_the_secondary(
    cluster: Cluster, made: Made
) -> None:
    """The primary took it for dead and found another secondary, but it does not know. It serves no
    reader when the query is modified."""
    home, one, two, other = await cast(cluster, made)
    async with home.client() as client, one.client(patience_s=0.1) as owner:
        source = await make_stream(client, home, "s")
        query = asked(sieve_and_sums(one, source), Mode.ACTIVE_STANDBY, two)
        await begin(owner, query)
        sums = ModifiedReader(client, one.name("sums"), "total", "number")
        await stands_by(one, two, "q")
        await sums.feed(client, source, range(250))
        assert two.up.engine.copies.rendition(one.name("sums")) is not None
        believes(made, one, other.id, Health.ALIVE)
        believes(made, one, two.id, Health.DEAD)
        await stands_by(one, other, "q")
        with pytest.raises(UnavailableError, match="may still give out results; try again in"):
            await modify(owner, query.name, MORE, alone=True)
        async with one.client() as patient:
            done = await modify(patient, query.name, MORE, alone=True)
        assert two.up.engine.standbys.get(query.name) is not None
        assert two.up.engine.copies.rendition(one.name("sums")) is None
        # the peer looks for the owner, and leaves the query to the living peer
        believes(made, two, one.id, Health.DEAD)
        await until(lambda: two.up.engine.standbys.get(query.name) is None, "it let go of it")
        assert not has(two, query.name)
        await sums.end(client, source, range(250, 900))
    editions = [Edition(query), edition(query, done.since, MORE)]
    sums.check(editions, source, range(900))


async def modified_at_the_primary_alone(
    owner: AsyncMedusaClient, primary: Place, secondary: Place, deaf: pytest.MonkeyPatch
) -> None:
    """Let the primary store the modification while its secondary, which was up to date, receives no
    more messages."""
    query = primary.name("q")

    def knows_all() -> bool:
        standby = secondary.up.engine.standbys.get(query)
        return standby is not None and standby.stored.entry == stored(primary).entry

    await until(knows_all, "its secondary has heard that it runs")

    async def unheard(_self: Primaries, *_: Any) -> int:
        await trio.lowlevel.checkpoint()
        raise UnavailableError("its secondary is deaf")

    deaf.setattr(Primaries, "_stand_by", unheard)
    with pytest.raises(UnavailableError, match="written down"):
        await modify(owner, query, SHORTER, at=333)


@pytest.mark.parametrize("dies", ["primary restarts", "primary is succeeded"])
async def test_a_modification_unknown_to_the_secondary_does_not_count_yet(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """The primary has stored it and cannot send it: no result passes the boundary. After a restart
    it sends it again; if another peer takes over, the query was never modified, and the client, who
    has no answer, asks again."""

    home, one, two, reader = await cast(cluster, made)
    async with home.client() as poster, reader.client() as client:
        source = await make_stream(poster, home, "s")
        query = asked(sieve_and_sums(one, source), Mode.ACTIVE_STANDBY, two)
        async with one.client(patience_s=0.2) as owner:
            await begin(owner, query)
            sums = ModifiedReader(client, one.name("sums"), "total", "number")
            await stands_by(one, two, "q")
            await sums.feed(poster, source, range(250))
            with monkeypatch.context() as deaf:
                await modified_at_the_primary_alone(owner, one, two, deaf)
                await post(poster, source, range(250, 530))
                log = one.state("sums").log
                await until(lambda: log.boundary >= 333, "it comes to the boundary")
                await trio.sleep(0.3)
                assert log.boundary == 333, "and no further"
                assert standby_edition(two, query.name) == 0
                if dies == "primary restarts":
                    await cluster.stop(one)
                else:
                    await die(made, one, cluster, home, two, reader)
        if dies == "primary restarts":
            # the secondary has continued with the old edition, and is past the boundary
            await cluster.start(one)
            await until(lambda: has(one, query.name), "it is back")
            await until(lambda: stored(one).entry.edition == 0, "it is withdrawn")
            voter = one
        else:
            await until(lambda: has(two, query.name), "it is taken over")
            voter = two
        async with voter.client() as owner:
            alone = voter is two
            since = (await modify(owner, query.name, SHORTER, alone=alone)).since
        assert since >= 529
        await sums.end(poster, source, range(530, 1500))
    editions = [Edition(query), edition(query, since, SHORTER)]
    sums.check(editions, source, range(1500))


async def test_a_restarted_primary_notifies_its_secondary_before_it_goes_on(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, with a secondary that is not past the boundary."""
    home, one, two, reader = await cast(cluster, made)
    async with home.client() as poster, reader.client() as client:
        source = await make_stream(poster, home, "s")
        query = asked(sieve_and_sums(one, source), Mode.ACTIVE_STANDBY, two)
        async with one.client(patience_s=0.2) as owner:
            await begin(owner, query)
            sums = ModifiedReader(client, one.name("sums"), "total", "number")
            await stands_by(one, two, "q")
            await sums.feed(poster, source, range(250))
            with monkeypatch.context() as deaf:
                await modified_at_the_primary_alone(owner, one, two, deaf)
                await cluster.stop(one)
        await cluster.start(one)
        await until(lambda: standby_edition(two, query.name) == 1, "it has heard of it")
        async with one.client() as owner:  # the client that asked asks again
            assert (await modify(owner, query.name, SHORTER, at=333)).since == 333
            description = await owner.lookup_object(query.name)
            assert msgspec.json.decode(description.entries["query"])["edition"] == 1
        await sums.feed(poster, source, range(250, 530))
        await die(made, one, cluster, home, two, reader)
        await sums.end(poster, source, range(530, 1500))
    editions = [Edition(query), edition(query, 333, SHORTER)]
    sums.check(editions, source, range(1500))


async def test_a_secondary_of_long_ago_does_not_go_on_with_what_was_modified_since(
    cluster: Cluster, made: Made
) -> None:
    """The peer was away while another became the secondary and the query was modified; when it is
    back, the primary is gone."""
    home, one, two, other = await cast(cluster, made)
    async with home.client() as client:
        source = await make_stream(client, home, "s")
        query = asked(sieve_and_sums(one, source), Mode.ACTIVE_STANDBY, two)
        async with one.client() as owner:
            await begin(owner, query)
            sums = ModifiedReader(client, one.name("sums"), "total", "number")
            await sums.feed(client, source, range(250))
            await stands_by(one, two, "q")
            gone, former = two.id, one.id
            await cluster.stop(two)
            believes(made, one, other.id, Health.ALIVE)
            believes(made, one, gone, Health.DEAD)
            await stands_by(one, other, "q")
            done = await modify(owner, query.name, MORE, alone=True)
        await cluster.stop(one)
        made[bytes.fromhex(gone)].notify(former, Health.DEAD)
        await cluster.start(two)
        await until(lambda: two.up.engine.standbys.get(query.name) is None, "it let go of it")
        assert not has(two, query.name)
        believes(made, home, former, Health.DEAD)
        believes(made, other, former, Health.DEAD)
        await until(lambda: has(other, query.name), "it is taken over")
        await sums.end(client, source, range(250, 900))
    editions = [Edition(query), edition(query, done.since, MORE)]
    sums.check(editions, source, range(900))
