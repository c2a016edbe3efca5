"""Two participants collude against a third one: they spread false claims about its peers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
from engine_interpreted import interpret
from engine_peers import Cluster, begin, make_stream, open_cluster, rows, until
from hostile_gossip import accuse_for_ever
from moving_tasks import Sums, expected, windows

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.schema import END
from medusa.overlay.gossip.events import Health
from medusa.overlay.gossip.members import Member, Members

ACCUSED_S = 4.0
"""Twenty probe intervals of the `local` preset, and as long as its longest suspicion."""


ATTEMPTS = 5
"""The number of tries of the scenario, since peers may lose each other on a busy machine."""
LOOK_S = 0.02
PAUSE_S = 0.2
"""One probe interval of the `local` preset: if all peers stand still for longer, they may lose one
another."""


async def test_no_peer_takes_over_from_a_primary_that_two_others_call_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpret(monkeypatch)
    died: set[bytes] = set()
    become = Members.become

    def listened(members: Members, peer: bytes, member: Member, health: Health, now: float) -> bool:
        if health is Health.DEAD:
            died.add(peer)
        return become(members, peer, member, health, now)

    monkeypatch.setattr(Members, "become", listened)
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        died.clear()
        async with open_cluster(folder) as cluster:
            pause_s, took_over = await accused(cluster)
            if not died:
                assert not took_over
                return
            assert pause_s > PAUSE_S, died
    raise AssertionError("the machine stood still in every attempt")


async def accused(cluster: Cluster) -> tuple[float, bool]:
    """Let two liars call a primary dead while it computes. The answer is exact. Return the longest
    time for which all peers stopped, in seconds, and whether the secondary took over."""
    pause_s = 0.0

    async def watch() -> None:
        nonlocal pause_s
        while True:
            before = trio.current_time()
            await trio.sleep(LOOK_S)
            pause_s = max(pause_s, trio.current_time() - before)

    cluster.nursery.start_soon(watch)
    mit = await cluster.settle("mit.edu")
    other = await cluster.settle("mit.edu", sibling=True)
    utah = await cluster.settle("utah.edu")
    liars = [await cluster.settle(f"evil{n}.org") for n in range(2)]
    await cluster.acquainted(mit, other, utah, *liars)
    async with mit.client() as client, utah.client() as reader:
        source = await make_stream(client, mit, "s")
        standby = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE, secondary=other.id)
        query = msgspec.structs.replace(windows(mit, source), availability=standby)
        await begin(client, query)
        await until(lambda: other.up.engine.standbys.get(query.name) is not None)
        sums = Sums(reader, mit.name("out"))
        victim = bytes.fromhex(mit.id)
        listeners = [bytes.fromhex(place.id) for place in (other, utah)]
        slander = partial(accuse_for_ever, [each.up for each in liars], victim, listeners)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slander)
            for second in range(int(ACCUSED_S * 10)):
                stimes = range(second * 10, second * 10 + 10)
                table = rows((at, at) for at in stimes)
                await client.post_event(source, table, boundary=stimes[-1])
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        counters = other.up.engine.overlay.gossip.counters
        assert counters.suspected > 3, "they were heard"
        await client.post_event(source, None, end=True)
        await sums.take(END)
    assert sums.rows == expected(range(int(ACCUSED_S * 100)))
    return pause_s, any(running.name == query.name for running in other.up.engine.queries.all())
