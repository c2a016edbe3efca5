"""One participant has many nodes that lie: near a key, near a victim, or everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from dht_network import Member, Network, World, address_of, open_member, open_network, settle
from hostile_nodes import Gang, Lie, ids_anywhere, ids_near
from hypothesis import given
from hypothesis import strategies as st
from kademlia.node import Node
from msgspec import Struct

from medusa.dht.catalog import Kind
from medusa.dht.kademlia_bridge import LOOKUP_S
from medusa.dht.node import MAX_AT_ONCE, NewContacts
from medusa.dht.routing import MOST_ASKED, Shortlist
from medusa.dht.shares import HAND_OVER_BURST, HAND_OVERS_PER_S, chosen, share_of, surplus
from medusa.overlay.errors import ConflictError, NotFoundError
from medusa.overlay.names import ObjectName

pytestmark = pytest.mark.usefixtures("autojump_clock")


KEY = bytes(range(20))
COPIES = 8
EVIL = "evil.edu"

# attacks are worth a test only if there are honest nodes to cut off
HONEST, HOSTILE = 10, 40


@dataclass
class Siege:
    """Honest nodes, each of its own participant, and a gang of nodes of one participant."""

    honest: list[Member]
    gang: Gang

    def holders(self, key: bytes) -> int:
        return sum(bool(member.shelf.held(key)) for member in self.honest)


@asynccontextmanager
async def besieged(
    lie: Lie,
    *,
    honest: int = HONEST,
    hostile: int = HOSTILE,
    around: str = "key",
    first: bool = True,
    slow_s: float = 0.0,
) -> AsyncIterator[Siege]:
    """Give a siege. first: the gang starts before the others. around: the point near which its ids
    are."""
    rng = Random(11)
    async with open_network() as network:
        gang = Gang(network, lie, slow_s)
        ids = [rng.randbytes(20) for _ in range(honest)]
        table = {peer_id: address_of(number) for number, peer_id in enumerate(ids)}
        owners: dict[bytes, str] = {}
        point = {"key": KEY, "a victim": ids[0]}.get(around)
        wanted = ids_anywhere(hostile, rng) if point is None else ids_near(point, hostile, rng)

        def admit() -> None:
            table.update(gang.join(wanted, 0))
            owners.update(dict.fromkeys(wanted, EVIL))

        if first:
            admit()
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(open_member(network, each, table, owners=owners))
                for each in ids
            ]
            if not first:
                await settle()
                admit()
            nursery.start_soon(gang.crowd, [member.address for member in members])
            await settle(40)
            yield Siege(members, gang)
            nursery.cancel_scope.cancel()


async def all_can_be_found(siege: Siege, at_least: int) -> None:
    """Check that enough honest nodes hold what they put, and that every other node finds it in
    time."""
    for number, member in enumerate(siege.honest[:3]):
        key, value = KEY[:-1] + bytes([number]), b"value %d" % number
        began = trio.current_time()
        with suppress(ConflictError):  # a liar may answer that a newer record exists
            await member.node.put(key, value)
        assert trio.current_time() - began < LOOKUP_S + 5
        assert siege.holders(key) >= at_least
        for reader in siege.honest[-4:]:
            began = trio.current_time()
            assert value in await reader.node.get(key)
            assert trio.current_time() - began < LOOKUP_S + 1


@pytest.mark.parametrize("lie", Lie)
async def test_nodes_of_one_participant_around_a_key_neither_hide_nor_swallow_it(lie: Lie) -> None:
    async with besieged(lie) as siege:
        await all_can_be_found(siege, COPIES - share_of(COPIES))


@pytest.mark.parametrize("around", ["a victim", "nothing"])
async def test_nodes_that_fill_a_victims_table_leave_room_for_others(around: str) -> None:
    async with besieged(Lie.EACH_OTHER, around=around) as siege:
        await all_can_be_found(siege, COPIES - share_of(COPIES))
        neighbours = set(siege.honest[0].node.neighbours())
        assert len(neighbours & {member.peer_id for member in siege.honest}) >= COPIES - 1


async def test_nodes_that_come_later_push_no_node_out() -> None:
    async with besieged(Lie.EACH_OTHER, first=False) as siege:
        await all_can_be_found(siege, COPIES - share_of(COPIES))


async def test_few_honest_nodes_among_many_all_hold_what_is_put() -> None:
    for lie in (Lie.EACH_OTHER, Lie.SILENCE):
        async with besieged(lie, honest=3) as siege:
            for number, member in enumerate(siege.honest):
                key = KEY[:-1] + bytes([number])
                await member.node.put(key, b"v")
                assert siege.holders(key) == 3
                for reader in siege.honest:
                    assert await reader.node.get(key) == [b"v"]


async def test_slow_nodes_that_name_ever_nearer_ones_make_no_lookup_late() -> None:
    async with besieged(Lie.CLOSER, hostile=60, slow_s=2.5) as siege:
        await all_can_be_found(siege, COPIES - share_of(COPIES))
        began, before = trio.current_time(), siege.gang.asked
        assert await siege.honest[1].node.get(KEY) == []
        assert trio.current_time() - began <= LOOKUP_S + 0.1
        assert siege.gang.asked - before < 2 * MOST_ASKED * COPIES


class Thing(Struct, frozen=True):
    text: str


THING = Kind("thing", Thing)
NAME = ObjectName.parse("medusa://mit.edu/thing")


@pytest.mark.parametrize("lie", [Lie.OLD, Lie.NEWER, Lie.RUBBISH])
async def test_an_old_version_is_not_shown_and_a_new_one_is_published(
    network: Network, tmp_path: Path, lie: Lie
) -> None:
    """The gang returns an old, validly signed version; the lookup must not end with it."""
    rng = Random(5)
    async with AsyncExitStack() as stack:
        world, gang = World(network, tmp_path), Gang(network, lie)
        homes = [world.home(name) for name in ("mit.edu", "utah.edu", "cmu.edu")]
        wanted = ids_near(THING.under(NAME).key, HOSTILE, rng)
        world.table.update(gang.join(wanted, 0))
        world.owners.update(dict.fromkeys(wanted, EVIL))
        catalogs = [await stack.enter_async_context(home.running()) for home in homes]
        await settle(30)
        mit, *others = catalogs
        for text in ("first", "second", "third"):
            await mit.publish(THING, NAME, Thing(text))
            for each in catalogs:
                assert (await each.lookup(THING, NAME)).value == Thing(text)
        await mit.withdraw(THING, NAME)
        for each in others:
            with pytest.raises(NotFoundError):
                await each.lookup(THING, NAME)


async def test_newcomers_of_one_participant_are_not_given_everything_again_and_again(
    network: Network,
) -> None:
    rng = Random(3)
    ids, gang = ids_anywhere(1, rng), Gang(network, Lie.EACH_OTHER)
    table = {ids[0]: address_of(0)}
    owners: dict[bytes, str] = {}
    async with open_member(network, ids[0], table, owners=owners) as member:
        protocol = member.node._bridge._protocol
        handed: list[str] = []

        async def hand_over(newcomer: Node, _others: list[Node]) -> None:
            handed.append(protocol.participant_of(newcomer))

        protocol._hand_over = hand_over
        wanted = ids_anywhere(100, rng)
        owners.update(dict.fromkeys(wanted, EVIL))
        table.update(gang.join(wanted, 0))
        for _ in range(3):
            await settle(60)
            for peer_id in wanted:  # as if these peers had gone and come back
                protocol.router.remove_contact(Node(peer_id))
        most = HAND_OVER_BURST + 180 * HAND_OVERS_PER_S
        assert HAND_OVER_BURST <= len(handed) <= most
        honest = rng.randbytes(20)
        table[honest] = address_of(1)
        async with open_member(network, honest, table, owners=owners):
            await settle(30)
        assert honest.hex() in handed, "others are not made to wait for it"


# -- the rules by themselves -----------------------------------------------------------------------

NODES = st.lists(st.sampled_from("abcdeZ"), max_size=60)


@given(NODES, st.integers(1, 20))
def test_within_shares_first_and_then_by_distance(owners: list[str], count: int) -> None:
    nodes = list(enumerate(owners))
    picked = chosen(nodes, lambda node: node[1], count)
    assert len(picked) == len(set(picked)) == min(count, len(nodes))
    share = share_of(count)
    within = sum(min(share, n) for n in Counter(owners).values())
    taken = Counter(owner for _, owner in picked)
    if within >= count:
        assert all(n <= share for n in taken.values())
    for owner, n in Counter(owners).items():  # no participant loses its share to another's surplus
        if within < count:
            assert taken[owner] >= min(share, n)
        nearest = [node for node in nodes if node[1] == owner][: taken[owner]]
        assert [node for node in sorted(picked) if node[1] == owner] == nearest


def test_distance_alone_decides_without_crowds() -> None:
    nodes = list(range(100))
    assert chosen(nodes, str, 8) == nodes[:8]
    assert chosen(nodes, lambda _: "one.edu", 8) == nodes[:8], "a federation of one participant"
    assert surplus(nodes[:8], str, 8) == []
    assert surplus(nodes[:8], lambda _: "one.edu", 8) == nodes[:8]


@given(st.integers(0, 100), st.integers(1, 8))
def test_a_lookup_does_not_end_with_the_answers_of_many_quick_peers(evil: int, honest: int) -> None:
    """A lookup ends early only after each near participant has answered or timed out."""
    owners = {Node(bytes([0, n]) * 10): EVIL for n in range(evil)}
    owners |= {Node(bytes([1, n]) * 10): f"{n}.edu" for n in range(honest)}
    by_id = {node.id: owner for node, owner in owners.items()}
    shortlist = Shortlist(Node(bytes(20)), COPIES, lambda node: by_id[node.id])
    shortlist.push(list(owners))
    asked: list[Node] = []
    while now := shortlist.ask(3):
        asked += now
        for node in now:
            if by_id[node.id] == EVIL:
                shortlist.note_answer(node)
    if evil >= COPIES:
        assert not shortlist.speaks(5) or honest < 1
    silent = [node for node in asked if by_id[node.id] != EVIL]
    assert len(silent) == min(honest, len(silent))
    for node in silent:
        shortlist.lost(node)
    while now := shortlist.ask(3):
        for node in now:
            shortlist.note_answer(node)
    assert shortlist.speaks(5) == (len(shortlist.found()) >= 5)


def test_greetings_go_to_all_participants() -> None:
    crowd = [bytes([0, n]) * 10 for n in range(200)]
    few = [bytes([1, n]) * 10 for n in range(10)]
    by_id = dict.fromkeys(crowd, EVIL) | {peer: f"{n}.edu" for n, peer in enumerate(few)}
    contacts = NewContacts(Random(1), by_id.__getitem__)
    greeted = [contacts.due([*crowd, *few], (), now) for now in (0.0, 0.5)]
    assert all(len(each) == MAX_AT_ONCE for each in greeted)
    assert set(few) <= set().union(*greeted), "two rounds are enough for them"
