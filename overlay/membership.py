"""The members of the federation, and the statements by which they admit, revoke and leave.

The statements alone decide the standing of a member:

* good: the counted statements admit it (`medusa.overlay.tally`); before a member has met it, it is
  invited;
* revoked: it left, or a member above it ended its membership; its name stays taken;
* void: its sponsors are too few, or their statements no longer count, or its invitation was
  withdrawn; its membership never counted, and its name is free.
"""

from __future__ import annotations

from cryptography import x509

from medusa.overlay.admission_policy import FOUNDER, AdmissionPolicy
from medusa.overlay.certificates import (
    PeerName,
    check_certificate,
    check_root,
    claimed_participant,
    der,
    load_certificate,
    short_fingerprint,
)
from medusa.overlay.clock import shown
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UntrustedError,
)
from medusa.overlay.identity import Identity, Root
from medusa.overlay.names import NO_PEER, PeerId
from medusa.overlay.statement_store import StatementStore
from medusa.overlay.statements import (
    MAX_KEPT,
    Admission,
    Approval,
    Charter,
    Entry,
    PolicyChange,
    Revocation,
    Statement,
    digest_of,
    seal_charter,
    seal_statement,
)
from medusa.overlay.words import Member, PolicyVersion


class Membership(StatementStore):
    """The members of one federation, as far as this peer knows."""

    @classmethod
    def found(
        cls, root: Root, now: float, name: str = "medusa", admission: str = FOUNDER
    ) -> Membership:
        """Found a federation with one member. now: seconds since the epoch.

        Raises:
            InvalidInputError: that is no admission policy.
        """
        policy = AdmissionPolicy.parse(admission, root.participant)
        charter = Charter(name, root.participant, der(root.certificate), now, str(policy))
        return cls(seal_charter(root.private_key, charter))

    # -- statements of our own root

    def admit(
        self, sponsor: Root, certificate: x509.Certificate, now: float, expires_at: float = 0.0
    ) -> bytes:
        """Admit the participant of that root certificate; returns the merged statement.

        Where several sponsors must sign, the first one's statement is the admission and the others
        approve it. The same root again gives the same admission; one that has expired is made anew.

        Args:
            expires_at: the end of the invitation, seconds since the epoch; 0: it has none.

        Raises:
            ConflictError: the name is taken by another root, or was revoked.
            NotAuthorisedError: the admission policy does not name this sponsor.
            UntrustedError: the sponsor is no member in good standing, or the certificate no root.
            BusyError: the sponsor has admitted as many as it may.
        """
        member = self._good(sponsor)
        participant = check_root(certificate)
        self._check_may_admit(member, participant)
        holder = self._holders.get(participant)
        if holder is not None:
            self._check_is_free(holder, certificate)
            if not self._has_ended(holder, now):
                return self._statements.get(holder.digest, self.charter)
            self.withdraw(sponsor, participant, now)
        pending = self._pending(member, certificate, now)
        if pending is not None and member.digest in self.words.signers[pending.digest]:
            return self._statements[pending.digest]
        if len(self.words.signed_by(member.digest)) >= MAX_KEPT:
            raise BusyError(f"{member.participant} has admitted {MAX_KEPT} participants, the most")
        if pending is not None:
            return self._say(sponsor, Approval(self.federation, pending.digest, member.digest, now))
        policy = self.tally.policy
        return self._say(
            sponsor,
            Admission(
                self.federation,
                participant,
                der(certificate),
                member.digest,
                now,
                b"" if policy.before is None else policy.digest,
                expires_at,
            ),
        )

    def withdraw(self, signer: Root, participant: str, now: float) -> bytes:
        """Withdraw an invitation; returns the merged statement. The name is free again.

        Raises:
            NotFoundError: the participant is not invited.
            ConflictError: it has entered already.
            UntrustedError: the signer is no sponsor of it, nor above one.
        """
        signed_by = self._good(signer)
        invited = [
            member
            for member in self.words.members.values()
            if member.participant == participant
            and member.digest not in self.tally.withdrawn
            and member.digest not in self.tally.entered
        ]
        if not invited:
            if participant in self._holders:
                raise ConflictError(
                    f"{participant} has entered already: `medusa-peer revoke {participant}` ends "
                    "its membership"
                )
            raise NotFoundError(f"{participant} is not invited to federation {self.name}")
        ours = [m for m in invited if signed_by.digest in self.words.above(m.digest)]
        if not ours:
            sponsors = ", ".join(sorted(self.words.names(self.words.signers[invited[0].digest])))
            raise UntrustedError(f"{participant} was invited by {sponsors}, who may withdraw that")
        said = b""
        for member in ours:
            digest = signed_by.digest
            said = self._say(
                signer, Revocation(self.federation, member.digest, NO_PEER, digest, (), now, True)
            )
        return said

    def revoke(
        self,
        signer: Root,
        participant: str,
        peer_id: PeerId = NO_PEER,
        *,
        now: float,
        leaves: bool = False,
    ) -> bytes:
        """Revoke a participant, or one peer of it; returns the merged statement.

        The participants that it has admitted stay. A participant revokes itself to leave.

        Args:
            leaves: whether that one peer leaves.

        Raises:
            NotFoundError: no such participant.
            UntrustedError: the signer is neither the participant nor a sponsor above it.
        """
        holder = self._holder(participant)
        if peer_id:
            kept = self.words.witnessed_by(PeerName(participant, peer_id))
        else:
            kept = self.words.signed_by(holder.digest)
        body = Revocation(
            self.federation,
            holder.digest,
            peer_id,
            self._good(signer).digest,
            tuple(kept[:MAX_KEPT]),
            now,
            leaves,
        )
        return self._say(signer, body)

    def change_policy(self, signer: Root, admission: str, now: float) -> bytes:
        """Change the admission policy, or sign a change that another sponsor began; returns the
        merged statement.

        * All admitted participants stay admitted.
        * Choosing the policy in force again, signed by as many as a change needs, ends the changes
          that have too few signatures.

        Raises:
            InvalidInputError: that is no policy.
            ConflictError: the policy is in force, or signed, already.
            NotAuthorisedError: the policy in force does not name this member.
            BusyError: there are more members than a change can keep.
        """
        member, current = self._good(signer), self.tally.policy
        policy = AdmissionPolicy.parse(admission, self.founder)
        who = current.policy.of_changes
        if not who.may_sign(member.participant):
            raise NotAuthorisedError(
                f"the admission policy of federation {self.name} is {current.policy}: "
                f"{who.who} may change it"
            )
        under_way = self.changes_under_way()
        if policy == current.policy and not under_way:
            raise ConflictError(f"the admission policy is {policy} already")
        for change in under_way:
            if change.policy == policy:
                if member.digest in self.words.signers[change.digest]:
                    raise ConflictError(
                        f"{member.participant} has signed it already: {who.who} must"
                    )
                return self._say(
                    signer, Approval(self.federation, change.digest, member.digest, now)
                )
        kept = tuple(self.tally.counted - {self.words.founder.digest})
        if len(kept) > MAX_KEPT:
            raise BusyError(f"a change of policy keeps {MAX_KEPT} members at most: {len(kept)} are")
        return self._say(
            signer,
            PolicyChange(
                self.federation,
                current.number + 1,
                current.digest,
                str(policy),
                tuple(sorted(kept)),
                member.digest,
                now,
            ),
        )

    def welcome(self, witness: Identity, participant: str, now: float) -> bytes | None:
        """The statement that an invited participant has entered, because our peer has met a peer of
        it. It is not yet merged; None if the participant is not invited, has entered already, or
        its invitation has ended."""
        member, own = self._holders.get(participant), self._holders.get(witness.participant)
        if member is None or own is None or member.digest in self.tally.entered:
            return None
        if own.digest not in self.tally.entered or now > member.expires_at:
            return None
        body = Entry(self.federation, member.digest, own.digest, der(witness.certificate), now)
        return seal_statement(witness.private_key, body)

    # -- who is a member

    def root_of(self, participant: str) -> x509.Certificate | None:
        """The root of a member in good standing."""
        member = self._holders.get(participant)
        return member.certificate if member is not None and not self.is_revoked(member) else None

    def roots(self) -> tuple[x509.Certificate, ...]:
        """The roots accepted in TLS handshakes. Excluded participants are among them, so that the
        greeting can tell them the reason."""
        former = (self.words.members[digest] for digest in self.tally.withdrawn)
        return tuple(m.certificate for m in (*self._holders.values(), *former))

    def participants(self) -> tuple[str, ...]:
        """The members in good standing, sorted."""
        return tuple(sorted(n for n, m in self._holders.items() if not self.is_revoked(m)))

    def authenticate(self, certificate_der: bytes, now: float) -> PeerName:
        """The peer that a certificate names, verified. now: seconds since the epoch.

        Raises:
            UntrustedError: no certificate, not admitted, revoked, expired, of a wrong root, or of a
                participant that did not enter before its invitation ended.
        """
        try:
            certificate = load_certificate(certificate_der)
        except MedusaError as error:
            raise UntrustedError(str(error)) from None
        participant = claimed_participant(certificate)
        member = self._known(participant)
        name = check_certificate(certificate, member.certificate, now)
        self.check(name)
        if self._has_ended(member, now):
            raise UntrustedError(
                f"{participant} did not enter before its invitation ended on "
                f"{shown(member.expires_at)}: it needs another"
            )
        return name

    def check(self, name: PeerName) -> None:
        """
        Raises:
            UntrustedError: this peer, whose certificate was good, has been revoked since.
        """
        member = self._known(name.participant)
        if self.is_revoked(member):
            raise UntrustedError(f"{name.participant} {self.how_it_ended(member)}")
        peer = (member.digest, name.peer_id)
        if peer in self.words.revoked_peers:
            ended = "has left" if peer in self.words.left_peers else "was revoked"
            raise UntrustedError(f"peer {name.peer_id.hex()} of {name.participant} {ended}")

    def stands(self, name: PeerName) -> bool:
        """Whether `check` raises nothing."""
        try:
            self.check(name)
        except UntrustedError:
            return False
        return True

    def holder(self, participant: str) -> Member | None:
        """The participant that has the name: a member, or a revoked one."""
        return self._holders.get(participant)

    def is_revoked(self, member: Member) -> bool:
        return member.digest in self.tally.revoked

    def how_it_ended(self, member: Member) -> str:
        """Say how the membership of a revoked member ended, in words that follow its name."""
        endings = self.words.endings[member.digest]
        if member.digest in endings:
            return f"has left on {shown(endings[member.digest].at)}"
        signers = ", ".join(sorted(self.words.names(endings)))
        at = min(ending.at for ending in endings.values())
        return f"has been revoked by {signers} on {shown(at)}"

    def changes_under_way(self) -> list[PolicyVersion]:
        """The changes of the policy in force that have too few signatures."""
        current = self.tally.policy.digest
        return [each for each in self.words.policies.values() if each.before == current]

    def chain_of(self, participant: str) -> tuple[bytes, ...]:
        """The statements that prove a membership, the charter's side first.

        Raises:
            NotFoundError: no member of that name.
        """
        return self.behind(self._holder(participant).digest)

    # -- parts

    def _say(self, signer: Root, body: Statement) -> bytes:
        statement = seal_statement(signer.private_key, body)
        self.take(digest_of(statement), statement)
        return statement

    def _good(self, root: Root) -> Member:
        """The member with that root, if its statements count."""
        member = self._holders.get(root.participant)
        if member is None or member.certificate != root.certificate:
            raise UntrustedError(f"{root.participant} is no member of federation {self.name}")
        if self.is_revoked(member):
            raise UntrustedError(f"{root.participant} {self.how_it_ended(member)}")
        if member.digest not in self.tally.entered:
            raise UntrustedError(
                f"{root.participant} has not entered yet: run its peer until it has met a member"
            )
        return member

    def _known(self, participant: str) -> Member:
        member = self._holders.get(participant)
        if member is not None:
            return member
        if participant in self.words.names(self.tally.withdrawn):
            raise UntrustedError(f"the invitation of {participant} was withdrawn")
        raise UntrustedError(f"{participant} is not admitted to federation {self.name}")

    def _holder(self, participant: str) -> Member:
        holder = self._holders.get(participant)
        if holder is None:
            raise NotFoundError(f"{participant} is no member of federation {self.name}")
        return holder

    def _check_may_admit(self, sponsor: Member, participant: str) -> None:
        policy = self.tally.policy.policy
        if not policy.may_sign(sponsor.participant, participant):
            raise NotAuthorisedError(
                f"the admission policy of federation {self.name} is {policy}: {policy.who} "
                "may admit"
            )

    def _check_is_free(self, holder: Member, certificate: x509.Certificate) -> None:
        name = holder.participant
        if self.is_revoked(holder):
            raise ConflictError(
                f"{name} {self.how_it_ended(holder)}; its name stays taken: it can come back under "
                "another one"
            )
        if holder.certificate != certificate:
            free = (
                f"; `medusa-peer invite {name} --withdraw` frees the name"
                if holder.digest not in self.tally.entered
                else ""
            )
            raise ConflictError(
                f"{name} is not admitted with a second root: the first one "
                f"({short_fingerprint(holder.certificate)}), admitted on "
                f"{shown(holder.admitted_at)}, stays{free}"
            )

    def _has_ended(self, member: Member, now: float) -> bool:
        """Whether the member is an invitation that ended before it was taken up."""
        return member.digest not in self.tally.entered and 0 < member.expires_at < now

    def _pending(self, sponsor: Member, certificate: x509.Certificate, now: float) -> Member | None:
        """An admission of that root that waits for more sponsors. One that this sponsor has not
        signed comes first: otherwise each sponsor would wait for the others to sign its own."""
        if self.tally.policy.policy.needed == 1:
            return None
        settled = self.tally.counted | self.tally.withdrawn
        pending = [
            member
            for member in self.words.members.values()
            if member.certificate == certificate
            and member.policy == self.tally.policy.digest
            and member.digest not in settled
            and not self._has_ended(member, now)
        ]
        signed = self.words.signers
        return min(
            pending, key=lambda m: (sponsor.digest in signed[m.digest], m.digest), default=None
        )
