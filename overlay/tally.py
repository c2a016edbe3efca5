"""Counts the members' statements: a function of their set, not of their order.

A statement counts if its signer counts. The founder counts. A participant counts once statements of
counted members admit it; this goes on until none is added (a least fixed point). So participants
outside cannot admit each other, however many statements they sign.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from overlay.words import Member, PolicyVersion, Words


@dataclass
class Tally:
    """
    Attributes:
        policy: the one in force.
        counted: digests of the admissions that count, of revoked members too.
        entered: those of them that were taken up in time, or need not be: their words count.
        revoked: members whose end counts, and what they signed that stays good.
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
        """Count everything anew."""
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
            # of two changes of one number, made apart, everybody must choose the same one
            best = max(best, tally, key=lambda t: (t.policy.number, t.policy.digest))
        return best

    def is_changed_by(self, change: PolicyVersion) -> bool:
        """Whether enough members that may sign this change of the policy have signed it."""
        signers = self._heard(change.digest)
        return self.policy.policy.of_changes.is_met(self.words.names(signers))

    def admits(self, member: Member) -> bool:
        """Whether the words that count admit this member, under the policy in force."""
        policy = self.words.policies[member.policy]
        return (
            member.digest not in self.withdrawn
            and (policy.digest == self.policy.digest or member.digest in self.policy.kept)
            and policy.policy.is_met(
                self.words.names(self._heard(member.digest)), member.participant
            )
        )

    def has_entered(self, member: Member) -> bool:
        """Whether it need not enter any more."""
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
        """Count a member that nobody has referred to yet; whether it counts."""
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

    def _heard(self, subject: bytes) -> set[bytes]:
        """Those whose signature under it counts."""
        return {s for s in self.words.signers.get(subject, ()) if self._counts(s, subject)}

    def _counts(self, signer: bytes, subject: bytes) -> bool:
        """Whether the signer's word on that subject counts."""
        kept = self.revoked.get(signer)
        return signer in self.entered and (kept is None or subject in kept)


def _is_taken_out(words: Words, member: Member, takers: Set[bytes]) -> bool:
    """Whether these members together may end that one's membership: it is one of them, or without
    their words, and those of members that they may end, too few are left that admit it."""
    left = words.above(member.digest) - takers
    standing = set(left & {words.founder.digest})
    grew = True
    while grew and member.digest not in standing:
        found = {digest for digest in left - standing if _is_held(words, digest, standing)}
        standing |= found
        grew = bool(found)
    return member.digest not in standing


def _is_held(words: Words, digest: bytes, by: Set[bytes]) -> bool:
    """Whether the words of these members admit that one."""
    policy = words.policies[words.members[digest].policy].policy
    signers = words.names(words.signers.get(digest, {}).keys() & by)
    return policy.is_met(signers, words.members[digest].participant)
