"""The set of statements: their order makes no difference, and no other member's statement admits
anybody."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from overlay_admissions import (
    BROWN,
    CMU,
    DAY,
    EVIL,
    MIT,
    NOW,
    OREGON,
    PEERS,
    UTAH,
    copy,
    founded,
    sponsored,
)

from medusa.overlay.admission_policy import ANY, FOUNDER
from medusa.overlay.certificates import der
from medusa.overlay.encoding import encode
from medusa.overlay.identity import Root
from medusa.overlay.membership import Membership
from medusa.overlay.signing import signed
from medusa.overlay.statements import (
    Admission,
    Approval,
    Entry,
    PolicyChange,
    Revocation,
    open_statement,
    seal_statement,
)


def everything() -> Membership:
    """Return sponsors, pending and complete admissions, entries, withdrawals, separate changes,
    revocations of sponsors, and admissions under past policies."""
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


@settings(max_examples=80)
@given(st.permutations(ALL.statements()), st.integers(1, 7), st.randoms(use_true_random=False))
def test_the_members_and_the_policy_do_not_depend_on_the_order(
    order: list[bytes], size: int, rng: random.Random
) -> None:
    """Any order, and any batches, some sent twice (each again until nothing is new), give the
    same."""
    membership = Membership(ALL.charter)
    for _ in range(len(order)):
        for start in range(0, len(order), size):
            membership.merge(order[start : start + size] + rng.choices(order, k=2), NOW)
    assert standing(membership) == standing(ALL)
    assert set(membership.statements()) == set(ALL.statements())


@settings(max_examples=150)
@given(st.data())
def test_no_statements_of_others_admit_anybody_or_change_the_policy(data: st.DataObject) -> None:
    """Two of three members are no sponsors; one of two needed sponsors, a stranger and an invited
    participant sign any statements, about each other and about everything."""
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
    """A peer of the version before refuses an unknown kind, and reads known ones."""
    kinds = {type(open_statement(s)[0]) for s in ALL.statements()}
    assert kinds == {Admission, Approval, Entry, PolicyChange, Revocation}
