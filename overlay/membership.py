"""Who belongs to the federation: a replicated set of signed statements, sans-IO.

The statements form a tree: the charter at the root, every admission below its sponsor's. A member
is in one of three standings, which follow from the set of statements alone, not from their order:

* good: its chain of sponsors up to the charter is unbroken;
* revoked: a revocation names it; it keeps its name, so that nobody else can take that;
* void: some member above it was revoked without keeping the admission that leads here; it never
  counted, and its name is free.

The one thing that depends on order is the rule that the first root known for a name stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from overlay.certificates import (
    PEER_ID_BYTES,
    PeerName,
    check_certificate,
    check_root,
    claimed_participant,
    der,
    load_certificate,
    public_key_of,
)
from overlay.errors import (
    BusyError,
    ConflictError,
    DecodeError,
    MedusaError,
    NotFoundError,
    UntrustedError,
)
from overlay.events import Change
from overlay.identity import Root
from overlay.names import MAX_PARTICIPANT
from overlay.statements import (
    MAX_KEPT,
    Admission,
    Charter,
    Revocation,
    digest_of,
    federation_id,
    open_charter,
    open_statement,
    seal_charter,
    seal_statement,
    verify_charter,
    verify_statement,
)

MAX_KIB: Final = 10_000
"""KiB of statements of a federation, each rounded up: bounds what hostile members can make every
peer store. A list of that many digests fits one message of an exchange.

A member and those below it may have said as much as is still free for all others. So one hostile
member takes half at most, n of them leave 1/(n+1), and there is always room to revoke them."""

MAX_CHAIN: Final = 32
"""Sponsors between a member and the charter: bounds the walk up."""

MAX_REFUSED: Final = 1_000
"""Digests of refused statements remembered, so that they are not sent to us again and again."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One admission (or the charter). sponsor: digest of the sponsor's; None for the founder."""

    digest: bytes
    participant: str
    certificate: x509.Certificate
    sponsor: bytes | None
    depth: int


class Membership:
    """The members of one federation, as far as this peer has heard.

    Attributes:
        charter: the charter's bytes. federation: its id. name: what people call it.
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
        founder = _Member(digest_of(charter), body.founder, certificate, None, 0)
        self._members: dict[bytes, _Member] = {founder.digest: founder}
        self._statements: dict[bytes, bytes] = {}
        self._said: Counter[bytes] = Counter()
        self._refused: dict[bytes, None] = {}
        self._kept: dict[bytes, frozenset[bytes]] = {}
        self._revoked_peers: set[tuple[bytes, bytes]] = set()
        self._holders: dict[str, _Member] = {}
        self._settle()
        self.merge(statements, 0.0)

    @classmethod
    def found(cls, root: Root, now: float, name: str = "medusa") -> Membership:
        """A new federation with one member. now: seconds since the epoch."""
        charter = Charter(name, root.participant, der(root.certificate), now)
        return cls(seal_charter(root.private_key, charter))

    def admit(self, sponsor: Root, certificate: x509.Certificate, now: float) -> bytes:
        """Admit the participant of that root certificate; the admission, already merged.

        Admitting the same root again gives the admission that exists.

        Raises:
            ConflictError: the name is taken by another root.
            UntrustedError: the sponsor is no member in good standing, or the certificate no root.
            BusyError: the sponsor has admitted as many as it may.
        """
        member = self._good(sponsor)
        participant = check_root(certificate)
        holder = self._holders.get(participant)
        if holder is not None and holder.certificate == certificate:
            return self._statements.get(holder.digest, self.charter)
        if len(self._admitted_by(member.digest)) >= MAX_KEPT:
            raise BusyError(f"{member.participant} has admitted {MAX_KEPT} participants, the most")
        body = Admission(self.federation, participant, der(certificate), member.digest, now)
        return self._say(sponsor, body)

    def revoke(self, signer: Root, participant: str, peer_id: bytes = b"", *, now: float) -> bytes:
        """Revoke a participant, or one peer of it; the revocation, already merged.

        The participants it has admitted, as far as known here, stay.

        Raises:
            NotFoundError: no such participant.
            UntrustedError: the signer is neither the participant nor a sponsor above it.
        """
        holder = self._holders.get(participant)
        if holder is None:
            raise NotFoundError(f"{participant} is no member of federation {self.name}")
        kept = () if peer_id else tuple(self._admitted_by(holder.digest)[:MAX_KEPT])
        signed_by = self._good(signer)
        body = Revocation(self.federation, holder.digest, peer_id, signed_by.digest, kept, now)
        return self._say(signer, body)

    def merge(self, statements: Iterable[bytes], now: float) -> list[Change]:
        """Take in what others say; what was new, and what was refused and why. Never raises.

        Order does not matter within one call: a statement is tried again once others are in.
        now is not used: statements are timeless.
        """
        del now
        waiting = {digest_of(s): s for s in statements}
        changes: list[Change] = []
        while waiting:
            early: dict[bytes, _EarlyError] = {}
            for digest, statement in waiting.items():
                if digest in self._statements or digest in self._refused:
                    continue
                try:
                    changes.append(Change(self._take(digest, statement)))
                except _EarlyError as error:
                    early[digest] = error
                except MedusaError as error:
                    self._refuse(digest)
                    changes.append(_refusal(error))
            if len(early) == len(waiting):
                return changes + [_refusal(error) for error in early.values()]
            waiting = {digest: waiting[digest] for digest in early}
        return changes

    def root_of(self, participant: str) -> x509.Certificate | None:
        """The root of a member in good standing."""
        member = self._holders.get(participant)
        return member.certificate if member is not None and not self._revoked(member) else None

    def roots(self) -> tuple[x509.Certificate, ...]:
        """The roots of all members in good standing."""
        return tuple(m.certificate for m in self._holders.values() if not self._revoked(m))

    def participants(self) -> tuple[str, ...]:
        """The members in good standing, sorted."""
        return tuple(sorted(n for n, m in self._holders.items() if not self._revoked(m)))

    def authenticate(self, certificate_der: bytes, now: float) -> PeerName:
        """Whose certificate that is. now: seconds since the epoch.

        Raises:
            UntrustedError: no certificate, not admitted, revoked, expired, of a wrong root.
        """
        try:
            certificate = load_certificate(certificate_der)
        except MedusaError as error:
            raise UntrustedError(str(error)) from None
        participant = claimed_participant(certificate)
        member = self._holders.get(participant)
        if member is None:
            raise UntrustedError(f"{participant} is not admitted to federation {self.name}")
        name = check_certificate(certificate, member.certificate, now)
        self.check(name)
        return name

    def check(self, name: PeerName) -> None:
        """
        Raises:
            UntrustedError: this peer, whose certificate was good, has been revoked since.
        """
        member = self._holders.get(name.participant)
        if member is None:
            raise UntrustedError(f"{name.participant} is not admitted to federation {self.name}")
        if self._revoked(member):
            raise UntrustedError(f"{name.participant} has been revoked")
        if (member.digest, name.peer_id) in self._revoked_peers:
            raise UntrustedError(f"peer {name.peer_id.hex()} of {name.participant} was revoked")

    def stands(self, name: PeerName) -> bool:
        """`check`, answered instead of raised."""
        try:
            self.check(name)
        except UntrustedError:
            return False
        return True

    def chain_of(self, participant: str) -> tuple[bytes, ...]:
        """The admissions that lead to a member, the charter's side first.

        Raises:
            NotFoundError: no member of that name.
        """
        member = self._holders.get(participant)
        if member is None:
            raise NotFoundError(f"{participant} is no member of federation {self.name}")
        chain = reversed(self._chain(member))
        return tuple(self._statements[digest] for digest in chain if digest in self._statements)

    def statements(self) -> tuple[bytes, ...]:
        """All statements held, each after those that it builds on."""
        return tuple(self._statements.values())

    def have(self) -> tuple[bytes, ...]:
        """Digests of what need not be sent to us: what we hold, and what we refused."""
        return (*self._statements, *self._refused)

    def missing(self, have: Iterable[bytes]) -> tuple[bytes, ...]:
        """The statements held here whose digests are not among these, in a good order."""
        known = frozenset(have)
        return tuple(s for digest, s in self._statements.items() if digest not in known)

    def pick(self, digests: Iterable[bytes]) -> tuple[bytes, ...]:
        """The statements of these digests, as far as they are held here."""
        return tuple(self._statements[d] for d in digests if d in self._statements)

    def _say(self, signer: Root, body: Admission | Revocation) -> bytes:
        statement = seal_statement(signer.private_key, body)
        self._take(digest_of(statement), statement)
        return statement

    def _take(self, digest: bytes, statement: bytes) -> str:
        body, envelope = open_statement(statement)
        if body.federation != self.federation:
            raise UntrustedError(f"it is of another federation, {body.federation[:32]!a}")
        signer = self._member(body.sponsor if isinstance(body, Admission) else body.signer)
        verify_statement(public_key_of(signer.certificate), envelope)
        cost = _kib(statement)
        self._check_room(signer, cost)
        if isinstance(body, Admission):
            text = self._take_admission(digest, body, signer)
        else:
            text = self._take_revocation(body, signer)
        self._statements[digest] = statement
        self._said.update(dict.fromkeys(self._chain(signer), cost))
        return text

    def _check_room(self, signer: _Member, cost: int) -> None:
        """
        Raises:
            BusyError: the signer, or a member above it, has taken its share: see MAX_KIB.
        """
        *chain, charter = self._chain(signer)
        free = MAX_KIB - self._said[charter]
        if cost > free or any(self._said[digest] + cost > free for digest in chain):
            raise BusyError(f"{signer.participant}, or one above it, has said too much")

    def _take_admission(self, digest: bytes, body: Admission, sponsor: _Member) -> str:
        certificate = load_certificate(body.root)
        if check_root(certificate) != body.participant:
            raise UntrustedError(f"the root in the admission is not {body.participant[:64]!a}'s")
        if sponsor.depth >= MAX_CHAIN:
            raise BusyError(f"{body.participant} would be more than {MAX_CHAIN} sponsors deep")
        member = _Member(digest, body.participant, certificate, body.sponsor, sponsor.depth + 1)
        holder = self._holders.get(body.participant)
        # a void admission is stored like any other, or the sets of two peers would never agree
        void = self._would_be_void(member)
        if holder is not None and not void:
            kind = "again" if holder.certificate == certificate else "with a second root"
            raise ConflictError(
                f"{sponsor.participant} admits {body.participant} {kind}; the first admission stays"
            )
        self._members[digest] = member
        if void:
            return f"{body.participant} not admitted: {sponsor.participant}'s word no longer counts"
        self._holders[body.participant] = member
        return f"{body.participant} admitted by {sponsor.participant}"

    def _take_revocation(self, body: Revocation, signer: _Member) -> str:
        member = self._member(body.member)
        if signer.digest not in self._chain(member):
            raise UntrustedError(f"{signer.participant} may not revoke {member.participant}")
        if body.peer_id:
            if len(body.peer_id) != PEER_ID_BYTES:
                raise DecodeError(f"a peer id has {PEER_ID_BYTES} bytes, not {len(body.peer_id)}")
            if (member.digest, body.peer_id) in self._revoked_peers:
                raise ConflictError(f"peer {body.peer_id.hex()} was revoked already")
            self._revoked_peers.add((member.digest, body.peer_id))
            return f"peer {body.peer_id.hex()} of {member.participant} revoked"
        before, kept = self._kept.get(member.digest), frozenset(body.kept)
        if before is not None and before <= kept:
            raise ConflictError(f"{member.participant} was revoked already")
        self._kept[member.digest] = kept if before is None else before & kept
        self._settle()
        self._refused.clear()  # a name may have become free: what was refused deserves another try
        return f"{member.participant} revoked by {signer.participant}"

    def _settle(self) -> None:
        """Who holds each name: among the members that are not void, the first known."""
        holders: dict[str, _Member] = {}
        for member in self._members.values():
            if not self._would_be_void(member):
                holders.setdefault(member.participant, member)
        self._holders = holders

    def _would_be_void(self, member: _Member) -> bool:
        while member.sponsor is not None:
            kept = self._kept.get(member.sponsor)
            if kept is not None and member.digest not in kept:
                return True
            member = self._members[member.sponsor]
        return False

    def _revoked(self, member: _Member) -> bool:
        return member.digest in self._kept

    def _chain(self, member: _Member) -> list[bytes]:
        """The digests from this member up to the charter, its own first."""
        digests = [member.digest]
        while member.sponsor is not None:
            digests.append(member.sponsor)
            member = self._members[member.sponsor]
        return digests

    def _member(self, digest: bytes) -> _Member:
        member = self._members.get(digest)
        if member is None:
            raise _EarlyError("it is by or about a member not known here")
        return member

    def _good(self, root: Root) -> _Member:
        """The member whose root that is."""
        member = self._holders.get(root.participant)
        if member is None or member.certificate != root.certificate:
            raise UntrustedError(f"{root.participant} is no member of federation {self.name}")
        if self._revoked(member):
            raise UntrustedError(f"{root.participant} has been revoked")
        return member

    def _admitted_by(self, sponsor: bytes) -> list[bytes]:
        return [m.digest for m in self._members.values() if m.sponsor == sponsor]

    def _refuse(self, digest: bytes) -> None:
        self._refused[digest] = None
        while len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]


def _kib(statement: bytes) -> int:
    return -(-len(statement) // 1024)


class _EarlyError(UntrustedError, code="early"):
    """A statement whose member or signer is not known: it may be, later."""


def _refusal(error: MedusaError) -> Change:
    return Change(f"membership statement refused: {error}", error)
