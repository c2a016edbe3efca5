"""The replicated set of members' statements, sans-IO: it only grows, and order does not matter.

One rule depends on order: the first root known for a name stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from cryptography import x509

from medusa.overlay.admission_policy import AdmissionPolicy
from medusa.overlay.certificates import check_root, load_certificate, public_key_of
from medusa.overlay.errors import ConflictError, DecodeError, MedusaError, UntrustedError
from medusa.overlay.events import Change
from medusa.overlay.names import MAX_PARTICIPANT
from medusa.overlay.statements import (
    Admission,
    Approval,
    Entry,
    PolicyChange,
    Revocation,
    Statement,
    digest_of,
    federation_id,
    open_charter,
    open_statement,
    verify_charter,
    verify_statement,
)
from medusa.overlay.tally import Tally
from medusa.overlay.words import EarlyError, Member, PolicyVersion, Words

MAX_REFUSED: Final = 1_000
"""Digests of refused statements remembered, so that they are not sent to this peer again and
again."""


@dataclass(frozen=True, slots=True)
class _Count:
    """The result of all statements that were accepted so far."""

    tally: Tally
    holders: dict[str, Member]


class StatementStore:
    """The statements of one federation, as far as known here, and the holder of each name.

    Attributes:
        charter: the charter's bytes.
        federation: its id.
        name: its name for people.
        founder: the participant that founded it.
        words: the statements.
    """

    def __init__(self, charter: bytes, statements: Iterable[bytes] = ()) -> None:
        """
        Raises:
            DecodeError, UntrustedError: the charter is none, or not signed by its founder.
        """
        body, envelope = open_charter(charter)
        certificate = load_certificate(body.root)
        if check_root(certificate) != body.founder:
            raise UntrustedError("charter: the root in it is not its founder's")
        if not (0 < len(body.name) <= MAX_PARTICIPANT and body.name.isprintable()):
            raise DecodeError(f"charter: a federation's name has 1 to {MAX_PARTICIPANT} characters")
        verify_charter(public_key_of(certificate), envelope)
        self.charter = charter
        self.federation = federation_id(charter)
        self.name = body.name
        self.founder = body.founder
        at, digest = body.founded_at, digest_of(charter)
        policy = AdmissionPolicy.parse(body.admission, body.founder)
        self.words = Words(
            self.federation,
            Member(digest, body.founder, certificate, None, 0, digest, at),
            PolicyVersion(digest, 0, policy, frozenset(), None, None, at),
        )
        self._statements: dict[bytes, bytes] = {}
        self._refused: dict[bytes, None] = {}
        self._about: dict[bytes, bytes] = {}
        self._count: _Count | None = None
        self.merge(statements, 0.0)

    @property
    def tally(self) -> Tally:
        """The statements that count."""
        return self._counted().tally

    @property
    def _holders(self) -> dict[str, Member]:
        """The holder of each name: the first known member with that name whose admission counts."""
        return self._counted().holders

    def merge(self, statements: Iterable[bytes], now: float) -> list[Change]:
        """Take in others' statements; returns the new and the refused ones. Never raises.

        Order within one call does not matter: a statement is tried again after the others. `now` is
        not used: statements are timeless.
        """
        del now
        waiting = {digest_of(s): s for s in statements}
        changes: list[Change] = []
        while waiting:
            early: dict[bytes, EarlyError] = {}
            for digest, statement in waiting.items():
                if digest in self._statements or digest in self._refused:
                    continue
                try:
                    changes.append(Change(self.take(digest, statement)))
                except EarlyError as error:
                    early[digest] = error
                except MedusaError as error:
                    self._refuse(digest)
                    changes.append(_refusal(error))
            if len(early) == len(waiting):
                return changes + [_refusal(error) for error in early.values()]
            waiting = {digest: waiting[digest] for digest in early}
        return changes

    def behind(self, digest: bytes) -> tuple[bytes, ...]:
        """An admission and the statements that it depends on, in the order from the charter on."""
        needed, waiting = {digest}, [digest]
        while waiting:
            for each in self.words.behind(waiting.pop()) - needed:
                needed.add(each)
                waiting.append(each)
        return tuple(
            statement
            for own, statement in self._statements.items()
            if own in needed or self._about.get(own) in needed
        )

    def statements(self) -> tuple[bytes, ...]:
        """All held statements, each after those that it depends on."""
        return tuple(self._statements.values())

    def have(self) -> tuple[bytes, ...]:
        """Digests of statements that need not be sent to us: the held and the refused ones."""
        return (*self._statements, *self._refused)

    def missing(self, have: Iterable[bytes]) -> tuple[bytes, ...]:
        """The held statements whose digests are not among these, each after those that it depends
        on."""
        known = frozenset(have)
        return tuple(s for digest, s in self._statements.items() if digest not in known)

    def pick(self, digests: Iterable[bytes]) -> tuple[bytes, ...]:
        """The held statements with these digests."""
        return tuple(self._statements[d] for d in digests if d in self._statements)

    def take(self, digest: bytes, statement: bytes) -> str:
        """Take in one statement; returns its meaning in words.

        Raises:
            EarlyError: the statement refers to a statement that is not yet known. MedusaError: the
                statement cannot be believed.
        """
        body, envelope = open_statement(statement)
        if body.federation != self.federation:
            raise UntrustedError(f"it is of another federation, {body.federation[:32]!a}")
        signer, certificate = self.words.signer_of(body)
        verify_statement(public_key_of(certificate), envelope)
        self.words.check_room(signer, statement)
        text = self._add(digest, body, signer, certificate)
        self._statements[digest] = statement
        self.words.charge(signer, statement)
        return text

    def _add(
        self, digest: bytes, body: Statement, signer: Member, certificate: x509.Certificate
    ) -> str:
        match body:
            case Admission():
                return self._add_admission(digest, body, signer)
            case Approval():
                text = self.words.add_approval(body, signer)
                self._about[digest] = body.subject
            case Entry():
                text = self.words.add_entry(digest, body, signer, certificate)
                self._about[digest] = body.member
                if not self.words.signed_by(body.member):  # nothing depends on it yet
                    self.tally.add(self.words.members[body.member])
                    return text
            case PolicyChange():
                text = self.words.add_policy(digest, body, signer)
            case Revocation():
                return self._add_revocation(body, signer)
            case _:
                assert_never(body)
        self._recount()
        return text

    def _add_admission(self, digest: bytes, body: Admission, sponsor: Member) -> str:
        member = self.words.open_admission(digest, body, sponsor)
        holder = self._holders.get(body.participant)  # the holder by the earlier admissions
        self.words.add_admission(member, sponsor)
        # a statement that does not count is stored as well, so that all peers' sets agree
        if not self.tally.admits(member):
            needed = self.words.policies[member.policy].policy.needed
            if needed > 1 and member.policy == self.tally.policy.digest:
                signed = f"took the signature of {sponsor.participant} for the admission of"
                return f"{signed} {body.participant}: {needed} sponsors must sign"
            return f"left {body.participant} out: {sponsor.participant}'s word no longer counts"
        if holder is not None:
            self.words.remove_admission(member)
            kind = "again" if holder.certificate == member.certificate else "with a second root"
            raise ConflictError(
                f"{sponsor.participant} admits {body.participant} {kind}; the first admission stays"
            )
        self.tally.add(member)
        self._holders[body.participant] = member
        if member.expires_at:
            return f"invited {body.participant}, by {sponsor.participant}"
        return f"admitted {body.participant}, by {sponsor.participant}"

    def _add_revocation(self, body: Revocation, signer: Member) -> str:
        member = self.words.add_revocation(body, signer)
        if body.peer_id:
            peer = (member.digest, body.peer_id)
            if peer in self.words.witnesses:  # no statement about other peers counts less
                self._recount()
            text = f"peer {body.peer_id.hex()} of {member.participant}"
            left = peer in self.words.left_peers
            return f"lost {text}: it has left" if left else f"revoked {text}"
        self._recount()
        if member.digest in self.tally.withdrawn:
            return f"withdrew the invitation of {member.participant}, by {signer.participant}"
        if member.digest not in self.tally.revoked:
            return f"took back the word of {signer.participant} for {member.participant}"
        if signer.digest == member.digest:
            return f"lost {member.participant}: it has left"
        return f"revoked {member.participant}, by {signer.participant}"

    def _recount(self) -> None:
        """Count all statements again when that is next needed: a count costs milliseconds, and most
        statements come together with others, as at a start."""
        self._count = None
        # a name may be free now, or a statement count: refused statements get another try
        self._refused.clear()

    def _counted(self) -> _Count:
        if self._count is None:
            tally = Tally.of(self.words)
            holders: dict[str, Member] = {}
            for digest, member in self.words.members.items():
                if digest in tally.counted:
                    holders.setdefault(member.participant, member)
            self._count = _Count(tally, holders)
        return self._count

    def _refuse(self, digest: bytes) -> None:
        self._refused[digest] = None
        while len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]


def _refusal(error: MedusaError) -> Change:
    return Change(f"refused a membership statement: {error}", error)
