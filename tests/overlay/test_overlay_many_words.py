"""A member that signs many statements costs all others a bounded time at each start."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import medusa.overlay.words
from medusa.overlay.certificates import der
from medusa.overlay.errors import BusyError
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.statements import Entry, Revocation, digest_of, seal_statement
from medusa.overlay.tally import Tally
from medusa.overlay.words import MAX_ENDINGS, MAX_WITNESSES

NOW, DAY = 1_700_000_000.0, 86_400.0
MIT, UTAH, EVIL = (Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "evil.org"))


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """Return a list that gets an item whenever all statements are counted."""
    counted: list[None] = []
    count = Tally._count

    def counting(tally: Tally) -> Tally:
        counted.append(None)
        return count(tally)

    monkeypatch.setattr(Tally, "_count", counting)
    return counted


def cluster() -> Membership:
    membership = Membership.found(MIT, NOW, "cluster", "any")
    membership.admit(MIT, UTAH.certificate, NOW)
    membership.admit(MIT, EVIL.certificate, NOW)
    return membership


def test_revocations_of_peers_that_never_were_cost_no_count(counts: list[None]) -> None:
    membership = cluster()
    for _ in range(50):
        membership.revoke(EVIL, "evil.org", os.urandom(20), now=NOW)
    counts.clear()
    again = Membership(membership.charter, membership.statements())
    assert again.participants() == ("evil.org", "mit.edu", "utah.edu")
    assert len(counts) == 1
    one_by_one = Membership(membership.charter)
    for statement in membership.statements():
        one_by_one.merge([statement], NOW)
        one_by_one.participants()
    assert len(counts) == 2, "nor where they come one after the other"


def test_a_participant_may_revoke_so_many_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(medusa.overlay.words, "MAX_REVOKED_PEERS", 3)
    membership = cluster()
    for _ in range(3):
        membership.revoke(EVIL, "evil.org", os.urandom(20), now=NOW)
    with pytest.raises(BusyError, match=r"evil\.org has revoked 3 peers, the most: revoke evil"):
        membership.revoke(EVIL, "evil.org", os.urandom(20), now=NOW)
    stolen = Identity.issue(UTAH, NOW).peer_id
    membership.revoke(UTAH, "utah.edu", stolen, now=NOW)  # another member may, which is above it
    membership.revoke(MIT, "evil.org", os.urandom(20), now=NOW)
    membership.revoke(EVIL, "evil.org", now=NOW)
    assert membership.participants() == ("mit.edu", "utah.edu")


def test_a_peer_that_witnessed_an_entry_is_revoked_with_its_word() -> None:
    membership = cluster()
    peer = Identity.issue(EVIL, NOW)
    guest = Root.create("guest.org", NOW)
    membership.admit(EVIL, guest.certificate, NOW, NOW + DAY)
    entry = membership.welcome(peer, "guest.org", NOW)
    assert entry is not None
    membership.merge([entry], NOW)
    assert membership.holder("guest.org").digest in membership.tally.entered
    member = membership.holder("evil.org").digest
    said = Revocation(membership.federation, member, peer.peer_id, member, (), NOW, False)
    membership.merge([seal_statement(EVIL.private_key, said)], NOW)
    assert membership.holder("guest.org").digest not in membership.tally.entered


def test_a_membership_has_a_limited_number_of_revocations() -> None:
    membership = cluster()
    member = membership.holder("evil.org").digest
    texts = []
    for size in reversed(range(MAX_ENDINGS + 2)):
        kept = tuple(bytes([number]) * 32 for number in range(size))
        said = Revocation(membership.federation, member, b"", member, kept, NOW, False)
        texts += membership.merge([seal_statement(EVIL.private_key, said)], NOW)
    assert [change.error is None for change in texts] == [True] * MAX_ENDINGS + [False] * 2
    assert f"evil.org has said {MAX_ENDINGS} times" in texts[-1].text


def test_an_entry_is_witnessed_by_so_many_peers_of_a_participant() -> None:
    membership = cluster()
    guest = Root.create("guest.org", NOW)
    admission = membership.admit(EVIL, guest.certificate, NOW, NOW + DAY)
    witness = membership.holder("evil.org").digest
    told = []
    for _ in range(MAX_WITNESSES + 1):
        peer = Identity.issue(EVIL, NOW)
        entry = Entry(
            membership.federation, digest_of(admission), witness, der(peer.certificate), NOW
        )
        told += membership.merge([seal_statement(peer.private_key, entry)], NOW)
    assert [change.error is None for change in told] == [True] * MAX_WITNESSES + [False]
    assert membership.welcome(Identity.issue(MIT, NOW), "guest.org", NOW) is None, "it has entered"
