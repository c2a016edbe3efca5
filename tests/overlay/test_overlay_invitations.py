"""Invitations end unless the invited participant meets a member in time; they are renewed or
withdrawn."""

from __future__ import annotations

import pytest
from overlay_admissions import (
    BROWN,
    CMU,
    DAY,
    EVIL,
    MIT,
    NOW,
    PEERS,
    UTAH,
    copy,
    digest,
    founded,
    refusal,
)

from medusa.overlay.admission_policy import ANY, FOUNDER
from medusa.overlay.certificates import der
from medusa.overlay.errors import ConflictError, DecodeError, NotFoundError, UntrustedError
from medusa.overlay.identity import Root
from medusa.overlay.membership import Membership
from medusa.overlay.statements import Admission, Entry, digest_of, seal_statement


def invited(until: float = NOW + 7 * DAY) -> Membership:
    membership = founded(FOUNDER)
    membership.admit(MIT, UTAH.certificate, NOW, until)
    return membership


def knows(membership: Membership, name: str, now: float) -> bool:
    try:
        membership.authenticate(der(PEERS[name].certificate), now)
    except UntrustedError:
        return False
    return True


def test_an_invitation_that_is_not_taken_up_ends() -> None:
    membership = invited()
    assert knows(membership, "utah.edu", NOW + 7 * DAY)
    with pytest.raises(UntrustedError, match="did not enter before its invitation ended on"):
        membership.authenticate(der(PEERS["utah.edu"].certificate), NOW + 7 * DAY + 1)
    # a peer's statement about itself has no weight, and neither has one by a member that it
    # admitted
    utah, federation = digest(membership, "utah.edu"), membership.federation
    for witness in (utah, digest(membership, "mit.edu")):
        body = Entry(federation, utah, witness, der(PEERS["utah.edu"].certificate), NOW)
        statement = seal_statement(PEERS["utah.edu"].private_key, body)
        membership.merge([statement], NOW)
        assert not knows(membership, "utah.edu", NOW + 8 * DAY)


def test_a_newcomer_that_met_a_member_in_time_stays() -> None:
    membership = invited()
    assert membership.welcome(PEERS["mit.edu"], "utah.edu", NOW + 8 * DAY) is None
    entry = membership.welcome(PEERS["mit.edu"], "utah.edu", NOW + DAY)
    assert entry is not None
    assert [c.text for c in membership.merge([entry], NOW)] == ["let in utah.edu, met by mit.edu"]
    for view in (membership, copy(membership)):
        assert knows(view, "utah.edu", NOW + 100 * DAY)
    assert membership.welcome(PEERS["mit.edu"], "utah.edu", NOW + 2 * DAY) is None


def test_two_that_were_invited_do_not_let_each_other_in() -> None:
    membership = founded(ANY)
    for root in (EVIL, CMU):
        membership.admit(MIT, root.certificate, NOW, NOW + DAY)
    pairs = [("evil.org", "cmu.edu"), ("cmu.edu", "evil.org")]
    for member, witness in pairs:
        body = Entry(
            membership.federation,
            digest(membership, member),
            digest(membership, witness),
            der(PEERS[witness].certificate),
            NOW,
        )
        membership.merge([seal_statement(PEERS[witness].private_key, body)], NOW)
    assert not any(knows(membership, name, NOW + 2 * DAY) for name, _ in pairs)


def test_a_newcomer_that_has_not_entered_admits_no_participant() -> None:
    membership = founded(ANY)
    membership.admit(MIT, UTAH.certificate, NOW, NOW + DAY)
    with pytest.raises(UntrustedError, match="has not entered yet"):
        membership.admit(UTAH, BROWN.certificate, NOW)
    body = Admission(
        membership.federation,
        "brown.edu",
        der(BROWN.certificate),
        digest(membership, "utah.edu"),
        NOW,
    )
    membership.merge([seal_statement(UTAH.private_key, body)], NOW)
    assert membership.root_of("brown.edu") is None
    entry = membership.welcome(PEERS["mit.edu"], "utah.edu", NOW)
    assert entry is not None
    membership.merge([entry], NOW)
    assert membership.root_of("brown.edu") is not None, "its word counts from now on"


def test_an_invitation_is_withdrawn_and_its_name_is_free() -> None:
    membership = invited()
    with pytest.raises(UntrustedError):
        membership.withdraw(EVIL, "utah.edu", NOW)
    membership.withdraw(MIT, "utah.edu", NOW)
    assert membership.participants() == ("mit.edu",)
    with pytest.raises(NotFoundError, match="not invited"):
        membership.withdraw(MIT, "utah.edu", NOW)
    second = Root.create("utah.edu", NOW)
    membership.admit(MIT, second.certificate, NOW)
    assert copy(membership).root_of("utah.edu") == second.certificate
    with pytest.raises(ConflictError, match="has entered already"):
        membership.withdraw(MIT, "utah.edu", NOW)


def test_an_invitation_that_ended_is_made_anew() -> None:
    membership = invited()
    before = membership.statements()
    assert membership.admit(MIT, UTAH.certificate, NOW + DAY, NOW + 9 * DAY) == before[0]
    membership.admit(MIT, UTAH.certificate, NOW + 10 * DAY, NOW + 17 * DAY)
    assert knows(copy(membership), "utah.edu", NOW + 12 * DAY)
    assert not knows(copy(membership), "utah.edu", NOW + 18 * DAY)


def test_a_name_that_is_taken_is_refused_at_once() -> None:
    membership = founded(FOUNDER)
    membership.admit(MIT, UTAH.certificate, NOW)
    with pytest.raises(ConflictError, match="not admitted with a second root"):
        membership.admit(MIT, Root.create("utah.edu", NOW).certificate, NOW)
    membership.revoke(MIT, "utah.edu", now=NOW)
    with pytest.raises(ConflictError, match=r"revoked by mit\.edu on .*its name stays taken"):
        membership.admit(MIT, UTAH.certificate, NOW)


def test_a_witness_that_is_revoked_later_takes_no_member_with_it() -> None:
    membership = founded(FOUNDER)
    membership.admit(MIT, BROWN.certificate, NOW)
    membership.admit(MIT, UTAH.certificate, NOW, NOW + DAY)
    entry = membership.welcome(PEERS["brown.edu"], "utah.edu", NOW)
    assert entry is not None
    membership.merge([entry], NOW)
    later = Entry(
        membership.federation,
        digest_of(membership.admit(MIT, CMU.certificate, NOW, NOW + DAY)),
        digest(membership, "brown.edu"),
        der(PEERS["brown.edu"].certificate),
        NOW,
    )
    peer = PEERS["brown.edu"].peer_id
    for end in (b"", peer):
        view = copy(membership)
        view.revoke(MIT, "brown.edu", end, now=NOW)
        view.merge([seal_statement(PEERS["brown.edu"].private_key, later)], NOW)
        assert knows(view, "utah.edu", NOW + 2 * DAY)
        assert not knows(view, "cmu.edu", NOW + 2 * DAY), "a stolen key dates an entry back"


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), -1.0])
def test_times_that_are_none(moment: float) -> None:
    membership = founded(ANY)
    root = digest_of(membership.charter)
    body = Admission(
        membership.federation, "utah.edu", der(UTAH.certificate), root, NOW, b"", moment
    )
    assert isinstance(refusal(membership, MIT, body), DecodeError)
