"""Push-pull, sans-IO: in any order of exchanges, all peers come to know all statements."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.overlay import exchange as exchange_module
from medusa.overlay.admission_policy import ANY
from medusa.overlay.encoding import encode
from medusa.overlay.events import Events
from medusa.overlay.exchange import MAX_SENT, Exchange, Exchanger, Offer
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.peer_records import Stamp
from medusa.overlay.peers import MAX_PEERS, PeerTable
from medusa.overlay.rpc import MAX_STRUCT_BYTES
from medusa.overlay.statement_store import MAX_REFUSED
from medusa.overlay.words import MAX_KIB

NOW = 1_700_000_000.0
ROOTS = [Root.create(f"p{number}.org", NOW) for number in range(8)]
PEERS = [Identity.issue(root, NOW) for root in ROOTS]


class Side:
    """One peer: its statements, and its half of the exchanges."""

    def __init__(self, number: int, charter: bytes) -> None:
        self.membership = Membership(charter)
        self.peers = PeerTable(PEERS[number], self.membership)
        self.core = Exchange(self.membership, self.peers)
        self.number = number

    def enter(self, statements: tuple[bytes, ...]) -> None:
        self.membership.merge(statements, NOW)
        self.peers.announce([("10.0.0.1", 1000 + self.number)], NOW)

    def call(self, other: Side) -> int:
        """Make one push-pull; return the number of items that were new to one of the two."""
        answer = other.core.answer(self.core.offer())
        changes = self.core.take(answer.statements, answer.records, NOW)
        push = self.core.push(answer)
        if push is not None:
            changes += other.core.take(push.statements, push.records, NOW)
        assert not [change for change in changes if change.error is not None]
        return len(changes)


def federation(sponsors: list[int]) -> list[Side]:
    """Return members: the participant `sponsors[n] % (n + 1)` admitted peer n+1, as its token
    says."""
    founder = Membership.found(ROOTS[0], NOW, admission=ANY)
    sides = [Side(number, founder.charter) for number in range(len(sponsors) + 1)]
    sides[0].enter(())
    for number, pick in enumerate(sponsors, 1):
        sponsor = sides[pick % number]
        sponsor.membership.admit(ROOTS[sponsor.number], ROOTS[number].certificate, NOW)
        sides[number].enter(sponsor.membership.chain_of(ROOTS[number].participant))
    return sides


@settings(max_examples=40)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=7), st.integers(0, 2**32))
def test_all_come_to_know_all(sponsors: list[int], seed: int) -> None:
    rng = random.Random(seed)  # a fair generator: with hypothesis's own two sides might never meet
    sides = federation(sponsors)
    everybody = tuple(sorted(ROOTS[side.number].participant for side in sides))
    for _ in range(40 * len(sides)):
        # a peer may only call a peer that knows its admission: TLS enforces that
        caller, callee = rng.sample(sides, 2)
        if callee.membership.root_of(PEERS[caller.number].participant) is not None:
            caller.call(callee)
    for side in sides:
        assert side.membership.participants() == everybody
        assert {r.addresses[0][1] - 1000 for r in side.peers.all()} == {s.number for s in sides}
    assert all(one.call(two) == 0 for one in sides for two in sides if one is not two)


def test_peers_agree_within_logarithmic_rounds() -> None:
    """Each peer calls one random other per round: 8 peers agree within some log2(8) rounds."""
    rng = random.Random(1)
    sides = federation([0] * 7)
    for side in sides:
        side.membership.merge(sides[0].membership.statements(), NOW)
    rounds = 0
    while any(len(side.peers.all()) < len(sides) for side in sides):
        rounds += 1
        for side in sides:
            side.call(rng.choice([other for other in sides if other is not side]))
    assert rounds <= 6


def test_a_revocation_spreads_and_its_peer_is_not_passed_on() -> None:
    one, two, three = federation([0, 0])
    one.call(two)
    three.call(one)
    one.membership.revoke(ROOTS[0], "p1.org", now=NOW)
    one.call(three)
    assert three.membership.root_of("p1.org") is None
    assert three.peers.get(PEERS[1].peer_id) is None
    assert two.core.push(two.core.answer(one.core.offer())) is None


def test_messages_of_the_fullest_sets_fit() -> None:
    """A member that fills all limits must not stop the others' exchanges."""
    digests = tuple(bytes(32) for _ in range(MAX_KIB + MAX_REFUSED))
    stamps = tuple(Stamp(bytes(20), 2**61, 2**61) for _ in range(MAX_PEERS))
    assert len(encode(Offer(digests, stamps))) <= MAX_STRUCT_BYTES
    one, _ = federation([0])
    strange = tuple(n.to_bytes(32) for n in range(len(digests)))
    records = tuple(Stamp(n.to_bytes(20), 1, 1) for n in range(len(stamps)))
    answer = one.core.answer(Offer(strange, records))
    assert max(len(answer.wanted_statements), len(answer.wanted_records)) < 10_000
    assert 4 * MAX_SENT * 34 / 32 < MAX_STRUCT_BYTES  # a digest and its length


def test_a_flood_of_refusals_does_not_push_out_what_matters() -> None:
    one, _ = federation([0])
    events = Events()
    exchanger = Exchanger(one.core, one.peers, events=events, learned=lambda: None)
    events.note("error", "the disk is full")
    junk = [b"junk" + bytes([n % 256, n // 256]) for n in range(3000)]
    exchanger.take(junk, junk)
    texts = [event.text for event in events.recent()]
    assert "the disk is full" in texts
    assert len(texts) < 50


def test_a_message_stays_small_and_the_rest_follows(monkeypatch: object) -> None:
    one, two = federation([0])
    two.call(one)
    for _ in range(40):
        table = PeerTable(Identity.issue(ROOTS[0], NOW), one.membership)
        one.peers.merge([table.announce([("10.0.0.2", 1)], NOW).data], NOW)
    sizes = []
    old, exchange_module.MAX_SENT = MAX_SENT, 8000  # type: ignore[misc]
    try:
        while two.call(one):
            answer = one.core.answer(two.core.offer())
            sizes.append(len(encode(answer)))
    finally:
        exchange_module.MAX_SENT = old  # type: ignore[misc]
    assert len(two.peers.all()) == 42
    assert len(sizes) > 3
    assert max(sizes) < 10_000


def test_two_roots_for_one_name_do_not_travel_for_ever() -> None:
    """Two members admit them at once: each side keeps its first root, learns of the other, and asks
    no more."""
    one, two = federation([0])
    two.call(one)
    for side, number in ((one, 0), (two, 1)):
        side.membership.admit(ROOTS[number], Root.create("new.org", NOW).certificate, NOW)
    answer = two.core.answer(one.core.offer())
    (change,) = one.core.take(answer.statements, (), NOW)
    assert "second root" in change.text
    push = one.core.push(answer)
    assert push is not None
    assert two.core.take(push.statements, (), NOW)[0].error is not None
    answer = two.core.answer(one.core.offer())
    assert (answer.statements, answer.wanted_statements) == ((), ())


@given(
    st.lists(st.binary(max_size=40), max_size=5),
    st.lists(st.builds(Stamp, st.binary(max_size=20), st.integers(), st.integers()), max_size=5),
)
def test_any_offer_is_answered(statements: list[bytes], stamps: list[Stamp]) -> None:
    (one,) = federation([])
    answer = one.core.answer(Offer(tuple(statements), tuple(stamps)))
    assert set(answer.wanted_statements) == set(statements)
    assert one.core.push(answer) is None


def test_one_participant_with_many_peers_is_not_all_that_is_exchanged_with() -> None:
    owners = ["evil.edu"] * 200 + [f"{number}.edu" for number in range(4)]
    everybody = [
        SimpleNamespace(peer_id=bytes([number]) * 20, participant=owner)
        for number, owner in enumerate(owners)
    ]
    peers = SimpleNamespace(
        identity=SimpleNamespace(peer_id=b"me" * 10),
        all=lambda: everybody,
        by_address=lambda _: None,
    )
    exchanger = Exchanger(
        cast("Exchange", None),
        cast("PeerTable", peers),
        events=Events(),
        learned=lambda: None,
        rng=random.Random(1),
    )
    chosen = Counter(exchanger._choose(()) for _ in range(1000))
    assert all(chosen[peer.peer_id] > 50 for peer in everybody[200:])
    assert len(chosen) > 150, "and all have their turn"
