"""The statements of a federation's members, each checked by itself; `medusa.overlay.tally` counts
them.

Whether a statement is accepted depends only on the statements that it refers to, in any order of
arrival.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509

from medusa.overlay.admission_policy import AdmissionPolicy
from medusa.overlay.certificates import (
    PeerName,
    check_issued,
    check_root,
    load_certificate,
)
from medusa.overlay.errors import BusyError, ConflictError, DecodeError, UntrustedError
from medusa.overlay.names import PEER_ID_BYTES, PeerId
from medusa.overlay.statements import (
    Admission,
    Approval,
    Entry,
    PolicyChange,
    Revocation,
    Statement,
)

MAX_KIB: Final = 10_000
"""KiB of statements of a federation, each rounded up: bounds what hostile members can make every
peer store. A list of that many digests fits one message of an exchange.

A member together with those below it may store as much as is still free for all others. So one
hostile member takes half at most, n of them leave 1/(n+1), and there is always room to revoke them.
"""

MAX_CHAIN: Final = 32
"""Sponsors between a member and the charter: bounds the walk up."""

MAX_CHANGES: Final = 64
"""Policy changes that one participant may sign: after each one that counts, every peer counts all
statements anew."""

MAX_REVOKED_PEERS: Final = 1_000
"""Revocations of peers that one participant may sign: nobody can tell whether there ever was such a
peer, and each peer of the federation keeps them, and checks them at each start. A participant that
has lost more keys of peers than that ends its membership, and is admitted under another name."""

MAX_ENDINGS: Final = 4
"""Revocations of one member that one participant may sign, each of which keeps fewer of the
member's statements: after each, every peer counts all statements anew."""

MAX_WITNESSES: Final = 8
"""Peers of one participant that may witness one entry: several may meet a member at once. If the
entry is one that other statements depend on, every peer counts all statements anew after each
witness."""


class EarlyError(UntrustedError, code="early"):
    """A statement whose member or signer is not known yet."""


@dataclass(frozen=True, slots=True)
class Member:
    """One admission (or the charter).

    Attributes:
        sponsor: digest of the first signer's admission; None for the founder.
        policy: digest of the policy that it was admitted under.
        expires_at: seconds since the epoch; 0: never.
    """

    digest: bytes
    participant: str
    certificate: x509.Certificate
    sponsor: bytes | None
    depth: int
    policy: bytes
    admitted_at: float
    expires_at: float = 0.0


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A policy: that of the charter (number 0) or of a change. kept: admissions that stay good
    under it. before, signer: None in the policy of the charter."""

    digest: bytes
    number: int
    policy: AdmissionPolicy
    kept: frozenset[bytes]
    before: bytes | None
    signer: bytes | None
    changed_at: float


@dataclass(frozen=True, slots=True)
class Ending:
    """One signer's revocation of a member. at: seconds since the epoch. times: number of the
    signer's revocations of the member."""

    kept: frozenset[bytes]
    withdrawn: bool
    at: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class Witness:
    """The peer that has met a participant. member: digest of its own participant's admission."""

    member: bytes
    peer_id: PeerId
    at: float


@dataclass
class Words:
    """The statements taken in, by kind.

    Attributes:
        founder: the charter's digest, which stands for the founder's admission.
        signers: by digest of an admission or a policy change: its signers, in order, with times.
        entries: by digest of an admission: the witnesses of the entry, by digest of their
            statement.
        endings: by digest of an admission: its revocations and withdrawals, by signer.
        revoked_peers: by (member, peer id): the statements of that peer that stay good.
        left_peers: of those, the peers that left, by their own participant's statement.
        witnesses: (member, peer id) of the peers that witnessed entries.
    """

    federation: str
    founder: Member
    charter_policy: PolicyVersion
    members: dict[bytes, Member] = field(default_factory=dict)
    policies: dict[bytes, PolicyVersion] = field(default_factory=dict)
    signers: dict[bytes, dict[bytes, float]] = field(default_factory=dict)
    entries: dict[bytes, dict[bytes, Witness]] = field(default_factory=dict)
    endings: dict[bytes, dict[bytes, Ending]] = field(default_factory=dict)
    revoked_peers: dict[tuple[bytes, bytes], frozenset[bytes]] = field(default_factory=dict)
    left_peers: set[tuple[bytes, bytes]] = field(default_factory=set)
    witnesses: set[tuple[bytes, bytes]] = field(default_factory=set)
    _peers_ended: Counter[bytes] = field(default_factory=Counter)
    _said: Counter[bytes] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.members[self.founder.digest] = self.founder
        self.policies[self.charter_policy.digest] = self.charter_policy

    def signer_of(self, body: Statement) -> tuple[Member, x509.Certificate]:
        """The signer of a statement, and the certificate whose key must have signed it.

        Raises:
            EarlyError: the statement's signer is not known here. UntrustedError: the certificate in
                the entry was not issued to a peer of the witness's participant.
        """
        if isinstance(body, Entry):
            witness = self.member(body.witness)
            certificate = load_certificate(body.certificate)
            check_issued(certificate, witness.certificate)
            return witness, certificate
        signer = self.member(body.sponsor if isinstance(body, Admission) else body.signer)
        return signer, signer.certificate

    def charge(self, signer: Member, statement: bytes) -> None:
        """Count a statement against the share of the signer and of all members above it."""
        self._said.update(dict.fromkeys(self.above(signer.digest), _kib(statement)))

    def check_room(self, signer: Member, statement: bytes) -> None:
        """
        Raises:
            BusyError: the signer, or a member above it, has used its share: see MAX_KIB.
        """
        cost = _kib(statement)
        free = MAX_KIB - self._said[self.founder.digest]
        below = self.above(signer.digest) - {self.founder.digest}
        if cost > free or any(self._said[digest] + cost > free for digest in below):
            raise BusyError(f"{signer.participant}, or one above it, has said too much")

    def above(self, digest: bytes) -> frozenset[bytes]:
        """The member, its sponsors, their sponsors, and so on; sponsors may have approved each
        other."""
        found = {digest}
        waiting = [digest]
        while waiting:
            for sponsor in self.signers.get(waiting.pop(), ()):
                if sponsor not in found:
                    found.add(sponsor)
                    waiting.append(sponsor)
        return frozenset(found)

    def behind(self, digest: bytes) -> set[bytes]:
        """Digests of the admissions and policies on which this admission or policy depends."""
        found = set(self.signers.get(digest, ()))
        found.update(witness.member for witness in self.entries.get(digest, {}).values())
        if (member := self.members.get(digest)) is not None:
            found.add(member.policy)
        if (change := self.policies.get(digest)) is not None and change.before is not None:
            found.add(change.before)
        return found

    def signed_by(self, signer: bytes) -> list[bytes]:
        """Digests of the admissions and policy changes that this member signed, and of the
        admissions whose entry its peers witnessed."""
        signed = [subject for subject, signers in self.signers.items() if signer in signers]
        met = [
            member
            for member, witnesses in self.entries.items()
            if any(witness.member == signer for witness in witnesses.values())
        ]
        return list(dict.fromkeys((*signed, *met)))

    def witnessed_by(self, peer: PeerName) -> list[bytes]:
        """Digests of the admissions whose entry this peer witnessed."""
        return [
            member
            for member, witnesses in self.entries.items()
            if any(witness.peer_id == peer.peer_id for witness in witnesses.values())
        ]

    def member(self, digest: bytes) -> Member:
        """
        Raises:
            EarlyError: no admission of that digest is known.
        """
        member = self.members.get(digest)
        if member is None:
            raise EarlyError("it is by or about a member not known here")
        return member

    def policy(self, digest: bytes) -> PolicyVersion:
        """
        Raises:
            EarlyError: no policy of that digest is known.
        """
        policy = self.policies.get(digest or self.charter_policy.digest)
        if policy is None:
            raise EarlyError("it is about an admission policy not known here")
        return policy

    def names(self, digests: Iterable[bytes]) -> frozenset[str]:
        """The participants of these admissions."""
        return frozenset(self.members[digest].participant for digest in digests)

    # -- taking in

    def open_admission(self, digest: bytes, body: Admission, sponsor: Member) -> Member:
        """The member that the admission would make.

        Raises:
            UntrustedError: the policy does not let this sponsor sign it, or its root is wrong.
        """
        certificate = load_certificate(body.root)
        if check_root(certificate) != body.participant:
            raise UntrustedError(f"the root in the admission is not {body.participant[:64]!a}'s")
        if sponsor.depth >= MAX_CHAIN:
            raise BusyError(f"{body.participant} would be more than {MAX_CHAIN} sponsors deep")
        _check_times(body.admitted_at, body.expires_at)
        policy = self.policy(body.policy)
        if not policy.policy.may_sign(sponsor.participant, body.participant):
            raise UntrustedError(
                f"{sponsor.participant} may not admit {body.participant}: {policy.policy.who} may"
            )
        return Member(
            digest,
            body.participant,
            certificate,
            body.sponsor,
            sponsor.depth + 1,
            policy.digest,
            body.admitted_at,
            body.expires_at,
        )

    def add_admission(self, member: Member, sponsor: Member) -> None:
        self.members[member.digest] = member
        self.signers[member.digest] = {sponsor.digest: member.admitted_at}

    def remove_admission(self, member: Member) -> None:
        del self.members[member.digest], self.signers[member.digest]

    def add_approval(self, body: Approval, signer: Member) -> str:
        """
        Raises:
            EarlyError: the approved statement is not known.
            UntrustedError: the signer may not approve it.
            ConflictError: the signer has signed it already.
        """
        _check_times(body.approved_at)
        if (change := self.policies.get(body.subject)) is not None:
            if change.before is None or not _of_changes(self, change).may_sign(signer.participant):
                raise UntrustedError(f"{signer.participant} may not change the admission policy")
            what = f"the admission policy {change.policy}"
        else:
            member = self.member(body.subject)
            policy = self.policies[member.policy].policy
            is_founder = member.digest == self.founder.digest
            if is_founder or not (
                policy.sponsors and policy.may_sign(signer.participant, member.participant)
            ):
                raise UntrustedError(f"{signer.participant} may not approve {member.participant}")
            what = f"the admission of {member.participant}"
        if signer.digest in self.signers[body.subject]:
            raise ConflictError(f"{signer.participant} has signed {what} already")
        self.signers[body.subject][signer.digest] = body.approved_at
        return f"took the signature of {signer.participant} for {what}"

    def add_entry(
        self, digest: bytes, body: Entry, witness: Member, certificate: x509.Certificate
    ) -> str:
        """
        Raises:
            EarlyError: the member is not known.
            UntrustedError: the entry is too late, or the witness may not confirm it.
            BusyError: too many peers of the witness' participant have confirmed it.
        """
        member = self.member(body.member)
        _check_times(body.entered_at)
        if not member.expires_at or body.entered_at > member.expires_at:
            raise UntrustedError(f"the invitation of {member.participant} had ended by then")
        peer_id = check_issued(certificate, witness.certificate).peer_id
        # several witnesses may do so concurrently: all are kept, so that all peers' sets agree
        entries = self.entries.setdefault(member.digest, {})
        if sum(each.member == witness.digest for each in entries.values()) >= MAX_WITNESSES:
            raise BusyError(
                f"{MAX_WITNESSES} peers of {witness.participant} have met {member.participant}"
            )
        entries[digest] = Witness(witness.digest, peer_id, body.entered_at)
        self.witnesses.add((witness.digest, peer_id))
        return f"let in {member.participant}, met by {witness.participant}"

    def add_policy(self, digest: bytes, body: PolicyChange, signer: Member) -> str:
        """
        Raises:
            EarlyError: the policy before is not known.
            UntrustedError: the signer may not change it. DecodeError, InvalidInputError: no policy.
        """
        before = self.policy(body.before)
        _check_times(body.changed_at)
        if body.number != before.number + 1:
            raise DecodeError(f"policy change {body.number} does not follow {before.number}")
        if not before.policy.of_changes.may_sign(signer.participant):
            raise UntrustedError(f"{signer.participant} may not change the admission policy")
        changes = sum(each.signer == signer.digest for each in self.policies.values())
        if changes >= MAX_CHANGES:
            raise BusyError(f"{signer.participant} has changed the policy {MAX_CHANGES} times")
        policy = AdmissionPolicy.parse(body.admission, self.founder.participant)
        self.policies[digest] = PolicyVersion(
            digest,
            body.number,
            policy,
            frozenset(body.kept),
            before.digest,
            signer.digest,
            body.changed_at,
        )
        self.signers[digest] = {signer.digest: body.changed_at}
        return f"took the signature of {signer.participant} for the admission policy {policy}"

    def add_revocation(self, body: Revocation, signer: Member) -> Member:
        """Take in a revocation; returns the revoked member. Raises: EarlyError: the member is not
        known. UntrustedError: the signer may not revoke the member. ConflictError: the member is
        revoked already. BusyError: the signer has signed too many.
        """
        member = self.member(body.member)
        _check_times(body.revoked_at)
        if signer.digest not in self.above(member.digest):
            raise UntrustedError(f"{signer.participant} may not revoke {member.participant}")
        kept = frozenset(body.kept)
        if body.peer_id:
            if len(body.peer_id) != PEER_ID_BYTES:
                raise DecodeError(f"a peer id has {PEER_ID_BYTES} bytes, not {len(body.peer_id)}")
            peer = (member.digest, body.peer_id)
            known = self.revoked_peers.get(peer)
            if known is not None and known <= kept:
                raise ConflictError(f"peer {body.peer_id.hex()} was revoked already")
            if self._peers_ended[signer.digest] >= MAX_REVOKED_PEERS:
                raise BusyError(
                    f"{signer.participant} has revoked {MAX_REVOKED_PEERS} peers, the most: revoke "
                    f"{member.participant} itself, and admit it under another name"
                )
            self._peers_ended[signer.digest] += 1
            self.revoked_peers[peer] = kept if known is None else known & kept
            if body.withdrawn and signer.digest == member.digest:
                self.left_peers.add(peer)
            return member
        endings = self.endings.setdefault(member.digest, {})
        before = endings.get(signer.digest)
        if before is not None:
            if before.kept <= kept and before.withdrawn >= body.withdrawn:
                raise ConflictError(f"{member.participant} was revoked already")
            if before.times >= MAX_ENDINGS:
                raise BusyError(
                    f"{signer.participant} has said {MAX_ENDINGS} times that the membership of "
                    f"{member.participant} ends"
                )
            kept &= before.kept
        withdrawn = body.withdrawn or (before is not None and before.withdrawn)
        at = body.revoked_at if before is None else min(before.at, body.revoked_at)
        times = 1 if before is None else before.times + 1
        endings[signer.digest] = Ending(kept, withdrawn, at, times)
        return member


def _of_changes(words: Words, change: PolicyVersion) -> AdmissionPolicy:
    assert change.before is not None
    return words.policies[change.before].policy.of_changes


def _check_times(*moments: float) -> None:
    if not all(math.isfinite(moment) and moment >= 0 for moment in moments):
        raise DecodeError("membership statement: a time in it is none")


def _kib(statement: bytes) -> int:
    return -(-len(statement) // 1024)
