"""Nodes find each other, survive churn and floods, and end cleanly, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from random import Random

import pytest
import trio
import trio.testing
import trio_asyncio
from dht_network import Member, Network, address_of, open_member, open_members, open_network, settle
from hypothesis import given, settings
from hypothesis import strategies as st
from kademlia.node import Node

from medusa.dht import wire
from medusa.dht.config import DhtConfig
from medusa.dht.shares import STORE_BURST, STORES_PER_S
from medusa.overlay.errors import (
    BusyError,
    ClosedError,
    DecodeError,
    UnavailableError,
    UntrustedError,
)

pytestmark = pytest.mark.usefixtures("autojump_clock")


KEY = bytes(range(20))


async def test_every_node_finds_what_any_node_put(network: Network) -> None:
    async with open_members(network, 40) as members:
        for number, member in enumerate(members):
            assert await member.node.put(bytes([number]) * 20, b"%d" % number) == 8
        for member in members:
            number = Random(member.peer_id).randrange(40)
            assert await member.node.get(bytes([number]) * 20) == [b"%d" % number]
        assert await members[0].node.get(KEY) == []


async def test_a_value_is_on_the_nearest_nodes(network: Network) -> None:
    async with open_members(network, 40) as members:
        await members[0].node.put(KEY, b"v")
        near = sorted(members, key=lambda m: int.from_bytes(m.peer_id) ^ int.from_bytes(KEY))
        holders = [member for member in members if member.shelf.values]
        assert {m.peer_id for m in holders} == {m.peer_id for m in near[:8]}


async def test_a_dead_node_delays_one_lookup_and_then_none(network: Network) -> None:
    async with open_members(network, 9) as members:
        reader = members[0]
        for member in members[1:4]:
            network.down.add(member.address)
        start = trio.current_time()
        assert await reader.node.get(KEY) == []
        assert trio.current_time() - start >= 3.0
        start = trio.current_time()
        assert await reader.node.get(KEY) == []
        assert trio.current_time() - start < 0.5
        assert len(reader.node.neighbours()) == 5


async def test_a_lookup_does_not_wait_for_dead_nodes_once_enough_answered(network: Network) -> None:
    async with open_members(network, 12) as members:
        await members[0].node.put(KEY, b"v")
        near = sorted(members, key=lambda m: int.from_bytes(m.peer_id) ^ int.from_bytes(KEY))
        network.down.update(member.address for member in near[:3])
        start = trio.current_time()
        assert await near[-1].node.get(KEY) == [b"v"]
        assert trio.current_time() - start < 1.0


async def test_a_returning_node_is_met_again(network: Network) -> None:
    async with open_members(network, 3) as members:
        network.down.add(members[2].address)
        await members[0].node.get(KEY)
        assert len(members[0].node.neighbours()) == 1
        network.down.clear()
        await settle(62)
        assert len(members[0].node.neighbours()) == 2


async def test_a_moved_node_is_reached_at_its_new_address(network: Network) -> None:
    """The bare package keeps the first address of an id until the node is evicted."""
    ids = [b"a" * 20, b"b" * 20]
    table = {peer_id: address_of(n) for n, peer_id in enumerate(ids)}
    async with open_member(network, ids[0], table) as stays:
        async with open_member(network, ids[1], table):
            await settle()
            assert stays.node.neighbours() == [ids[1]]
        table[ids[1]] = address_of(77)
        async with open_member(network, ids[1], table) as moved:
            start = trio.current_time()
            await stays.node.put(KEY, b"v")
            assert moved.shelf.held(KEY) == [b"v"]
            assert trio.current_time() - start < 0.5


async def test_refusals_keep_their_class_and_reason(network: Network) -> None:
    async with open_members(network, 3) as members:
        for member in members:
            member.shelf.refusal = BusyError("no room for more")
        with pytest.raises(BusyError, match="no room for more"):
            await members[0].node.put(KEY, b"v")
        members[1].shelf.refusal = None
        assert await members[0].node.put(KEY, b"v") == 1
        members[1].shelf.refusal = UntrustedError("bad signature")
        members[2].shelf.refusal = None
        assert await members[0].node.put(KEY, b"v") == 1


async def test_ids_of_unknown_nodes_are_not_followed(network: Network) -> None:
    """A liar may name any ids; nodes take addresses from the peer table alone."""
    async with open_members(network, 3) as (reader, liar, _):
        made_up = [bytes([n]) * 20 for n in range(20)]
        liar.node._bridge._protocol._nearest = lambda _key, _asker: made_up
        before = network.sent
        assert await reader.node.get(KEY) == []
        assert network.sent - before == 4
        assert not set(reader.node.neighbours()) & set(made_up)


async def test_a_flood_of_questions_is_answered_and_leaves_nothing_waiting(
    network: Network,
) -> None:
    async with open_members(network, 2) as (first, second):
        await settle(1)
        ping = wire.encode_request(KEY, wire.Ping())
        for _ in range(5000):
            network.inject(second.peer_id, first.address, ping)
        assert first.node._bridge._loop._q_send.statistics().current_buffer_used == 0
        assert await first.node.put(KEY, b"v") == 2


async def test_a_peer_that_stores_too_often_is_refused_and_the_others_are_not(
    network: Network,
) -> None:
    async with open_members(network, 3) as (first, hostile, honest):

        def store(member: Member, number: int) -> None:
            question = wire.Store(KEY, b"%d" % number)
            network.inject(member.peer_id, first.address, wire.encode_request(KEY, question))

        for number in range(STORE_BURST + 200):
            store(hostile, number)
        assert len(first.shelf.held(KEY)) == STORE_BURST
        assert first.node.counts["too many stores"] == 200
        store(honest, 5000)
        assert len(first.shelf.held(KEY)) == STORE_BURST + 1
        await settle(1.01)
        for number in range(6000, 6200):
            store(hostile, number)
        assert len(first.shelf.held(KEY)) == STORE_BURST + 1 + STORES_PER_S
        answers: list[object] = []
        network.attach(
            ("192.0.2.1", 9), lambda _p, _a, data: answers.append(wire.decode_frame(data).message)
        )
        store(hostile, 7000)
        await settle(1)
        assert ("busy", True) in {(a.code, "too many" in a.reason) for a in answers}


@pytest.mark.parametrize("copies", [1, 2, 5, 20])
async def test_a_newcomer_gets_our_records_that_it_should_hold(
    network: Network, copies: int
) -> None:
    rng = Random(copies)
    ids = [rng.randbytes(20) for _ in range(12)]
    keys = [rng.randbytes(20) for _ in range(300)]

    def ranked(key: bytes, node_ids: list[bytes]) -> list[bytes]:
        return sorted(node_ids, key=lambda i: int.from_bytes(i) ^ int.from_bytes(key))

    own, newcomer, others = ids[0], ids[1], ids[2:]
    wanted = [
        key
        for key in keys
        if ranked(key, [own, *others])[0] == own
        and newcomer in ranked(key, [own, newcomer, *others])[:copies]
    ]
    config = DhtConfig(copies=copies, quorum=copies)
    compared: list[bytes] = []
    handed: list[bytes] = []
    async with open_member(network, own, {own: address_of(0)}, config) as member:
        for key in keys:
            member.shelf.accept(key, b"value")
        protocol = member.node._bridge._protocol
        falls_to = protocol._falls_to

        def counted(new: Node, target: Node, rest: list[Node]) -> bool:
            compared.append(target.id)
            return falls_to(new, target, rest)

        async def ask(_node: Node, message: wire.Store) -> wire.Stored:
            handed.append(message.key)
            return wire.Stored()

        protocol._falls_to, protocol.ask = counted, ask
        work = protocol._hand_over(Node(newcomer), [Node(other) for other in others])
        await member.node._bridge._run(work)
    assert sorted(handed) == sorted(wanted)
    assert len(compared) < len(keys) / 3  # all other keys were compared at once


async def test_a_full_bucket_keeps_its_old_nodes_and_calms_down(network: Network) -> None:
    config = DhtConfig(copies=2, quorum=2)
    async with open_members(network, 30, config) as members:
        await settle(120)
        before = network.sent
        await settle(120)
        # only greetings of the few nodes that did not fit the buckets
        assert network.sent - before < 30 * 30 * 2
        assert all(len(member.node.neighbours()) >= 4 for member in members)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_nothing_is_left_when_a_node_closes_in_the_middle(cancelled: bool) -> None:
    outcomes: list[object] = []
    async with (
        open_network() as network,
        trio.open_nursery() as nursery,
        open_members(network, 5) as members,
    ):
        loops = [member.node._bridge._loop for member in members]
        network.down.update(member.address for member in members[1:])

        async def get() -> None:
            try:
                await members[0].node.get(KEY)
            except ClosedError as error:
                outcomes.append(error)
            except trio.Cancelled:
                outcomes.append("cancelled")
                raise

        nursery.start_soon(get)
        await trio.sleep(0.5)
        if cancelled:
            nursery.cancel_scope.cancel()
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], ClosedError) != cancelled
    assert all(loop.is_closed() for loop in loops)
    assert all(not asyncio.all_tasks(loop) for loop in loops)
    with pytest.raises(ClosedError):
        await members[0].node.get(KEY)
    network.inject(members[1].peer_id, members[0].address, b"late")
    gc.collect()  # a task left behind would warn, and warnings are errors


async def test_a_cancelled_lookup_leaves_no_question_behind(network: Network) -> None:
    async with open_members(network, 3) as members:
        network.down.update(member.address for member in members[1:])
        with trio.move_on_after(0.2) as scope:
            await members[0].node.get(KEY)
        assert scope.cancelled_caught
        assert members[0].node._bridge._protocol._calls == {}
        network.down.clear()
        assert await members[0].node.put(KEY, b"v") == 3
        assert members[0].events.recent() == ()


async def test_errors_inside_the_loop_are_noted_and_do_not_end_the_program(
    network: Network,
) -> None:
    async with open_members(network, 2) as (first, second):

        async def fails() -> None:
            raise RuntimeError("a slip of ours")

        first.node._bridge._loop.call_soon(first.node._bridge._protocol._start, fails())
        await settle(1)
        gc.collect()
        await settle(1)
        assert "a slip of ours" in first.events.recent()[-1].text
        assert await second.node.put(KEY, b"v") == 2


async def test_the_callers_tasks_see_no_asyncio_loop(network: Network) -> None:
    async with open_members(network, 2):
        assert trio_asyncio.current_loop.get() is None


async def test_nodes_that_cannot_answer_give_unavailable_within_the_retries(
    network: Network,
) -> None:
    table = {b"a" * 20: address_of(1), b"b" * 20: address_of(2)}
    async with open_member(network, b"a" * 20, table) as alone:
        start = trio.current_time()
        with pytest.raises(UnavailableError):
            await alone.node.get(KEY)
        assert trio.current_time() - start <= 3.6


async def test_a_peer_that_is_known_to_be_dead_is_not_waited_for(network: Network) -> None:
    one, two = b"a" * 20, b"b" * 20
    table = {one: address_of(1), two: address_of(2)}
    async with open_member(network, one, table) as asks, open_member(network, two, table):
        await settle()
        network.down.add(table[two])

        async def hear_that_it_is_dead() -> None:
            await trio.sleep(0.3)
            del table[two]

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_that_it_is_dead)
            await asks.node.get(KEY)
        assert trio.current_time() - start <= 1.1  # before the next try of the request under way
        start = trio.current_time()
        await asks.node.get(KEY)
        assert trio.current_time() == start


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=80), max_size=20))
def test_random_bytes_never_end_the_program(datagrams: list[bytes]) -> None:
    async def receive_all() -> None:
        async with open_network() as network, open_members(network, 2) as (first, second):
            for data in datagrams:
                network.inject(second.peer_id, first.address, data)
                network.inject(second.peer_id, first.address, b"\x00" + bytes(20) + data)
            await settle(1)
            assert await first.node.put(KEY, b"v") == 2

    trio.run(receive_all, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_decode_error_is_what_the_guard_catches() -> None:
    with pytest.raises(DecodeError):
        wire.decode_frame(b"")
