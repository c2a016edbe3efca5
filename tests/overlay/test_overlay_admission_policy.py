"""Who admits: the policies, their changes, invitations that end; and that order does not matter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from overlay.admission_policy import ANY, FOUNDER, MAX_SPONSORS, AdmissionPolicy
from overlay.certificates import der
from overlay.encoding import encode
from overlay.errors import (
    ConflictError,
    DecodeError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UntrustedError,
)
from overlay.identity import Identity, Root
from overlay.membership import Membership
from overlay.signing import signed
from overlay.statements import (
    CHARTER_DOMAIN,
    Admission,
    Approval,
    Entry,
    PolicyChange,
    Revocation,
    Statement,
    digest_of,
    open_statement,
    seal_statement,
)

NOW = 1_700_000_000.0
DAY = 86_400.0
NAMES = ("mit.edu", "utah.edu", "brown.edu", "oregon.edu", "cmu.edu", "evil.org")
MIT, UTAH, BROWN, OREGON, CMU, EVIL = (Root.create(name, NOW) for name in NAMES)
PEERS = {
    root.participant: Identity.issue(root, NOW) for root in (MIT, UTAH, BROWN, OREGON, CMU, EVIL)
}
TWO_OF_THREE = "2 of mit.edu,utah.edu,brown.edu"


def founded(policy: str) -> Membership:
    return Membership.found(MIT, NOW, "demo", policy)


def sponsored() -> Membership:
    """Two of three sponsors admit; all three are members."""
    membership = founded(TWO_OF_THREE)
    for root in (UTAH, BROWN):
        membership.admit(MIT, root.certificate, NOW)
    return membership


def copy(membership: Membership) -> Membership:
    return Membership(membership.charter, membership.statements())


def refusal(membership: Membership, root: Root, body: Statement) -> MedusaError | None:
    (change,) = membership.merge([seal_statement(root.private_key, body)], NOW)
    return change.error


def digest(membership: Membership, name: str) -> bytes:
    holder = membership.holder(name)
    assert holder is not None
    return holder.digest


# -- the policies


@pytest.mark.parametrize(
    ("text", "again"),
    [
        (ANY, ANY),
        (FOUNDER, FOUNDER),
        ("1 of mit.edu", FOUNDER),
        ("2 of utah.edu,mit.edu", "2 of mit.edu,utah.edu"),
    ],
)
def test_a_policy_is_written_in_one_way(text: str, again: str) -> None:
    assert str(AdmissionPolicy.parse(text, "mit.edu")) == again
    assert str(AdmissionPolicy.parse(again, "mit.edu")) == again


@pytest.mark.parametrize(
    "text",
    [
        *["", "all", "0 of a.b", "3 of a.b,c.d", "2 of a.b,a.b", "1 of A.B", "1 of", "-1 of a.b"],
        "1 of " + ",".join(f"p{n}.org" for n in range(MAX_SPONSORS + 1)),
    ],
)
def test_what_is_no_policy(text: str) -> None:
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
    # whoever gossips it
    body = Admission(
        membership.federation,
        "evil.org",
        der(EVIL.certificate),
        digest(membership, "utah.edu"),
        NOW,
    )
    assert isinstance(refusal(membership, UTAH, body), UntrustedError)
    assert membership.participants() == ("mit.edu", "utah.edu")


class _OldCharter(Struct, frozen=True, array_like=True, tag="charter"):
    name: str
    founder: str
    root: bytes
    founded_at: float


def test_in_a_federation_from_before_there_were_policies_any_member_admits() -> None:
    charter = _OldCharter("demo", "mit.edu", der(MIT.certificate), NOW)
    membership = Membership(encode(signed(MIT.private_key, CHARTER_DOMAIN, encode(charter))))
    assert str(membership.tally.policy.policy) == ANY
    membership.admit(MIT, UTAH.certificate, NOW)
    membership.admit(UTAH, BROWN.certificate, NOW)
    assert copy(membership).participants() == ("brown.edu", "mit.edu", "utah.edu")


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


def test_a_newcomers_token_holds_all_that_it_hangs_on() -> None:
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
    assert refusal(membership, UTAH, second) is None  # stored, and as little worth
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


def test_a_policy_is_changed_by_those_whom_it_names_and_nobody_is_lost() -> None:
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
    # who could admit before dates an admission back: it does not count, nor hold the name
    late = stale.admit(BROWN, EVIL.certificate, NOW - DAY)
    membership.merge([late], NOW)
    assert membership.root_of("evil.org") is None
    # and the other way round: it is out once the change is heard
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


def test_who_was_a_sponsor_admits_nobody_any_more() -> None:
    membership = sponsored()
    stale = copy(membership)
    for signer in (MIT, UTAH):
        membership.change_policy(signer, "2 of mit.edu,utah.edu", NOW)
    for sponsor in (BROWN, UTAH):
        stale.admit(sponsor, EVIL.certificate, NOW)
    membership.merge(stale.statements(), NOW)
    assert membership.root_of("evil.org") is None
    assert membership.root_of("brown.edu") is not None


# -- invitations


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
    # its own word for itself is worth nothing, neither is that of one below it
    utah, federation = digest(membership, "utah.edu"), membership.federation
    for witness in (utah, digest(membership, "mit.edu")):
        body = Entry(federation, utah, witness, der(PEERS["utah.edu"].certificate), NOW)
        statement = seal_statement(PEERS["utah.edu"].private_key, body)
        membership.merge([statement], NOW)
        assert not knows(membership, "utah.edu", NOW + 8 * DAY)


def test_who_has_met_a_member_in_time_stays() -> None:
    membership = invited()
    assert membership.welcome(PEERS["mit.edu"], "utah.edu", NOW + 8 * DAY) is None
    entry = membership.welcome(PEERS["mit.edu"], "utah.edu", NOW + DAY)
    assert entry is not None
    assert [c.text for c in membership.merge([entry], NOW)] == [
        "utah.edu has entered, met by mit.edu"
    ]
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


def test_who_has_not_entered_admits_nobody() -> None:
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


def test_a_name_that_is_taken_is_said_at_once() -> None:
    membership = founded(FOUNDER)
    membership.admit(MIT, UTAH.certificate, NOW)
    with pytest.raises(ConflictError, match="not admitted with a second root"):
        membership.admit(MIT, Root.create("utah.edu", NOW).certificate, NOW)
    membership.revoke(MIT, "utah.edu", now=NOW)
    with pytest.raises(ConflictError, match=r"revoked by mit\.edu on .*its name stays taken"):
        membership.admit(MIT, UTAH.certificate, NOW)


def test_a_witness_that_is_revoked_later_takes_nobody_with_it() -> None:
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


# -- the set


def everything() -> Membership:
    """Sponsors, pending and complete admissions, entries, withdrawals, changes made apart,
    revocations of sponsors, and admissions under policies of the past."""
    membership = sponsored()
    stale = copy(membership)
    for sponsor in (MIT, UTAH):
        membership.admit(sponsor, OREGON.certificate, NOW, NOW + DAY)
    entry = membership.welcome(PEERS["brown.edu"], "oregon.edu", NOW)
    assert entry is not None
    membership.merge([entry], NOW)
    membership.admit(BROWN, CMU.certificate, NOW, NOW + DAY)
    for signer in (MIT, UTAH):
        membership.change_policy(signer, "1 of brown.edu", NOW)
    for sponsor in (UTAH, BROWN):
        stale.admit(sponsor, EVIL.certificate, NOW)
    for signer in (MIT, BROWN):
        stale.change_policy(signer, FOUNDER, NOW + 1)
    membership.merge(stale.statements(), NOW)
    late = Root.create("late.org", NOW)
    sponsor = MIT if str(membership.tally.policy.policy) == FOUNDER else BROWN
    membership.admit(sponsor, late.certificate, NOW, NOW + DAY)
    membership.withdraw(sponsor, "late.org", NOW)
    membership.admit(sponsor, CMU.certificate, NOW)
    membership.revoke(MIT, "brown.edu", now=NOW)
    membership.revoke(UTAH, "utah.edu", PEERS["utah.edu"].peer_id, now=NOW)
    return membership


ALL = everything()


def standing(membership: Membership) -> object:
    tally = membership.tally
    return (
        membership.participants(),
        str(tally.policy.policy),
        tally.counted,
        tally.entered,
        tally.revoked,
        tally.withdrawn,
    )


@settings(max_examples=80, deadline=None)
@given(st.permutations(ALL.statements()), st.integers(1, 7), st.randoms(use_true_random=False))
def test_the_members_and_the_policy_do_not_depend_on_the_order(
    order: list[bytes], size: int, rng: random.Random
) -> None:
    """Any order, any batches, some sent twice (each again until nothing is new): the same."""
    membership = Membership(ALL.charter)
    for _ in range(len(order)):
        for start in range(0, len(order), size):
            membership.merge(order[start : start + size] + rng.choices(order, k=2), NOW)
    assert standing(membership) == standing(ALL)
    assert set(membership.statements()) == set(ALL.statements())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_statements_of_others_admit_anybody_or_change_the_policy(data: st.DataObject) -> None:
    """Two members of three that are no sponsors, one sponsor of two that are needed, a stranger
    and an invited one say whatever they like, about each other and about all there is."""
    membership = sponsored()
    for sponsor in (MIT, UTAH):
        membership.admit(sponsor, OREGON.certificate, NOW)
        membership.admit(sponsor, CMU.certificate, NOW, NOW + DAY)
    before, policy = set(membership.participants()), membership.tally.policy
    liars = [OREGON, CMU, EVIL, BROWN]
    draw = data.draw
    for _ in range(draw(st.integers(1, 12))):
        digests = [*membership.words.members, *membership.words.policies]
        about, liar = draw(st.sampled_from(digests)), draw(st.sampled_from(liars))
        holder = membership.holder(liar.participant)
        by = draw(st.sampled_from([*digests, *([holder.digest] if holder else []) * 9]))
        friend = draw(st.sampled_from([EVIL, CMU, UTAH]))
        federation = membership.federation
        body = draw(
            st.sampled_from(
                [
                    Admission(federation, friend.participant, der(friend.certificate), by, NOW),
                    Admission(
                        federation, friend.participant, der(friend.certificate), by, NOW, about
                    ),
                    Approval(federation, about, by, NOW),
                    Entry(federation, about, by, der(PEERS["evil.org"].certificate), NOW),
                    Entry(federation, about, by, der(PEERS["cmu.edu"].certificate), NOW),
                    PolicyChange(federation, 1, about, ANY, tuple(digests), by, NOW),
                    Revocation(federation, about, b"", by, tuple(digests), NOW),
                    Revocation(federation, about, b"", by, (), NOW, withdrawn=True),
                ]
            )
        )
        key = PEERS[liar.participant].private_key if isinstance(body, Entry) else liar.private_key
        membership.merge([seal_statement(key, body)], NOW)
    assert set(membership.participants()) <= before
    assert membership.tally.policy == policy
    assert {"mit.edu", "utah.edu"} <= set(membership.participants())


@given(st.binary(max_size=300), st.sampled_from(["approval", "entry", "policy"]))
def test_any_well_signed_payload_of_the_new_kinds_is_refused_politely(
    junk: bytes, tag: str
) -> None:
    membership = founded(ANY)
    for fields in ([junk], [membership.federation, junk, junk, NOW], [junk] * 7):
        payload = encode([tag, *fields])
        statement = encode(signed(MIT.private_key, "medusa membership statement", payload))
        (change,) = membership.merge([statement], NOW)
        assert change.error is not None


def test_every_kind_of_statement_is_tagged_for_the_version_before() -> None:
    """A peer of the version before refuses what it does not know, and reads what it knows."""
    kinds = {type(open_statement(s)[0]) for s in ALL.statements()}
    assert kinds == {Admission, Approval, Entry, PolicyChange, Revocation}
