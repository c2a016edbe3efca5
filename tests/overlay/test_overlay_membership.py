"""Membership: the chain of verification, refusals, and independence of the order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.overlay.admission_policy import ANY
from medusa.overlay.certificates import der
from medusa.overlay.encoding import encode
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    DamagedError,
    DecodeError,
    NotFoundError,
    UntrustedError,
)
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import load_membership, save_membership, store_statements
from medusa.overlay.signing import Signed, signed
from medusa.overlay.statement_store import MAX_REFUSED
from medusa.overlay.statements import (
    STATEMENT_DOMAIN,
    Admission,
    Charter,
    Revocation,
    digest_of,
    open_statement,
    seal_charter,
    seal_statement,
)
from medusa.overlay.words import MAX_CHAIN

NOW = 1_700_000_000.0
MIT, UTAH, BROWN, OREGON, EVIL = (
    Root.create(name, NOW)
    for name in ("mit.edu", "utah.edu", "brown.edu", "oregon.edu", "evil.org")
)
MIT_PEER, UTAH_PEER, BROWN_PEER, OREGON_PEER = (
    Identity.issue(root, NOW) for root in (MIT, UTAH, BROWN, OREGON)
)


def founded() -> Membership:
    return Membership.found(MIT, NOW, "demo", ANY)


def chain() -> Membership:
    """Return a federation that mit.edu founded; mit.edu admitted utah.edu, which admitted
    brown.edu."""
    membership = founded()
    membership.admit(MIT, UTAH.certificate, NOW)
    membership.admit(UTAH, BROWN.certificate, NOW)
    return membership


def believes(membership: Membership, peer: Identity, now: float = NOW) -> bool:
    try:
        name = membership.authenticate(der(peer.certificate), now)
    except UntrustedError:
        return False
    assert name == peer.name
    return True


def copy(membership: Membership) -> Membership:
    return Membership(membership.charter, membership.statements())


def refused(membership: Membership, statement: bytes) -> Exception | None:
    (change,) = membership.merge([statement], NOW)
    return change.error


def test_the_chain_admits() -> None:
    membership = copy(chain())
    assert membership.participants() == ("brown.edu", "mit.edu", "utah.edu")
    assert all(believes(membership, peer) for peer in (MIT_PEER, UTAH_PEER, BROWN_PEER))
    assert not believes(membership, OREGON_PEER)
    assert membership.root_of("utah.edu") == UTAH.certificate
    assert membership.root_of("oregon.edu") is None
    assert set(membership.roots()) == {MIT.certificate, UTAH.certificate, BROWN.certificate}


def test_refusals_have_reasons() -> None:
    membership = founded()
    stranger = Identity.issue(Root.create("mit.edu", NOW), NOW)
    for certificate, now, reason in [
        (OREGON_PEER, NOW, r"oregon\.edu is not admitted to federation demo"),
        (stranger, NOW, "not signed by that participant's root"),
        (MIT_PEER, NOW + 400 * 86400, "expired"),
        (MIT_PEER, NOW - 86400, "not valid before"),
    ]:
        with pytest.raises(UntrustedError, match=reason):
            membership.authenticate(der(certificate.certificate), now)
    with pytest.raises(UntrustedError, match="a CA"):
        membership.authenticate(der(MIT.certificate), NOW)
    with pytest.raises(UntrustedError, match="not well formed"):
        membership.authenticate(b"junk", NOW)


def test_statements_arrive_in_any_order() -> None:
    membership = founded()
    changes = membership.merge(reversed(chain_from(membership)), NOW)
    assert [c.error for c in changes] == [None, None]
    assert believes(membership, BROWN_PEER)


def chain_from(membership: Membership) -> tuple[bytes, ...]:
    other = copy(membership)
    other.admit(MIT, UTAH.certificate, NOW)
    other.admit(UTAH, BROWN.certificate, NOW)
    return other.statements()


def test_a_second_root_for_a_name_is_refused_and_the_first_stays() -> None:
    membership = chain()
    second = Root.create("utah.edu", NOW)
    with pytest.raises(ConflictError, match=r"utah\.edu is not admitted with a second root"):
        membership.admit(MIT, second.certificate, NOW)
    other = founded_like(membership)
    statement = other.admit(MIT, second.certificate, NOW)
    assert isinstance(refused(membership, statement), ConflictError)
    assert membership.root_of("utah.edu") == UTAH.certificate
    assert not believes(membership, Identity.issue(second, NOW))
    # the statement is reported once, and need not be sent again
    assert membership.merge([statement], NOW) == []
    assert digest_of(statement) in membership.have()


def founded_like(membership: Membership) -> Membership:
    return Membership(membership.charter)


def test_admitting_again_changes_nothing() -> None:
    membership = chain()
    before = membership.statements()
    assert membership.admit(BROWN, UTAH.certificate, NOW) == before[0]
    assert membership.admit(UTAH, MIT.certificate, NOW) == membership.charter
    assert membership.statements() == before


def test_outsiders_admit_no_participant() -> None:
    membership = chain()
    with pytest.raises(UntrustedError, match=r"evil\.org is no member"):
        membership.admit(EVIL, OREGON.certificate, NOW)
    with pytest.raises(UntrustedError, match="no member"):
        membership.admit(Root.create("mit.edu", NOW), OREGON.certificate, NOW)
    charter = digest_of(membership.charter)
    forged = Admission(membership.federation, "oregon.edu", der(OREGON.certificate), charter, NOW)
    error = refused(membership, seal_statement(EVIL.private_key, forged))
    assert isinstance(error, UntrustedError)
    assert membership.root_of("oregon.edu") is None


@pytest.mark.parametrize(
    "admission",
    [
        Admission("another", "oregon.edu", der(OREGON.certificate), b"", NOW),
        Admission("", "brown.edu", der(OREGON.certificate), b"", NOW),
        Admission("", "oregon.edu", der(OREGON_PEER.certificate), b"", NOW),
        Admission("", "oregon.edu", b"junk", b"", NOW),
    ],
)
def test_wrong_admissions(admission: Admission) -> None:
    membership = founded()
    body = Admission(
        admission.federation or membership.federation,
        admission.participant,
        admission.root,
        digest_of(membership.charter),
        NOW,
    )
    assert refused(membership, seal_statement(MIT.private_key, body)) is not None
    assert membership.participants() == ("mit.edu",)


def test_an_admission_to_one_federation_is_worth_nothing_in_another() -> None:
    statement = founded().admit(MIT, UTAH.certificate, NOW)
    other = Membership.found(MIT, NOW + 1, "demo")
    assert isinstance(refused(other, statement), UntrustedError)


@pytest.mark.parametrize("signer", [MIT, UTAH, BROWN], ids=lambda r: r.participant)
def test_a_participant_is_revoked_by_itself_its_sponsor_or_an_ancestor(signer: Root) -> None:
    membership = chain()
    membership.revoke(signer, "brown.edu", now=NOW)
    for view in (membership, copy(membership)):
        with pytest.raises(UntrustedError, match=r"brown\.edu has (been revoked|left)"):
            view.authenticate(der(BROWN_PEER.certificate), NOW)
        assert believes(view, UTAH_PEER)
        with pytest.raises(UntrustedError, match=r"revoked|left"):
            view.admit(BROWN, OREGON.certificate, NOW)
        # no other participant can take the name of a revoked one
        with pytest.raises(ConflictError):
            view.admit(MIT, Root.create("brown.edu", NOW).certificate, NOW)


def test_only_participants_above_a_member_revoke_it() -> None:
    membership = chain()
    for signer, target in [(BROWN, "utah.edu"), (UTAH, "mit.edu"), (BROWN, "mit.edu")]:
        with pytest.raises(UntrustedError, match="may not revoke"):
            membership.revoke(signer, target, now=NOW)
    with pytest.raises(NotFoundError):
        membership.revoke(MIT, "nobody.org", now=NOW)
    assert len(membership.participants()) == 3


def test_one_peer_is_revoked_and_its_siblings_stay() -> None:
    membership = chain()
    sibling = Identity.issue(UTAH, NOW)
    membership.revoke(UTAH, "utah.edu", UTAH_PEER.peer_id, now=NOW)
    for view in (membership, copy(membership)):
        with pytest.raises(UntrustedError, match=f"peer {UTAH_PEER.peer_id.hex()}"):
            view.authenticate(der(UTAH_PEER.certificate), NOW)
        assert believes(view, sibling)
        assert believes(view, BROWN_PEER)


@pytest.mark.parametrize(
    ("signer", "leaves", "ended"),
    [(UTAH, True, "has left"), (UTAH, False, "was revoked"), (MIT, True, "was revoked")],
)
def test_the_reason_says_whether_a_revoked_peer_has_left(
    signer: Root, leaves: bool, ended: str
) -> None:
    membership = chain()
    membership.revoke(signer, "utah.edu", UTAH_PEER.peer_id, now=NOW, leaves=leaves)
    for view in (membership, copy(membership)):
        with pytest.raises(UntrustedError, match=rf"of utah\.edu {ended}$"):
            view.authenticate(der(UTAH_PEER.certificate), NOW)


def test_a_revocation_voids_only_later_admissions() -> None:
    membership = chain()
    stolen = copy(membership)
    membership.revoke(MIT, "utah.edu", now=NOW)
    assert believes(membership, BROWN_PEER)
    # the thief of the root admits an accomplice, and dates the admission back
    late = stolen.admit(UTAH, EVIL.certificate, NOW - 10_000)
    membership.merge([late], NOW)
    assert membership.root_of("evil.org") is None
    # a void admission does not even reserve the name
    membership.admit(MIT, EVIL.certificate, NOW)
    assert membership.root_of("evil.org") == EVIL.certificate
    # the other order gives the same members except for the name, which was taken by then
    stolen.merge(copy(membership).statements(), NOW)
    stolen.merge(membership.statements(), NOW)
    assert stolen.participants() == membership.participants()


def revocation_of(view: Membership, signer: Root, target: str, kept: tuple[bytes, ...]) -> bytes:
    """Return a revocation that keeps exactly these members."""
    digests = {"mit.edu": digest_of(view.charter)}
    for statement, name in zip(view.statements(), ("utah.edu", "brown.edu"), strict=True):
        digests[name] = digest_of(statement)
    body = Revocation(view.federation, digests[target], b"", digests[signer.participant], kept, NOW)
    return seal_statement(signer.private_key, body)


def test_the_stricter_of_two_revocations_counts() -> None:
    """A stolen root revokes itself and keeps its friends: that changes nothing."""
    membership = chain()
    keeps = revocation_of(membership, UTAH, "utah.edu", (digest_of(membership.statements()[1]),))
    strict = revocation_of(membership, MIT, "utah.edu", ())
    for order in ([keeps, strict], [strict, keeps]):
        view = copy(membership)
        view.merge(order[:1], NOW)
        view.merge(order[1:], NOW)
        assert view.participants() == ("mit.edu",)
        assert not believes(view, BROWN_PEER)


def test_a_revocation_must_be_signed_by_the_signer_that_it_names() -> None:
    membership = chain()
    body = open_statement(revocation_of(membership, MIT, "utah.edu", ()))[0]
    assert isinstance(refused(membership, seal_statement(EVIL.private_key, body)), UntrustedError)
    assert believes(membership, UTAH_PEER)


def test_a_refused_participant_gets_the_name_once_it_is_free() -> None:
    """A participant was refused for a name whose holder turns out to be void: it gets the name in
    the end."""
    membership = chain()
    void = membership.statements()[1]
    good = founded_like(membership).admit(MIT, Root.create("brown.edu", NOW).certificate, NOW)
    assert isinstance(refused(membership, good), ConflictError)
    revocation = revocation_of(membership, MIT, "utah.edu", ())
    membership.merge([revocation], NOW)
    assert membership.root_of("brown.edu") is None
    assert digest_of(good) not in membership.have()
    assert refused(membership, good) is None
    # a peer that receives the statements in the right order has the same set: void statements are
    # kept, too
    other = founded_like(membership)
    other.merge([membership.statements()[0], revocation, good], NOW)
    assert refused(other, void) is None
    assert set(other.have()) == set(membership.have())
    assert other.root_of("brown.edu") == membership.root_of("brown.edu") != BROWN.certificate


def test_chains_have_an_end() -> None:
    membership = founded()
    sponsor = MIT
    for number in range(MAX_CHAIN):
        child = Root.create(f"p{number}.org", NOW)
        membership.admit(sponsor, child.certificate, NOW)
        sponsor = child
    with pytest.raises(Exception, match="sponsors deep"):
        membership.admit(sponsor, EVIL.certificate, NOW)


def test_a_hostile_member_cannot_prevent_its_revocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member admits and revokes as much as it can, by itself and through members that it
    admitted."""
    monkeypatch.setattr("medusa.overlay.words.MAX_KIB", 60)
    monkeypatch.setattr("medusa.overlay.membership_file.MAX_FILE", 2 * 60 * 1024)
    membership = chain()
    made = [Root.create(f"evil{n}.org", NOW) for n in range(5)]
    own = digest_of(membership.chain_of("utah.edu")[-1])
    flood, federation = [], membership.federation
    for number, root in enumerate(made):
        body = Admission(federation, root.participant, der(root.certificate), own, NOW)
        flood.append(seal_statement(UTAH.private_key, body))
        for copy in range(40):
            sub = digest_of(flood[number * 41])
            text = Revocation(federation, sub, copy.to_bytes(20), sub, (), NOW)
            flood.append(seal_statement(root.private_key, text))
    large = Revocation(federation, own, b"x" * 20, own, (bytes(32),) * 400, NOW)
    flood.append(seal_statement(UTAH.private_key, large))
    changes = membership.merge(flood, NOW)
    assert BusyError in {type(change.error) for change in changes}
    save_membership(tmp_path, membership, NOW)
    assert load_membership(tmp_path).statements() == membership.statements()
    membership.admit(MIT, OREGON.certificate, NOW)  # the other members continue
    membership.revoke(MIT, "utah.edu", now=NOW)
    assert not believes(membership, UTAH_PEER)
    assert believes(membership, OREGON_PEER)


def test_a_revocation_that_says_nothing_new_is_not_kept() -> None:
    membership = chain()
    membership.revoke(MIT, "utah.edu", UTAH_PEER.peer_id, now=NOW)
    with pytest.raises(ConflictError, match="already"):
        membership.revoke(MIT, "utah.edu", UTAH_PEER.peer_id, now=NOW + 1)
    membership.revoke(MIT, "utah.edu", now=NOW)
    with pytest.raises(ConflictError, match="already"):
        membership.revoke(MIT, "utah.edu", now=NOW + 1)


def test_refusals_remembered_are_bounded() -> None:
    membership = founded()
    membership.merge([bytes([i % 256, i // 256]) for i in range(MAX_REFUSED + 50)], NOW)
    assert len(membership.have()) == MAX_REFUSED


def test_a_statement_has_one_encoding() -> None:
    membership = founded()
    other = copy(membership)
    statement = other.admit(MIT, UTAH.certificate, NOW)
    assert statement[:2] == b"\x92\xc5"  # an array of two, then bytes with a 16-bit length
    longer = b"\x92\xc6\0\0" + statement[2:]
    assert isinstance(refused(membership, longer), DecodeError)
    assert refused(membership, statement) is None


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_as_statement_and_as_charter(data: bytes) -> None:
    membership = founded()
    assert isinstance(refused(membership, data), DecodeError)
    with pytest.raises(DecodeError):
        Membership(data)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.binary(max_size=40)
    | st.text(max_size=20)
    | st.floats(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(values, st.sampled_from(["admission", "revocation", "charter"]), values)
def test_any_well_signed_payload_is_refused_politely(one: object, tag: str, two: object) -> None:
    membership = founded()
    for payload in (one, [tag, membership.federation, two, one, two, one, two]):
        statement = encode(signed(MIT.private_key, STATEMENT_DOMAIN, encode(payload)))
        assert refused(membership, statement) is not None
    assert membership.participants() == ("mit.edu",)


def test_charters_that_do_not_hold() -> None:
    good = Charter("demo", "mit.edu", der(MIT.certificate), NOW, ANY)
    for body, key in [
        (good, EVIL),
        (Charter("demo", "utah.edu", der(MIT.certificate), NOW, ANY), MIT),
        (Charter("demo", "mit.edu", der(MIT_PEER.certificate), NOW, ANY), MIT),
    ]:
        with pytest.raises(UntrustedError):
            Membership(seal_charter(key.private_key, body))
    for name in ("", "x" * 65, "a\x1b[2J"):
        with pytest.raises(DecodeError, match="federation's name"):
            Membership(seal_charter(MIT.private_key, Charter(name, "mit.edu", good.root, NOW, ANY)))
    with pytest.raises(DecodeError):
        Membership(encode(Signed(b"", b"")))


def everything() -> list[bytes]:
    """Return admissions three deep, a revoked sponsor, a revoked peer, and a back-dated
    admission."""
    membership = chain()
    stolen = copy(membership)
    membership.admit(BROWN, OREGON.certificate, NOW)
    membership.revoke(MIT, "utah.edu", now=NOW)
    membership.revoke(OREGON, "oregon.edu", OREGON_PEER.peer_id, now=NOW)
    late = stolen.admit(UTAH, EVIL.certificate, NOW)
    return [membership.charter, *membership.statements(), late]


ALL = everything()


@settings(max_examples=60)
@given(st.permutations(ALL[1:]), st.integers(1, 6))
def test_the_members_do_not_depend_on_the_order(order: list[bytes], size: int) -> None:
    """Any order, and any batches (each sent again until nothing is new), give the same members."""
    membership = Membership(ALL[0])
    for _ in range(len(order)):
        for start in range(0, len(order), size):
            membership.merge(order[start : start + size], NOW)
    assert membership.participants() == ("brown.edu", "mit.edu", "oregon.edu")
    assert set(membership.statements()) == set(ALL[1:])
    peers = (MIT_PEER, UTAH_PEER, BROWN_PEER, OREGON_PEER)
    assert [believes(membership, p) for p in peers] == [True, False, True, False]


def test_a_revocation_of_something_unknown_waits() -> None:
    membership = chain()
    revocation = membership.revoke(MIT, "brown.edu", now=NOW)
    fresh = founded_like(membership)
    assert isinstance(refused(fresh, revocation), UntrustedError)
    fresh.merge(membership.statements(), NOW)
    assert not believes(fresh, BROWN_PEER)


def test_a_revocation_with_a_wrong_peer_id() -> None:
    membership = founded()
    charter = digest_of(membership.charter)
    body = Revocation(membership.federation, charter, b"short", charter, (), NOW)
    assert isinstance(refused(membership, seal_statement(MIT.private_key, body)), DecodeError)


def test_missing_returns_the_statements_that_the_other_lacks() -> None:
    one, two = chain(), None
    two = founded_like(one)
    sent = one.missing(two.have())
    assert sent == one.statements()
    two.merge(sent, NOW)
    assert one.missing(two.have()) == two.missing(one.have()) == ()
    assert one.pick([digest_of(sent[1]), b"unknown"]) == (sent[1],)


def test_the_file_keeps_the_statements_of_both_sides(tmp_path: Path) -> None:
    daemon = chain()
    save_membership(tmp_path, daemon, NOW)
    command = load_membership(tmp_path)
    assert command.statements() == daemon.statements()
    command.admit(MIT, OREGON.certificate, NOW)
    save_membership(tmp_path, command, NOW)
    daemon.admit(MIT, EVIL.certificate, NOW)
    assert [c.text for c in save_membership(tmp_path, daemon, NOW)] == [
        "admitted oregon.edu, by mit.edu"
    ]
    assert load_membership(tmp_path).participants() == daemon.participants()
    assert len(daemon.participants()) == 5
    with pytest.raises(ConflictError, match="another federation"):
        store_statements(tmp_path, Membership.found(UTAH, NOW).charter, ())


def test_a_missing_or_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="federation"):
        load_membership(tmp_path)
    (tmp_path / "federation").write_bytes(random.Random(1).randbytes(500))
    with pytest.raises(DamagedError, match="join again"):
        load_membership(tmp_path)
