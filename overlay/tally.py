"""Counts the members' statements: a function of their set, not of their order.

* A statement counts if its signer counts.
* The founder counts. A participant counts once statements of counted members admit it. This repeats
  until none is added (a least fixed point).
* So participants outside cannot admit each other, however many statements they sign.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from medusa.overlay.words import Member, PolicyVersion, Words


@dataclass
class Tally:
    """The result of counting a set of statements.

    Attributes:
        policy: the policy in force.
        counted: digests of the admissions that count, those of revoked members too.
        entered: the digests of the members that have entered: their statements count.
        revoked: members whose revocation counts, each with its statements that stay good.
        withdrawn: admissions that never counted.
    """

    words: Words
    policy: PolicyVersion
    counted: set[bytes]
    entered: set[bytes]
    revoked: dict[bytes, frozenset[bytes]]
    withdrawn: frozenset[bytes]

    @classmethod
    def of(cls, words: Words) -> Tally:
        """Count all statements."""
        withdrawn, revoked = set(), {}
        for digest, endings in words.endings.items():
            member = words.members[digest]
            takers = {signer for signer, ending in endings.items() if ending.withdrawn}
            if takers and _is_taken_out(words, member, takers):
                withdrawn.add(digest)
            elif _is_taken_out(words, member, endings.keys()):
                revoked[digest] = frozenset.intersection(*(e.kept for e in endings.values()))
        start = words.charter_policy
        best = cls(words, start, set(), set(), revoked, frozenset(withdrawn))._count()
        tallies = {start.digest: best}
        for change in sorted(words.policies.values(), key=lambda p: p.number):
            before = tallies.get(change.before or b"")
            if before is None or not before.is_changed_by(change):
                continue
            tally = cls(words, change, set(), set(), revoked, frozenset(withdrawn))._count()
            tallies[change.digest] = tally
            # all peers must choose the same one of two concurrent changes with the same number
            best = max(best, tally, key=lambda t: (t.policy.number, t.policy.digest))
        return best

    def is_changed_by(self, change: PolicyVersion) -> bool:
        """Whether enough members that may sign this change of the policy have signed it."""
        signers = self._signers_of(change.digest)
        return self.policy.policy.of_changes.is_met(self.words.names(signers))

    def admits(self, member: Member) -> bool:
        """Whether the counted statements admit this member, under the policy in force."""
        policy = self.words.policies[member.policy]
        return (
            member.digest not in self.withdrawn
            and (policy.digest == self.policy.digest or member.digest in self.policy.kept)
            and policy.policy.is_met(
                self.words.names(self._signers_of(member.digest)), member.participant
            )
        )

    def has_entered(self, member: Member) -> bool:
        """Whether the member has entered, or its admission has no expiry."""
        if not member.expires_at:
            return True
        for witness in self.words.entries.get(member.digest, {}).values():
            kept = self.words.revoked_peers.get((witness.member, witness.peer_id))
            if self._counts(witness.member, member.digest) and (
                kept is None or member.digest in kept
            ):
                return True
        return False

    def add(self, member: Member) -> bool:
        """Count a member to which no other statement refers yet; whether it counts."""
        if not self.admits(member):
            return False
        self.counted.add(member.digest)
        if self.has_entered(member):
            self.entered.add(member.digest)
        return True

    def _count(self) -> Tally:
        founder = self.words.founder.digest
        self.counted, self.entered = {founder}, {founder}
        grew = True
        while grew:
            before = len(self.counted) + len(self.entered)
            for member in self.words.members.values():
                if member.digest not in self.entered:
                    self.add(member)
            grew = len(self.counted) + len(self.entered) > before
        return self

    def _signers_of(self, subject: bytes) -> set[bytes]:
        """The members whose signature under the statement counts."""
        return {s for s in self.words.signers.get(subject, ()) if self._counts(s, subject)}

    def _counts(self, signer: bytes, subject: bytes) -> bool:
        """Whether the signer's signature under that statement counts."""
        kept = self.revoked.get(signer)
        return signer in self.entered and (kept is None or subject in kept)


def _is_taken_out(words: Words, member: Member, takers: Set[bytes]) -> bool:
    """Whether these members together may end that member's membership.

    They may if the member is one of the takers. They may as well if its sponsors without the
    takers, and without the members that the takers may end, are too few.
    """
    left = words.above(member.digest) - takers
    standing = set(left & {words.founder.digest})
    grew = True
    while grew and member.digest not in standing:
        found = {digest for digest in left - standing if _is_held(words, digest, standing)}
        standing |= found
        grew = bool(found)
    return member.digest not in standing


def _is_held(words: Words, digest: bytes, by: Set[bytes]) -> bool:
    """Whether the signatures of these members admit that member."""
    policy = words.policies[words.members[digest].policy].policy
    signers = words.names(words.signers.get(digest, {}).keys() & by)
    return policy.is_met(signers, words.members[digest].participant)
