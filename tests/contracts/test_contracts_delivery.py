"""Real overlays deliver documents to the peers of both parties and to no others, and retry until it
works."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing
from contracts_parties import DAY, federation, proposal, proposed
from contracts_parties import MIT as OLD_MIT
from hypothesis import given
from hypothesis import strategies as st
from owner import owner_clients
from watched import Watched

from medusa.contracts.book import MAX_WAITING, Book
from medusa.contracts.config import MarketTiming
from medusa.contracts.contract import Contract, State
from medusa.contracts.delivery import (
    DELIVER,
    MAX_DOCUMENTS,
    Contracts,
    Deliver,
    Delivered,
    Holder,
    open_contracts,
)
from medusa.contracts.documents import accept, contract_id, open_document, propose, revoke
from medusa.contracts.outbox import FIRST_WAIT_S, LONGEST_WAIT_S, Outbox
from medusa.overlay.clients import open_client, open_client_listener
from medusa.overlay.connection import Connection
from medusa.overlay.errors import DecodeError
from medusa.overlay.events import wall_clock
from medusa.overlay.gossip.config import Preset
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import save_membership
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.node.node import Overlay, open_overlay
from medusa.overlay.peer_records import PeerRecord
from medusa.overlay.rpc import Service

NOW = wall_clock()
MIT, UTAH, BROWN = (Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "brown.edu"))
TOKEN = b"t" * 32


def admitted() -> Membership:
    membership = Membership.found(MIT, NOW, "demo")
    for root in (UTAH, BROWN):
        membership.admit(MIT, root.certificate, NOW)
    return membership


@dataclass
class Running:
    """A peer that runs. changes: the changes that its listeners received."""

    overlay: Overlay
    contracts: Contracts
    events: Watched
    client: Connection
    changes: list[int] = field(default_factory=list)

    @property
    def book(self) -> Book:
        return self.contracts.book

    @property
    def id(self) -> str:
        return self.overlay.identity.peer_id.hex()

    def states(self) -> dict[str, State]:
        return {c.id: self.book.state(c, NOW) for c in self.book.all()}

    async def deliver(self, *documents: bytes) -> Delivered:
        return await self.client.call(DELIVER, Deliver(documents), Delivered)

    async def knows(self, others: int) -> None:
        await self.events.until(lambda: len(self.overlay.peers.all()) == 1 + others)

    async def has(self, contract: str, state: State) -> None:
        await self.events.until(lambda: self.states().get(contract) is state)


@dataclass
class Peer:
    """The home of one peer."""

    folder: Path
    root: Root
    membership: Membership = field(default_factory=admitted)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.identity = Identity.issue(self.root, NOW)
        save_membership(self.folder, self.membership, NOW)

    @asynccontextmanager
    async def run(self, *bootstrap: Running) -> AsyncIterator[Running]:
        service, events = Service(), Watched()
        addresses = tuple(other.overlay.address for other in bootstrap)
        config = OverlayConfig(bootstrap=addresses, preset=Preset.LOCAL)
        async with (
            open_overlay(
                self.identity, self.membership, self.folder, config, service, events=events
            ) as overlay,
            open_contracts(overlay, self.folder, MarketTiming(), rng=random.Random(1)) as contracts,
            open_client_listener(
                self.identity, owner_clients(TOKEN), service, ("127.0.0.1", 0), events
            ) as address,
            open_client(address, self.root.participant, self.root.certificate, TOKEN) as client,
        ):
            running = Running(overlay, contracts, events, client)

            def changed() -> None:
                running.changes.append(len(running.book.in_force(overlay.clock())))
                events.notify()

            contracts.changed.add(changed)
            yield running


@pytest.fixture
def mit(tmp_path: Path) -> Peer:
    return Peer(tmp_path / "mit", MIT)


@pytest.fixture
def utah(tmp_path: Path) -> Peer:
    return Peer(tmp_path / "utah", UTAH)


def from_mit(**changes: object) -> bytes:
    times = {"valid_from": NOW, "valid_until": NOW + DAY, "proposed_at": NOW}
    return propose(MIT, proposal(admitted(), **times | changes))


async def test_a_contract_over_the_overlay(mit: Peer, utah: Peer, tmp_path: Path) -> None:
    brown, second = Peer(tmp_path / "brown", BROWN), Peer(tmp_path / "utah2", UTAH)
    async with mit.run() as one, utah.run(one) as two, brown.run(one) as three:
        async with second.run(one) as four:
            for peer in (one, two, three, four):
                await peer.knows(3)
            data = from_mit()
            id_ = contract_id(data)
            answer = await one.deliver(data)
            assert answer.reasons == ("",)
            assert answer.news == (f"proposed contract {id_[:8]} with utah.edu, by mit.edu",)
            assert set(answer.holders) == {Holder("utah.edu", two.id), Holder("utah.edu", four.id)}
            assert one.states() == {id_: State.OUR_PROPOSAL}
            assert two.states() == four.states() == {id_: State.THEIR_PROPOSAL}
            assert two.events.told("with mit.edu, by mit.edu")
            # the peer that brought the proposal does not get it back
            bringer = two.overlay.peers.get(one.overlay.identity.peer_id)
            assert bringer is not None
            assert two.contracts._outbox.missing(bringer, two.book.all()) == ()
            # a client at utah.edu accepts: the peers of both parties get the contract, also
            # utah.edu's second peer
            answer = await two.deliver(accept(UTAH, data))
            assert {holder.peer for holder in answer.holders} == {one.id, four.id}
            for peer in (one, two, four):
                assert [c.id for c in peer.contracts.in_force()] == [id_]
                assert peer.changes[-1] == 1
            # the contract is private: the third peer does not get it
            assert three.book.all() == ()
            assert not three.events.told("contract")
        end = revoke(MIT, one.overlay.membership.federation, id_, NOW)
        answer = await one.deliver(end)
        assert Holder("utah.edu", two.id) in answer.holders
        assert two.states() == {id_: State.REVOKED}
        assert two.changes[-1] == 0
        async with second.run(one) as four:  # the peer was away, and gets the revocation now
            await four.has(id_, State.REVOKED)


async def test_a_later_peer_receives_the_contract(mit: Peer, utah: Peer) -> None:
    data = from_mit()
    id_ = contract_id(data)
    async with mit.run() as one:
        answer = await one.deliver(data)
        assert answer.holders == ()
        assert answer.reasons == ("",)
        async with utah.run(one) as two:
            await two.has(id_, State.THEIR_PROPOSAL)
    # a restart forgets the deliveries, which does no harm
    async with mit.run() as one, utah.run(one) as two:
        await two.knows(1)
        answer = await two.deliver(accept(UTAH, data))
        await one.has(id_, State.IN_FORCE)


async def test_files_of_commands_are_read_again(mit: Peer, utah: Peer) -> None:
    data = from_mit()
    async with mit.run() as one, utah.run(one) as two:
        await one.knows(1)
        Book(mit.folder, mit.membership, "mit.edu").merge(data, NOW)
        answer = await one.deliver(data)
        assert one.states() == {contract_id(data): State.OUR_PROPOSAL}
        assert answer.reasons == ("",)
        await two.has(contract_id(data), State.THEIR_PROPOSAL)


async def test_only_parties_may_deliver(mit: Peer, utah: Peer, tmp_path: Path) -> None:
    brown = Peer(tmp_path / "brown", BROWN)
    async with mit.run() as one, utah.run(one) as two, brown.run(one) as three:
        await three.knows(2)
        data = from_mit()
        await one.deliver(data)
        stolen = accept(UTAH, data)
        end = revoke(MIT, mit.membership.federation, contract_id(data), NOW)
        connection = await three.overlay.connect(two.overlay.identity.peer_id)
        answer = await connection.call(DELIVER, Deliver((stolen, end, b"junk")), Delivered)
        assert "brown.edu is no party to it" in answer.reasons[0]
        assert "brown.edu is no party to it" in answer.reasons[1]
        assert "not well formed" in answer.reasons[2]
        assert two.states() == {contract_id(data): State.THEIR_PROPOSAL}
        assert two.events.told("refused a document of brown.edu")
        # a third party does not even learn whether the contract exists
        other = revoke(MIT, mit.membership.federation, "ab" * 16, NOW)
        answer = await connection.call(DELIVER, Deliver((other,)), Delivered)
        assert "brown.edu is no party to it" in answer.reasons[0]
        # a party may not deliver contracts of others
        connection = await one.overlay.connect(two.overlay.identity.peer_id)
        foreign = from_mit(accepter="brown.edu")
        answer = await connection.call(DELIVER, Deliver((foreign, data)), Delivered)
        assert "not ours to keep" in answer.reasons[0]
        assert answer.reasons[1] == ""
        with pytest.raises(DecodeError, match="33 documents"):
            await connection.call(DELIVER, Deliver((b"",) * (MAX_DOCUMENTS + 1)), Delivered)


async def test_refusals_of_the_other_side_are_reported(mit: Peer, utah: Peer) -> None:
    async with mit.run() as one, utah.run(one) as two:
        await one.knows(1)
        for _ in range(MAX_WAITING):
            await one.deliver(from_mit())
        answer = await one.deliver(from_mit())
        assert answer.reasons == ("",)
        assert answer.holders == ()
        (refused,) = answer.refused
        assert "too many proposals wait for utah.edu" in refused
        assert len(two.book.all()) == MAX_WAITING
        assert one.events.told("too many proposals wait for utah.edu")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


async def test_time_and_membership_change_what_is_in_force(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    # without sockets: the virtual clock would continue while they are read
    members, events, clock = admitted(), Watched(), Clock()
    alone = SimpleNamespace(
        identity=Identity.issue(MIT, NOW),
        membership=members,
        peers=SimpleNamespace(all=tuple),
        service=Service(),
        events=events,
        clock=clock,
    )
    Book(tmp_path, members, "mit.edu").merge(accept(UTAH, from_mit(valid_from=NOW + 60)), NOW)
    changes: list[int] = []
    async with open_contracts(cast("Overlay", alone), tmp_path, MarketTiming()) as contracts:
        contracts.changed.add(lambda: changes.append(len(contracts.in_force())))
        await trio.testing.wait_all_tasks_blocked()
        assert contracts.in_force() == ()
        clock.now = NOW + 60
        await events.until(lambda: events.told("with utah.edu in force"))
        clock.now = NOW + DAY
        await events.until(lambda: events.told("with utah.edu expired"))
        clock.now = NOW + 60
        await events.until(lambda: len(changes) == 3)
        members.revoke(MIT, "utah.edu", now=NOW)
        await events.until(lambda: events.told("with utah.edu barred"))
        assert changes == [1, 0, 1, 0]


# -- the outbox ------------------------------------------------------------------------------------


def record(number: int, incarnation: int = 1) -> PeerRecord:
    identity = IDENTITIES[number]
    return PeerRecord(identity.name, identity.certificate, (), incarnation, 0, b"")


IDENTITIES = [Identity.issue(OLD_MIT, NOW) for _ in range(3)]


def contract(number: int) -> Contract:
    data = proposed(federation(), nonce=number.to_bytes(16, "big"))
    document = open_document(data)
    return Contract(document.contract, document.body, data, accepted=False)  # type: ignore[arg-type]


ONE, TWO = contract(1), contract(2)


def test_a_peer_is_called_until_it_holds_everything() -> None:
    outbox = Outbox(random.Random(1))
    peer, wanted = record(0), {record(0): (ONE, TWO)}
    assert outbox.due(wanted, 0.0, 4) == [peer]
    assert outbox.due(wanted, 0.0, 4) == []  # a call to it is under way
    outbox.holds(peer, [ONE])
    outbox.done(peer, 0.0, ok=False)
    assert outbox.missing(peer, (ONE, TWO)) == (TWO,)
    assert outbox.due(wanted, 0.0, 4) == []
    assert FIRST_WAIT_S / 2 <= outbox.wake_at <= FIRST_WAIT_S
    assert outbox.due(wanted, outbox.wake_at, 4) == [peer]
    outbox.holds(peer, [TWO])
    outbox.done(peer, 1.0, ok=True)
    assert outbox.due(wanted, 1e9, 4) == []
    assert outbox.wake_at == float("inf")
    # a contract in a later state must be delivered again
    accepted = replace(ONE, accepted=True)
    assert outbox.missing(peer, (accepted, TWO)) == (accepted,)
    # and a restarted peer gets everything again
    assert outbox.due({record(0, 2): (ONE, TWO)}, 1.0, 4) == [record(0, 2)]


def test_waits_grow_and_end_growing() -> None:
    outbox = Outbox(random.Random(1))
    peer, wanted = record(0), {record(0): (ONE,)}
    now, waits = 0.0, []
    for _ in range(30):
        assert outbox.due(wanted, now, 4) == [peer]
        outbox.done(peer, now, ok=False)
        assert outbox.due(wanted, now, 4) == []
        waits.append(outbox.wake_at - now)
        now = outbox.wake_at
    assert all(LONGEST_WAIT_S / 2 <= wait <= LONGEST_WAIT_S for wait in waits[-10:])
    assert all(FIRST_WAIT_S * 2**at / 2 <= wait for at, wait in enumerate(waits[:8]))
    # if a person waits, the peer is called before its time; so is a peer that has restarted
    assert outbox.due(wanted, now - 1, 4, hurry=True) == [peer]
    outbox.done(peer, now, ok=False)
    assert outbox.due({record(0, 2): (ONE,)}, now, 4) == [record(0, 2)]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.floats(0, 400, allow_nan=False)), max_size=60
    )
)
def test_never_more_at_once_and_everyone_in_the_end(steps: list[tuple[int, bool, float]]) -> None:
    outbox = Outbox(random.Random(1))
    wanted = {record(number): (ONE, TWO) for number in range(3)}
    busy: list[PeerRecord] = []
    now = 0.0
    for number, ok, wait in [*steps, *((n, True, 400.0) for n in range(12))]:
        busy += outbox.due(wanted, now, 2)
        assert len(busy) <= 2
        assert len(set(busy)) == len(busy)
        if busy:
            peer = busy.pop(number % len(busy))
            if ok:
                outbox.holds(peer, wanted[peer])
            outbox.done(peer, now, ok=ok)
        now += wait
    assert all(not outbox.missing(peer, contracts) for peer, contracts in wanted.items())
