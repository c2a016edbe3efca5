"""Admission policies decide which members admit a participant; members change the policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlay_admissions import (
    BROWN,
    CMU,
    DAY,
    EVIL,
    MIT,
    NOW,
    OREGON,
    TWO_OF_THREE,
    UTAH,
    copy,
    digest,
    founded,
    refusal,
    sponsored,
)

from medusa.overlay.admission_policy import ANY, FOUNDER, MAX_SPONSORS, AdmissionPolicy
from medusa.overlay.certificates import der
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    UntrustedError,
)
from medusa.overlay.membership import Membership
from medusa.overlay.statements import Admission, Approval, PolicyChange, digest_of

# -- the policies


@pytest.mark.parametrize(
    ("text", "again"),
    [
        (ANY, ANY),
        (FOUNDER, FOUNDER),
        ("1 of mit.edu", FOUNDER),
        ("2 of utah.edu,mit.edu", "2 of mit.edu,utah.edu"),
        ("2 of utah.edu, mit.edu", "2 of mit.edu,utah.edu"),
        ("2 of  utah.edu , mit.edu ", "2 of mit.edu,utah.edu"),
    ],
)
def test_a_policy_is_written_in_one_way(text: str, again: str) -> None:
    assert str(AdmissionPolicy.parse(text, "mit.edu")) == again
    assert str(AdmissionPolicy.parse(again, "mit.edu")) == again


@pytest.mark.parametrize(
    "text",
    [
        *["", "all", "0 of a.b", "3 of a.b,c.d", "2 of a.b,a.b", "1 of A.B", "1 of", "-1 of a.b"],
        *["1 of  ", "1 of a.b,", "2 of a.b c.d"],
        "1 of " + ",".join(f"p{n}.org" for n in range(MAX_SPONSORS + 1)),
    ],
)
def test_invalid_policies_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        AdmissionPolicy.parse(text, "mit.edu")
    with pytest.raises(InvalidInputError):
        founded(text)


@given(st.text(max_size=60))
def test_any_text_is_a_policy_or_one_error(text: str) -> None:
    try:
        policy = AdmissionPolicy.parse(text, "mit.edu")
    except InvalidInputError:
        return
    assert AdmissionPolicy.parse(str(policy), "mit.edu") == policy


def test_a_new_federation_is_its_founders_to_open() -> None:
    membership = Membership.found(MIT, NOW)
    membership.admit(MIT, UTAH.certificate, NOW)
    with pytest.raises(
        NotAuthorisedError, match=r"is founder: its founder mit\.edu alone may admit"
    ):
        membership.admit(UTAH, EVIL.certificate, NOW)
    # the sender of the statement does not matter
    body = Admission(
        membership.federation,
        "evil.org",
        der(EVIL.certificate),
        digest(membership, "utah.edu"),
        NOW,
    )
    assert isinstance(refusal(membership, UTAH, body), UntrustedError)
    assert membership.participants() == ("mit.edu", "utah.edu")


def test_two_sponsors_sign() -> None:
    membership = sponsored()
    assert membership.participants() == ("brown.edu", "mit.edu", "utah.edu")
    admission = membership.admit(MIT, OREGON.certificate, NOW)
    assert membership.root_of("oregon.edu") is None, "the founder is one sponsor of two"
    assert membership.admit(MIT, OREGON.certificate, NOW + 1) == admission
    other = copy(membership)
    approval = other.admit(BROWN, OREGON.certificate, NOW)
    assert other.root_of("oregon.edu") == OREGON.certificate
    membership.merge([approval], NOW)
    assert membership.root_of("oregon.edu") == OREGON.certificate
    with pytest.raises(NotAuthorisedError, match=r"2 of brown\.edu,mit\.edu,utah\.edu"):
        membership.admit(OREGON, EVIL.certificate, NOW)


def test_sponsors_that_begin_at_the_same_time_agree_in_the_end() -> None:
    one, two = sponsored(), None
    two = copy(one)
    one.admit(MIT, OREGON.certificate, NOW)
    two.admit(BROWN, OREGON.certificate, NOW)
    one.merge(two.statements(), NOW)
    two.merge(one.statements(), NOW)
    assert one.root_of("oregon.edu") is None
    two.admit(BROWN, OREGON.certificate, NOW)
    one.admit(MIT, OREGON.certificate, NOW)
    one.merge(two.statements(), NOW)
    two.merge(one.statements(), NOW)
    for view in (one, two):
        assert view.root_of("oregon.edu") == OREGON.certificate


def test_an_invitation_token_has_all_statements_on_which_it_depends() -> None:
    membership = sponsored()
    membership.admit(MIT, OREGON.certificate, NOW)
    membership.admit(BROWN, OREGON.certificate, NOW)
    membership.admit(MIT, CMU.certificate, NOW)
    for signer in (MIT, UTAH):
        membership.change_policy(signer, "1 of brown.edu", NOW)
    membership.admit(BROWN, EVIL.certificate, NOW)
    for name in ("oregon.edu", "evil.org"):
        token = membership.chain_of(name)
        assert Membership(membership.charter, token).root_of(name) is not None
        assert not any(b"cmu.edu" in statement for statement in token)


def test_one_sponsor_cannot_sign_twice_nor_for_others() -> None:
    membership = sponsored()
    admission = digest_of(membership.admit(UTAH, EVIL.certificate, NOW))
    utah, federation = digest(membership, "utah.edu"), membership.federation
    for root, signer in [(UTAH, "utah.edu"), (UTAH, "mit.edu"), (EVIL, "mit.edu")]:
        body = Approval(federation, admission, digest(membership, signer), NOW)
        assert refusal(membership, root, body) is not None
    second = Admission(federation, "evil.org", der(EVIL.certificate), utah, NOW + 1)
    # the statement is stored, and has as little weight
    assert refusal(membership, UTAH, second) is None
    assert membership.root_of("evil.org") is None


def test_a_sponsor_that_takes_its_word_back_takes_a_member_out_unless_enough_stay() -> None:
    membership = sponsored()
    for sponsor in (MIT, UTAH):
        membership.admit(sponsor, OREGON.certificate, NOW)
    for sponsor in (MIT, UTAH, BROWN):
        membership.admit(sponsor, CMU.certificate, NOW)
    body = Approval(membership.federation, digest(membership, "cmu.edu"), b"", NOW)
    third = Approval(body.federation, body.subject, digest(membership, "brown.edu"), NOW)
    assert refusal(membership, BROWN, third) is None
    for name in ("oregon.edu", "cmu.edu"):
        membership.revoke(UTAH, name, now=NOW)
    assert membership.root_of("oregon.edu") is None
    assert membership.root_of("cmu.edu") is not None, "two others stand by it"
    with pytest.raises(UntrustedError, match="may not revoke"):
        membership.revoke(BROWN, "utah.edu", now=NOW)


# -- changes of the policy


def test_the_named_sponsors_change_a_policy_and_no_member_is_lost() -> None:
    membership = founded(ANY)
    membership.admit(MIT, UTAH.certificate, NOW)
    membership.admit(UTAH, BROWN.certificate, NOW)
    stale = copy(membership)
    with pytest.raises(NotAuthorisedError, match=r"founder mit\.edu alone may change it"):
        membership.change_policy(UTAH, FOUNDER, NOW)
    forged = PolicyChange(
        membership.federation,
        1,
        digest_of(membership.charter),
        "1 of utah.edu",
        (),
        digest(membership, "utah.edu"),
        NOW,
    )
    assert isinstance(refusal(membership, UTAH, forged), UntrustedError)
    membership.change_policy(MIT, TWO_OF_THREE, NOW)
    assert copy(membership).participants() == ("brown.edu", "mit.edu", "utah.edu")
    # a former sponsor dates an admission back: the admission does not count, nor reserve the name
    late = stale.admit(BROWN, EVIL.certificate, NOW - DAY)
    membership.merge([late], NOW)
    assert membership.root_of("evil.org") is None
    # and in the other order: the participant is no member once the change arrives
    assert stale.root_of("evil.org") is not None
    stale.merge(membership.statements(), NOW)
    assert stale.participants() == membership.participants()


def test_two_sponsors_change_the_policy() -> None:
    membership = sponsored()
    membership.change_policy(UTAH, FOUNDER, NOW)
    assert str(membership.tally.policy.policy) == "2 of brown.edu,mit.edu,utah.edu"
    with pytest.raises(ConflictError, match="signed it already"):
        membership.change_policy(UTAH, FOUNDER, NOW)
    membership.change_policy(BROWN, FOUNDER, NOW)
    assert str(membership.tally.policy.policy) == FOUNDER
    with pytest.raises(ConflictError, match="is founder already"):
        membership.change_policy(MIT, FOUNDER, NOW)
    with pytest.raises(NotAuthorisedError):
        membership.change_policy(UTAH, ANY, NOW)


def test_an_older_policy_never_wins_and_of_two_made_apart_all_choose_one() -> None:
    base = founded(FOUNDER)
    base.admit(MIT, UTAH.certificate, NOW)
    one, two = copy(base), copy(base)
    one.change_policy(MIT, ANY, NOW)
    two.change_policy(MIT, "1 of utah.edu", NOW)
    first, second = one.statements()[-1:], two.statements()[-1:]
    one.merge(second, NOW)
    two.merge(first, NOW)
    assert one.tally.policy == two.tally.policy
    three = copy(one)
    loser = "1 of utah.edu" if str(one.tally.policy.policy) == ANY else ANY
    three.change_policy(MIT if loser != ANY else UTAH, loser, NOW)
    assert str(three.tally.policy.policy) == loser
    for order in (three.statements(), tuple(reversed(three.statements()))):
        assert str(Membership(base.charter, order).tally.policy.policy) == loser


def test_a_former_sponsor_admits_no_participant() -> None:
    membership = sponsored()
    stale = copy(membership)
    for signer in (MIT, UTAH):
        membership.change_policy(signer, "2 of mit.edu,utah.edu", NOW)
    for sponsor in (BROWN, UTAH):
        stale.admit(sponsor, EVIL.certificate, NOW)
    membership.merge(stale.statements(), NOW)
    assert membership.root_of("evil.org") is None
    assert membership.root_of("brown.edu") is not None
