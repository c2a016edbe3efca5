"""The list of a federation's members for people: names, sponsors, beginnings and ends."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from medusa.overlay.certificates import short_fingerprint
from medusa.overlay.membership import Membership
from medusa.overlay.words import Member, PolicyVersion

Standing = Literal["founder", "member", "invited", "expired", "waiting", "revoked", "left"]


class MemberRow(Struct, frozen=True):
    """One participant of the list.

    Attributes:
        root: the beginning of its root certificate's SHA-256, hex.
        standing: invited: no member has met it yet; expired: no member met it in time; waiting:
            more sponsors must sign.
        sponsors: participants that signed its admission.
        since: when it was admitted, seconds since the epoch.
        until: when its invitation ends; 0: it does not.
        ended: how a revoked membership ended.
        revoked_peers: ids of its revoked peers, hex.
    """

    participant: str
    root: str
    standing: Standing
    sponsors: tuple[str, ...]
    since: float
    until: float = 0.0
    ended: str = ""
    revoked_peers: tuple[str, ...] = ()


class ChangeRow(Struct, frozen=True):
    """A change of the policy that has too few signatures. signed_by: the participants that
    signed."""

    policy: str
    signed_by: tuple[str, ...]


class Roll(Struct, frozen=True):
    """The members of a federation and its admission policy.

    Attributes:
        federation: its id.
        name: its name for people.
        policy: the policy as `AdmissionPolicy` writes it.
        admits: the policy in words.
    """

    federation: str
    name: str
    policy: str
    admits: str
    members: tuple[MemberRow, ...]
    changes: tuple[ChangeRow, ...] = ()


def roll_of(membership: Membership, now: float) -> Roll:
    """All present, former and invited members. now: seconds since the epoch."""
    policy = membership.tally.policy.policy
    members = [
        _row(membership, member, standing)
        for member in membership.words.members.values()
        if (standing := _standing(membership, member, now)) is not None
    ]
    return Roll(
        membership.federation,
        membership.name,
        str(policy),
        policy.who,
        tuple(sorted(members, key=lambda row: (row.participant, row.since))),
        tuple(_change(membership, change) for change in membership.changes_under_way()),
    )


def _standing(membership: Membership, member: Member, now: float) -> Standing | None:
    """The standing of a member; None if neither its statements nor its name count."""
    tally = membership.tally
    if membership.holder(member.participant) is member:
        if membership.is_revoked(member):
            own = member.digest in membership.words.endings[member.digest]
            return "left" if own else "revoked"
        if member.sponsor is None:
            return "founder"
        if member.digest in tally.entered:
            return "member"
        return "expired" if now > member.expires_at else "invited"
    is_open = member.policy == tally.policy.digest and tally.policy.policy.needed > 1
    ended = 0 < member.expires_at < now
    if is_open and not ended and member.digest not in tally.counted | tally.withdrawn:
        return "waiting"
    return None


def _row(membership: Membership, member: Member, standing: Standing) -> MemberRow:
    words = membership.words
    signers = words.names(words.signers.get(member.digest, ()))
    is_open = standing in {"invited", "expired", "waiting"}
    return MemberRow(
        member.participant,
        short_fingerprint(member.certificate),
        standing,
        tuple(sorted(signers)),
        member.admitted_at,
        member.expires_at if is_open else 0.0,
        membership.how_it_ended(member) if standing in {"left", "revoked"} else "",
        tuple(sorted(peer.hex() for of, peer in words.revoked_peers if of == member.digest)),
    )


def _change(membership: Membership, change: PolicyVersion) -> ChangeRow:
    words = membership.words
    return ChangeRow(str(change.policy), tuple(sorted(words.names(words.signers[change.digest]))))
