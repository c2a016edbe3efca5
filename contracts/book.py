"""The contracts of one home: a file each, merged from the parties' signed documents."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography import x509
from msgspec import Struct

from medusa.contracts.contract import SHORT_ID, Contract, State
from medusa.contracts.documents import (
    MAX_DOCUMENT,
    Acceptance,
    Document,
    Revocation,
    open_document,
    proposal_of,
    verify_document,
)
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    DecodeError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UntrustedError,
)
from medusa.overlay.files import read_secret, storing, write_secret
from medusa.overlay.inventory import Inventory, is_missing
from medusa.overlay.membership import Membership

FOLDER: Final = "contracts"
SUFFIX: Final = ".contract"
LOCK: Final = ".lock"

LISTED: Final = 8
"""Contracts listed in the error for an ambiguous beginning of an id."""

MAX_WAITING: Final = 8
"""Proposals of one counterparty that wait for our answer: a person reads them one by one."""

MAX_WAITING_ALL: Final = 1024
"""Proposals of all counterparties that wait for our answer: 16 MiB of disk at most."""

MAX_FILE: Final = 2 * MAX_DOCUMENT + 64
"""Bytes of a file: a contract and its revocation."""


class _File(Struct, frozen=True, array_like=True):
    """The content of a contract's file.

    Attributes:
        contract: the bytes of the acceptance, or of the proposal before that.
        revocation: the bytes; empty before that.
        revoked_at: when the revocation arrived, seconds since the epoch.
    """

    contract: bytes
    revocation: bytes
    revoked_at: float


class Book:
    """The contracts of one home. Several processes may use it: files are merged under a lock.

    Attributes:
        participant: the home's participant.
        problems: the files that cannot be believed, each with its mend.
    """

    def __init__(self, folder: Path, membership: Membership, participant: str) -> None:
        """
        Args:
            folder: the home; the contracts are in a folder of it.

        Raises:
            InvalidInputError: the folder cannot be made or read.
        """
        self.participant = participant
        self.problems: tuple[str, ...] = ()
        self._membership = membership
        self._folder = folder / FOLDER
        # replaced as a whole, because other threads read it during a merge
        self._contracts: dict[str, Contract] = {}
        self._verified: dict[str, tuple[bytes, tuple[x509.Certificate | None, ...]]] = {}
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"{self._folder}: cannot be made: {error.strerror}; it must be a folder of ours"
            ) from None
        self.reload()

    def reload(self) -> None:
        """Read the folder again, because commands write to it. `problems` lists damaged files.

        Raises:
            InvalidInputError: the folder cannot be read.
        """
        contracts: dict[str, Contract] = {}
        problems: list[str] = []
        paths = self._paths()
        inventory = Inventory(self._folder)
        for name in inventory.missing(path.name for path in paths):
            again = "restore it from a copy, or have the other party send it again"
            problems.append(is_missing(self._folder / name, inventory, again))
        for path in paths:
            try:
                contract = self._read(path)
            except MedusaError as error:
                problems.append(f"{error}; remove {path} to have the other party send it again")
            else:
                contracts[contract.id] = contract
        self._contracts, self.problems = contracts, tuple(problems)

    def merge(self, data: bytes, now: float) -> str:
        """Take in a signed document; returns the news in words ("": nothing new).

        The order in which documents arrive does not matter; a revocation is final. now: seconds
        since the epoch.

        Raises:
            DecodeError: no document.
            UntrustedError: badly signed, of another federation, or not between our participant and
                another.
            NotFoundError: it revokes a contract not known here.
            BusyError: the counterparty has too many proposals waiting here.
            ConflictError: our own file of that contract is damaged.
            StorageError: see `medusa.overlay.files`.
        """
        document = open_document(data)
        verify_document(document, self._membership)
        with self._locked():
            old = self._stored(document.contract)
            new = self._merged(old, document, now)
            if new != old:
                if old is None:
                    self._make_room(new, now)
                write_secret(
                    self._path(new.id), encode(_File(new.document, new.revocation, new.revoked_at))
                )
                Inventory(self._folder).add(self._path(new.id).name)
            self._contracts = {**self._contracts, new.id: new}
        return "" if new == old else self._news(new)

    def all(self) -> tuple[Contract, ...]:
        """Every contract, ended ones too; the newest proposal last."""
        return tuple(sorted(self._contracts.values(), key=lambda c: (c.proposal.proposed_at, c.id)))

    def get(self, contract: str) -> Contract:
        """
        Raises:
            NotFoundError: no contract of that id.
        """
        found = self._contracts.get(contract)
        if found is None:
            raise NotFoundError(f"contract {contract[:64]!a}: not known here")
        return found

    def find(self, beginning: str) -> Contract:
        """The contract whose id begins with that text.

        Raises:
            NotFoundError: none. InvalidInputError: several.
        """
        found = [c for c in self.all() if beginning and c.id.startswith(beginning)]
        if not found:
            raise NotFoundError(
                f"contract {beginning[:64]!a}: not known here; `medusa-peer contract list --all` "
                "shows those that are"
            )
        if len(found) > 1:
            raise InvalidInputError(
                f"contract {beginning[:64]!a}: {len(found)} ids begin so, give more digits: "
                + ", ".join(
                    f"{c.id[:16]} with {c.counterparty(self.participant)}" for c in found[:LISTED]
                )
            )
        return found[0]

    def parties_of(self, document: Document) -> frozenset[str]:
        """The parties of the contract that a document is about; none if the contract is not
        known."""
        proposal = proposal_of(document)
        if proposal is None:
            known = self._contracts.get(document.contract)
            return frozenset(known.proposal.parties if known is not None else ())
        return frozenset(proposal.parties)

    def state(self, contract: Contract, now: float) -> State:
        """The state of a contract. now: seconds since the epoch."""
        proposal = contract.proposal
        if contract.revocation:
            return State.REVOKED
        if now >= proposal.valid_until:
            return State.EXPIRED
        if not self._stands(contract):
            return State.BARRED
        if not contract.accepted:
            ours = proposal.proposer == self.participant
            return State.OUR_PROPOSAL if ours else State.THEIR_PROPOSAL
        return State.IN_FORCE if now >= proposal.valid_from else State.LATER

    def in_force(self, now: float) -> tuple[Contract, ...]:
        """The contracts in force, the oldest proposal first. now: seconds since the epoch."""
        return tuple(c for c in self.all() if self.state(c, now) is State.IN_FORCE)

    def next_change(self, now: float) -> float:
        """When the next contract begins or ends by time alone, seconds since the epoch; inf:
        never."""
        times = (
            at
            for contract in self._contracts.values()
            if not contract.revocation
            for at in (contract.proposal.valid_from, contract.proposal.valid_until)
        )
        return min((at for at in times if at > now), default=float("inf"))

    # -- merging ----------------------------------------------------------------------------------

    def _merged(self, old: Contract | None, document: Document, now: float) -> Contract:
        """The contract with that verified document added."""
        if isinstance(document.body, Revocation):
            return _revoked(old, document.body, document.data, now)
        proposal = proposal_of(document)
        assert proposal is not None
        if self.participant not in proposal.parties:
            raise UntrustedError(
                f"contract {document.contract} is between {proposal.proposer} and "
                f"{proposal.accepter}: it is not ours to keep"
            )
        accepted = isinstance(document.body, Acceptance)
        if old is None:
            return Contract(document.contract, proposal, document.data, accepted)
        if accepted and not old.accepted:
            return replace(old, document=document.data, accepted=True)
        return old  # the first acceptance stays

    def _make_room(self, new: Contract, now: float) -> None:
        """
        Raises:
            BusyError: too many proposals wait for our answer. Ended ones are deleted first.
        """
        if new.accepted or new.proposal.proposer == self.participant:
            return  # our own proposal
        waiting = [c for c in self._contracts.values() if self._waits(c)]
        theirs = [c for c in waiting if c.proposal.proposer == new.proposal.proposer]
        if len(theirs) < MAX_WAITING and len(waiting) < MAX_WAITING_ALL:
            return
        ended = [c for c in waiting if self.state(c, now).ended]
        gone = ended if len(theirs) < MAX_WAITING else [c for c in ended if c in theirs]
        if not gone:
            raise BusyError(
                f"{new.proposal.proposer}: too many proposals wait for {self.participant} "
                f"({len(theirs)}); withdraw one, or have one answered"
            )
        for contract in gone:
            path = self._path(contract.id)
            Inventory(self._folder).remove(path.name)
            with storing(path):
                path.unlink(missing_ok=True)
            self._verified.pop(contract.id, None)
        ids = {contract.id for contract in gone}
        self._contracts = {id_: c for id_, c in self._contracts.items() if id_ not in ids}

    def _waits(self, contract: Contract) -> bool:
        return not contract.accepted and contract.proposal.proposer != self.participant

    def _news(self, new: Contract) -> str:
        name = f"contract {new.id[:SHORT_ID]} with {new.counterparty(self.participant)}"
        if new.revocation:
            return f"revoked {name}"
        if new.accepted:
            return f"accepted {name}, by {new.proposal.accepter}"
        return f"proposed {name}, by {new.proposal.proposer}"

    def _stands(self, contract: Contract) -> bool:
        """Whether the parties' present roots signed the contract. Verified once for each pair of
        roots."""
        roots = tuple(self._membership.root_of(party) for party in contract.proposal.parties)
        if None in roots:
            return False
        if self._verified.get(contract.id) != (contract.document, roots):
            try:
                verify_document(open_document(contract.document), self._membership)
            except UntrustedError:
                return False
            self._verified[contract.id] = (contract.document, roots)
        return True

    # -- files ------------------------------------------------------------------------------------

    def _stored(self, contract: str) -> Contract | None:
        """The contract in the file, which another process may have changed.

        Raises:
            ConflictError: the file is damaged. Its content, perhaps a revocation, must not be lost.
        """
        path = self._path(contract)
        if not path.exists():
            return None
        try:
            return self._read(path)
        except MedusaError as error:
            raise ConflictError(f"{error}; look at {path} and remove it first") from None

    def _read(self, path: Path) -> Contract:
        file = decode(read_secret(path, MAX_FILE), _File, limit=MAX_FILE, what=str(path))
        document = open_document(file.contract)
        if path.name != document.contract + SUFFIX:
            raise DecodeError(f"{path}: holds contract {document.contract}")
        contract = self._believed(document, self._merged(None, document, 0.0))
        if not file.revocation:
            return contract
        revocation = open_document(file.revocation)
        return self._believed(revocation, self._merged(contract, revocation, file.revoked_at))

    def _believed(self, document: Document, contract: Contract) -> Contract:
        """Verify the document and return the contract. If a party has left the federation, its
        signature cannot be verified: the contract stays, barred."""
        if self._membership.federation != document.federation or all(
            self._membership.root_of(party) is not None for party in contract.proposal.parties
        ):
            verify_document(document, self._membership)
        return contract

    def _paths(self) -> list[Path]:
        try:
            return sorted(p for p in self._folder.iterdir() if p.name.endswith(SUFFIX))
        except OSError as error:
            raise InvalidInputError(
                f"{self._folder}: cannot be read: {error.strerror}; run: chmod 700 {self._folder}"
            ) from None

    def _path(self, contract: str) -> Path:
        return self._folder / (contract + SUFFIX)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self._folder / LOCK
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidInputError(f"{path}: cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _revoked(old: Contract | None, revocation: Revocation, data: bytes, now: float) -> Contract:
    if old is None:
        raise NotFoundError(f"contract {revocation.contract}: revoked, but not known here")
    if revocation.by not in old.proposal.parties:
        raise UntrustedError(f"contract {old.id}: {revocation.by} is no party and cannot revoke it")
    return old if old.revocation else replace(old, revocation=data, revoked_at=now)
