"""The peer table: each peer's signed record about itself, replicated to all peers. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct

from medusa.overlay.addresses import Address, is_numeric, is_one_machine
from medusa.overlay.certificates import (
    MAX_CERTIFICATE,
    PeerName,
    der,
    load_certificate,
    public_key_of,
)
from medusa.overlay.clock import MICROS, latest_number, shown
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import (
    BusyError,
    DecodeError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UntrustedError,
)
from medusa.overlay.events import Change
from medusa.overlay.files import load_packed, write_atomically
from medusa.overlay.identity import Identity
from medusa.overlay.membership import Membership
from medusa.overlay.names import PeerId
from medusa.overlay.signing import Signed, signed, verify

MAX_RECORD: Final = MAX_CERTIFICATE + 1024
"""Bytes of a record: a certificate and a few addresses."""

MAX_ADDRESSES: Final = 4
"""Addresses of one peer: bounds what dialling it may try."""

MAX_PEERS: Final = 10_000
"""Peers in the table: ten times the largest federation of the papers; about 10 MB."""

MAX_PEERS_PER_PARTICIPANT: Final = 1_000
"""Peers of one participant, so that a hostile member cannot fill the table alone."""

MAX_VERSION: Final = 2**62
"""Greatest version of a record: messages can hold no greater one."""

DOMAIN: Final = "medusa peer record"

FILE: Final = "peers"

MAX_FILE: Final = MAX_PEERS * (MAX_RECORD + 8)
"""Bytes: all possible records, with their lengths."""


class _Body(Struct, frozen=True, array_like=True):
    """A peer's own description: its certificate and its addresses.

    Attributes:
        federation: the federation's id: in another one the record counts for nothing.
        certificate: the peer's, DER; it names the peer.
        incarnation: microseconds since the epoch at the peer's start. It grows over restarts
            without a file, because clocks go on. Of two records of one peer the later counts.
        version: orders the records of one incarnation, after a renewal of the certificate.
    """

    federation: str
    certificate: bytes
    addresses: tuple[Address, ...]
    incarnation: int
    version: int


class Stamp(Struct, frozen=True, array_like=True, order=True):
    """The incarnation and version of a peer's record, by which records are compared."""

    peer_id: PeerId
    incarnation: int
    version: int


@dataclass(frozen=True)
class PeerRecord:
    """One peer's description. `data`: the signed bytes, passed on unchanged."""

    name: PeerName
    certificate: x509.Certificate
    addresses: tuple[Address, ...]
    incarnation: int
    version: int
    data: bytes

    @property
    def participant(self) -> str:
        return self.name.participant

    @property
    def peer_id(self) -> PeerId:
        return self.name.peer_id

    @cached_property
    def expires(self) -> float:
        """When the certificate ends, seconds since the epoch."""
        return self.certificate.not_valid_after_utc.timestamp()

    @cached_property
    def public_key(self) -> Ed25519PublicKey:
        """The key that verifies the peer's signatures."""
        return public_key_of(self.certificate)

    @cached_property
    def stamp(self) -> Stamp:
        return Stamp(self.peer_id, self.incarnation, self.version)


class PeerTable:
    """All known peers, dead ones and this one included, but no revoked peer."""

    def __init__(self, identity: Identity, membership: Membership) -> None:
        self.identity = identity
        self._membership = membership
        self._records: dict[PeerId, PeerRecord] = {}
        self._by_address: dict[Address, PeerId] = {}
        self._of_future: dict[PeerId, PeerRecord] = {}

    @property
    def federation(self) -> str:
        """The id of the federation whose peers these are."""
        return self._membership.federation

    def announce(self, addresses: Iterable[Address], now: float) -> PeerRecord:
        """Make a new record of our own with these addresses. now: seconds since the epoch.

        Raises:
            InvalidInputError: an address is not an IP and a port that others can dial.
        """
        where = tuple(addresses)[:MAX_ADDRESSES]
        if not where or not all(_can_be_announced(a) for a in where):
            raise InvalidInputError(f"cannot announce {where}: must be IP addresses with ports")
        old = self._records.get(self.identity.peer_id)
        incarnation = int(now * 1e6)
        if old is not None:
            incarnation = max(incarnation, old.incarnation + 1)  # the clock may have been set back
        return self._sign(where, incarnation)

    def renew(self, identity: Identity) -> None:
        """Make a new record with our renewed certificate."""
        self.identity = identity
        old = self._records.get(identity.peer_id)
        if old is not None:
            self._sign(old.addresses, old.incarnation, old.version + 1)

    def announce_anew(self, addresses: Iterable[Address], now: float) -> PeerRecord:
        """As `announce`, after the clock was set. No peer believes the record made while the clock
        was far ahead, so the new one need not outdo it."""
        old = self._records.get(self.identity.peer_id)
        if old is not None and old.incarnation > latest_number(now, MICROS):
            self._forget(old)
        return self.announce(addresses, now)

    def merge(self, records: Iterable[bytes], now: float) -> list[Change]:
        """Take in others' records; returns the new and the refused ones. Never raises.

        * An older record than the held one is skipped silently, as usual in gossip.
        * Records of peers that are revoked or whose certificate has expired are dropped: no peer
          accepts them, and they would fill the table.
        * Records from the future, taken in while our clock was ahead, are dropped: the peer's own
          record would never be later.
        """
        self._forget_unbelievable(now)
        changes: list[Change] = []
        for data in records:
            try:
                record = self._open(data, now)
                text = self._take(record)
            except MedusaError as error:
                changes.append(Change(f"refused a peer record: {error}", error))
            else:
                if text:
                    changes.append(Change(text))
        return changes

    def get(self, peer_id: PeerId) -> PeerRecord | None:
        """The record of that peer; None if it is unknown or revoked."""
        record = self._records.get(peer_id)
        return record if record is not None and self._stands(record) else None

    def all(self) -> tuple[PeerRecord, ...]:
        """The records of all known peers, this one and dead ones included."""
        return tuple(record for record in self._records.values() if self._stands(record))

    def missed(self) -> list[PeerId]:
        """The peers whose saved records were refused because they lie in the future. If our clock
        is behind, those peers may run."""
        return [
            peer
            for peer, record in self._of_future.items()
            if peer not in self._records and self._stands(record)
        ]

    def participant_of(self, peer_id: PeerId, now: float) -> str:
        """The participant of a peer of this table, or of a missed one, until its certificate
        expires; "" of any other. now: seconds since the epoch."""
        record = self._records.get(peer_id) or self._of_future.get(peer_id)
        if record is None or record.expires <= now or not self._stands(record):
            return ""
        return record.participant

    def addresses_of(self, peer_id: PeerId) -> tuple[Address, ...]:
        """The addresses of that peer; () if it is unknown."""
        record = self.get(peer_id)
        return record.addresses if record is not None else ()

    def by_address(self, address: Address) -> PeerRecord | None:
        """The peer whose record has that address."""
        peer_id = self._by_address.get(address)
        return self.get(peer_id) if peer_id is not None else None

    def have(self) -> tuple[Stamp, ...]:
        """The stamps of our records, from which the other side finds the missing ones."""
        return tuple(record.stamp for record in self._records.values())

    def missing(self, have: Iterable[Stamp]) -> tuple[bytes, ...]:
        """The held records that are newer than these stamps, or have none among them."""
        theirs = {stamp.peer_id: stamp for stamp in have}
        return tuple(
            record.data
            for peer_id, record in self._records.items()
            if self._stands(record)
            and ((stamp := theirs.get(peer_id)) is None or stamp < record.stamp)
        )

    def saved(self) -> bytes:
        """The content of the file: all records, those of dead and of missed peers as well, so that
        a restart has peers to dial."""
        records = [*(self._of_future | self._records).values()]
        return encode([record.data for record in records[-MAX_PEERS:]])

    def save(self, folder: Path) -> None:
        """
        Raises:
            StorageError: see `medusa.overlay.files`.
        """
        write_atomically(folder / FILE, self.saved())

    def load(self, folder: Path, now: float) -> list[Change]:
        """Take in the saved records; a missing file counts as empty.

        Raises:
            DamagedError: the file is damaged.
        """
        mend = "remove it: peers are learned again"
        try:
            records = load_packed(folder / FILE, list[bytes], mend=mend, limit=MAX_FILE)
        except NotFoundError:
            return []
        changes = self.merge(records, now)
        refused = filter(None, (self._open_of_future(data, now) for data in records))
        self._of_future = {record.peer_id: record for record in refused}
        return changes

    def _open_of_future(self, data: bytes, now: float) -> PeerRecord | None:
        """The record, if it is good at its own time, and that is later than now."""
        with suppress(MedusaError):
            body = decode(_envelope(data).payload, _Body, limit=MAX_RECORD, what="peer record")
            made_at = body.incarnation / MICROS
            if made_at > now and (record := self._open(data, made_at)).name != self.identity.name:
                return record
        return None

    def _sign(
        self, addresses: tuple[Address, ...], incarnation: int, version: int = 0
    ) -> PeerRecord:
        own = self.identity
        body = _Body(self.federation, der(own.certificate), addresses, incarnation, version)
        data = encode(signed(own.private_key, DOMAIN, encode(body)))
        record = PeerRecord(own.name, own.certificate, addresses, incarnation, version, data)
        self._store(record)
        return record

    def _open(self, data: bytes, now: float) -> PeerRecord:
        envelope = _envelope(data)
        body = decode(envelope.payload, _Body, limit=MAX_RECORD, what="peer record")
        if body.federation != self.federation:
            raise UntrustedError(f"it is of another federation, {body.federation[:32]!a}")
        name = self._membership.authenticate(body.certificate, now)
        certificate = load_certificate(body.certificate)
        verify(public_key_of(certificate), DOMAIN, envelope.payload, envelope.signature)
        if not 0 < len(body.addresses) <= MAX_ADDRESSES:
            raise DecodeError(f"{name}: must have 1 to {MAX_ADDRESSES} addresses")
        if not all(_can_be_announced(address) for address in body.addresses):
            raise DecodeError(f"{name}: an address is not an IP with a port")
        if not 0 <= body.incarnation <= latest_number(now, MICROS):
            raise DecodeError(
                f"{name}: its incarnation lies in the future; check its clock, or ours"
            )
        if not 0 <= body.version <= MAX_VERSION:
            raise DecodeError(f"{name}: version {body.version} is not within 0 to {MAX_VERSION}")
        return PeerRecord(name, certificate, body.addresses, body.incarnation, body.version, data)

    def _take(self, record: PeerRecord) -> str:
        """Store the record if it is newer; returns a text for an event, or ""."""
        old = self._records.get(record.peer_id)
        if old is not None and record.stamp <= old.stamp:
            return ""
        if record.peer_id == self.identity.peer_id:
            return self._outdo(record)
        if old is None:
            self._check_room(record)
        self._store(record)
        place = ", ".join(f"{host}:{port}" for host, port in record.addresses)
        if old is not None and old.incarnation == record.incarnation:
            return f"found a certificate of peer {record.name} until {shown(record.expires)}"
        if old is not None and old.addresses == record.addresses:
            return f"saw peer {record.name} start again at {place}"
        return f"found peer {record.name} at {place}"

    def _outdo(self, record: PeerRecord) -> str:
        """Outdo a record of this peer from a time when our clock was ahead, or made by another
        process with our key: our present record must be the newer."""
        own = self._records.get(self.identity.peer_id)
        if own is None:
            self._store(record)  # before the first announcement, which will be newer
            return ""
        self._sign(own.addresses, record.incarnation + 1)
        return "renewed our own record: one from a faster clock is about"

    def _forget_unbelievable(self, now: float) -> None:
        own, latest = self.identity.peer_id, latest_number(now, MICROS)
        for record in [*self._records.values()]:
            believable = now < record.expires and record.incarnation <= latest
            if record.peer_id != own and not (believable and self._stands(record)):
                self._forget(record)

    def _forget(self, record: PeerRecord) -> None:
        self._forget_addresses(record)
        del self._records[record.peer_id]

    def _check_room(self, record: PeerRecord) -> None:
        if len(self._records) >= MAX_PEERS:
            raise BusyError(f"the peer table is full: {MAX_PEERS}")
        siblings = sum(1 for r in self._records.values() if r.participant == record.participant)
        if siblings >= MAX_PEERS_PER_PARTICIPANT:
            raise BusyError(f"{record.participant} has {MAX_PEERS_PER_PARTICIPANT} peers, the most")

    def _store(self, record: PeerRecord) -> None:
        if (old := self._records.get(record.peer_id)) is not None:
            self._forget_addresses(old)
        self._records[record.peer_id] = record
        for address in record.addresses:
            self._by_address[address] = record.peer_id

    def _forget_addresses(self, record: PeerRecord) -> None:
        for address in record.addresses:
            if self._by_address.get(address) == record.peer_id:
                del self._by_address[address]

    def _stands(self, record: PeerRecord) -> bool:
        return self._membership.stands(record.name)


def _envelope(data: bytes) -> Signed:
    return decode(data, Signed, limit=MAX_RECORD, what="peer record")


def _can_be_announced(address: Address) -> bool:
    """Whether the address is one machine's: all machines answer a packet to a broadcast address."""
    return is_numeric(address) and is_one_machine(address[0])
