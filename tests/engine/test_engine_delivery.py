"""Turns among subscribers: everybody's, however many one participant has, and within the memory."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from engine.streams.delivery import MAX_OF_PARTICIPANT, MAX_OF_PEER, TURNS, Delivery, Turns
from engine.streams.parts import PART_BYTES
from overlay.clients import CLIENTS
from overlay.errors import BusyError
from overlay.memory import Memory
from overlay.rpc import Caller

MANY = 40 * PART_BYTES
"""More memory than all turns take."""


class Crowd:
    """Subscriptions that each ask for one turn, and keep it until they are told to go on."""

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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "c", "end"]), max_size=60),
)
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


async def test_who_holds_too_much_waits_until_it_is_read(nursery: trio.Nursery) -> None:
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


async def test_who_leaves_while_it_waits_or_has_its_turn_holds_nobody_up(
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
    with pytest.raises(BusyError, match=f"1024 subscriptions of {CLIENTS}"):
        subscribe(Caller("mit.edu", None))
    subscribe(Caller("utah.edu", b"u" * 20))
    opened[0].__exit__(None, None, None)
    subscribe(peers[0])
