"""Subscribers: each participant has its turn, within the memory, however many subscriptions it has;
tuples are kept for named ones, over restarts, but not without bound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from medusa.engine.streams.log.parts import PART_BYTES
from medusa.engine.streams.reading.delivery import (
    MAX_OF_PARTICIPANT,
    MAX_OF_PEER,
    TURNS,
    Delivery,
    Turns,
)
from medusa.engine.streams.store import subscriptions
from medusa.engine.streams.store.subscriptions import Lease, Leases
from medusa.overlay.errors import BusyError, DamagedError
from medusa.overlay.memory import Memory
from medusa.overlay.rpc import Caller

MANY = 40 * PART_BYTES
"""More memory than all turns take together."""


class Crowd:
    """Subscriptions that each ask for one turn, and keep it until the test lets them continue."""

    def __init__(self, turns: Turns, nursery: trio.Nursery) -> None:
        self._turns = turns
        self._nursery = nursery
        self._inside: list[tuple[str, trio.Event]] = []
        self.given: list[str] = []
        self.most = 0

    async def ask(self, *holders: str) -> None:
        for holder in holders:
            self._nursery.start_soon(self._take, holder)
            await wait_all_tasks_blocked()

    async def _take(self, holder: str) -> None:
        done = trio.Event()
        async with self._turns.turn(holder):
            self._inside.append((holder, done))
            self.given.append(holder)
            self.most = max(self.most, len(self._inside))
            await done.wait()

    async def end_one(self) -> None:
        _, done = self._inside.pop(0)
        done.set()
        await wait_all_tasks_blocked()

    async def end_all(self) -> None:
        while self._inside:
            await self.end_one()


async def test_a_newcomer_does_not_wait_for_all_that_another_has_asked_for(
    nursery: trio.Nursery,
) -> None:
    memory = Memory(MANY)
    crowd = Crowd(Turns(memory), nursery)
    await crowd.ask(*["evil.org"] * 100, "utah.edu")
    assert crowd.given == ["evil.org"] * TURNS
    await crowd.end_one()
    await crowd.end_one()
    assert "utah.edu" in crowd.given
    await crowd.end_all()
    assert Counter(crowd.given) == {"evil.org": 100, "utah.edu": 1}
    assert memory.held == 0


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "c", "end"]), max_size=60))
def test_turns_go_round_and_none_is_lost(steps: list[str]) -> None:
    async def run() -> None:
        memory = Memory(MANY)
        async with trio.open_nursery() as nursery:
            crowd = Crowd(Turns(memory), nursery)
            waiting: Counter[str] = Counter()
            for step in steps:
                before = len(crowd.given)
                if step != "end":
                    waiting[step] += 1
                    await crowd.ask(step)
                elif crowd._inside:
                    await crowd.end_one()
                waiting -= Counter(crowd.given[before:])
                assert not waiting.total() or len(crowd._inside) == TURNS
            await crowd.end_all()
        assert crowd.most <= TURNS
        assert Counter(crowd.given) == Counter(step for step in steps if step != "end")
        assert memory.held == 0

    trio.run(run)


async def test_a_subscription_that_holds_too_much_waits_until_it_is_read(
    nursery: trio.Nursery,
) -> None:
    memory = Memory(8 * PART_BYTES)
    share = memory.share("evil.org")
    share.hold(4 * PART_BYTES)
    crowd = Crowd(Turns(memory), nursery)
    await crowd.ask("evil.org", "utah.edu")
    assert crowd.given == ["utah.edu"]
    await crowd.end_all()
    share.hold(-2 * PART_BYTES)
    await wait_all_tasks_blocked()
    assert crowd.given == ["utah.edu", "evil.org"]
    await crowd.end_all()


async def test_a_subscriber_that_leaves_holds_no_other_up(
    nursery: trio.Nursery,
) -> None:
    memory = Memory(MANY)
    turns = Turns(memory)
    crowd = Crowd(turns, nursery)
    with trio.CancelScope() as scope:
        async with turns.turn("evil.org"):
            await crowd.ask(*["utah.edu"] * (TURNS - 1))
            with trio.CancelScope() as waiting:
                waiting.cancel()
                async with turns.turn("evil.org"):
                    raise AssertionError("there is no turn left")
            await crowd.ask("utah.edu")
            assert len(crowd.given) == TURNS - 1
            scope.cancel()
            await trio.lowlevel.checkpoint()
    await wait_all_tasks_blocked()
    assert len(crowd.given) == TURNS
    await crowd.end_all()
    assert memory.held == 0


def test_subscriptions_of_a_peer_and_of_a_participant_are_limited() -> None:
    delivery = Delivery(Memory(MANY))
    opened = []

    def subscribe(caller: Caller) -> None:
        subscription = delivery.subscription(caller)
        subscription.__enter__()
        opened.append(subscription)

    peers = [Caller("evil.org", bytes([number] * 20)) for number in range(5)]
    for peer in peers[:4]:
        for _ in range(MAX_OF_PEER):
            subscribe(peer)
        with pytest.raises(BusyError, match=r"subscriptions of (peer 0|evil)"):
            subscribe(peer)
    assert len(opened) == MAX_OF_PARTICIPANT
    with pytest.raises(BusyError, match="1024 subscriptions of evil"):
        subscribe(peers[4])
    for _ in range(MAX_OF_PARTICIPANT):
        subscribe(Caller("mit.edu", None))
    with pytest.raises(BusyError, match="1024 subscriptions of client token owner"):
        subscribe(Caller("mit.edu", None))
    subscribe(Caller("mit.edu", None, token="another"))
    subscribe(Caller("utah.edu", b"u" * 20))
    opened[0].__exit__(None, None, None)
    subscribe(peers[0])


STREAM = "medusa://mit.edu/s"


def test_a_lease_survives_a_restart(tmp_path: Path) -> None:
    first = Leases(tmp_path / "leases.json", 60.0)
    first.renew(STREAM, "utah.edu x", "utah.edu", 17, now=1000.0)
    first.save()
    (lease,) = Leases(tmp_path / "leases.json", 60.0).of(STREAM)
    assert (lease.subscriber, lease.boundary, lease.expires) == ("utah.edu x", 17, 1060.0)


def test_a_lease_runs_out_unless_it_is_renewed(tmp_path: Path) -> None:
    state = Leases(tmp_path / "leases.json", 60.0)
    state.renew(STREAM, "a", "mit.edu", 1, now=0.0)
    state.renew(STREAM, "b", "mit.edu", 1, now=0.0)
    state.renew(STREAM, "b", "mit.edu", 2, now=30.0)
    assert [lease.subscriber for lease in state.expire(60.0)] == ["a"]
    assert [lease.subscriber for lease in state.of(STREAM)] == ["b"]


@pytest.mark.parametrize("expires", [1e9, float("inf"), float("nan")])
def test_no_lease_lasts_longer_than_one_renewed_now(tmp_path: Path, expires: float) -> None:
    """A clock that was ahead granted the lease, or another peer claims that."""
    state = Leases(tmp_path / "leases.json", 60.0)
    state.take(Lease(STREAM, "a", "mit.edu", 1, expires))
    assert state.expire(100.0) == []
    assert [lease.expires for lease in state.of(STREAM)] == [160.0]
    assert [lease.subscriber for lease in state.expire(160.0)] == ["a"]


def test_no_participant_takes_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_LEASES_PER_HOLDER", 2)
    state = Leases(tmp_path / "leases.json", 60.0)
    for name in ("a", "b"):
        state.renew(STREAM, name, "greedy.org", 0, now=0.0)
    with pytest.raises(BusyError, match=r"greedy\.org"):
        state.renew(STREAM, "c", "greedy.org", 0, now=0.0)
    state.renew(STREAM, "a", "greedy.org", 5, now=1.0)
    state.renew(STREAM, "c", "modest.org", 0, now=0.0)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "leases.json"
    path.write_text("[{")
    with pytest.raises(DamagedError, match=r"leases\.json"):
        Leases(path, 60.0)
