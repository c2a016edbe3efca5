"""The peer table: each peer's signed record about itself, replicated to all peers. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from medusa.overlay.addresses import Address
from medusa.overlay.clock import MICROS, latest_number, shown
from medusa.overlay.encoding import encode
from medusa.overlay.errors import (
    BusyError,
    MedusaError,
    NotFoundError,
)
from medusa.overlay.events import Change
from medusa.overlay.files import load_packed, write_atomically
from medusa.overlay.identity import Identity
from medusa.overlay.membership import Membership
from medusa.overlay.names import PeerId
from medusa.overlay.peer_records import (
    MAX_RECORD,
    PeerRecord,
    Stamp,
    checked_addresses,
    made_at,
    opened_record,
    signed_record,
)

MAX_PEERS: Final = 10_000
"""Peers in the table: ten times the largest federation of the papers; about 10 MB."""

MAX_PEERS_PER_PARTICIPANT: Final = 1_000
"""Peers of one participant, so that a hostile member cannot fill the table alone."""

FILE: Final = "peers"

MAX_FILE: Final = MAX_PEERS * (MAX_RECORD + 8)
"""Bytes: all possible records, with their lengths."""


class _Index:
    """The latest record of each peer, found by its id or by an address of it."""

    def __init__(self) -> None:
        self._records: dict[PeerId, PeerRecord] = {}
        self._by_address: dict[Address, PeerId] = {}

    def __contains__(self, peer_id: PeerId) -> bool:
        return peer_id in self._records

    def get(self, peer_id: PeerId) -> PeerRecord | None:
        return self._records.get(peer_id)

    def at(self, address: Address) -> PeerId | None:
        """The peer whose record has that address."""
        return self._by_address.get(address)

    def all(self) -> tuple[PeerRecord, ...]:
        return tuple(self._records.values())

    def check_room(self, participant: str) -> None:
        """Refuse one more peer of that participant. Raises: BusyError: there is no room."""
        if len(self._records) >= MAX_PEERS:
            raise BusyError(f"the peer table is full: {MAX_PEERS}")
        siblings = sum(1 for r in self._records.values() if r.participant == participant)
        if siblings >= MAX_PEERS_PER_PARTICIPANT:
            raise BusyError(f"{participant} has {MAX_PEERS_PER_PARTICIPANT} peers, the most")

    def put(self, record: PeerRecord) -> None:
        """Put the record in the place of the peer's former one."""
        self.drop(record.peer_id)
        self._records[record.peer_id] = record
        for address in record.addresses:
            self._by_address[address] = record.peer_id

    def drop(self, peer_id: PeerId) -> None:
        record = self._records.pop(peer_id, None)
        for address in () if record is None else record.addresses:
            if self._by_address.get(address) == peer_id:
                del self._by_address[address]


class PeerTable:
    """All known peers, dead ones and this one included, but no revoked peer."""

    def __init__(self, identity: Identity, membership: Membership) -> None:
        self.identity = identity
        self._membership = membership
        self._records = _Index()
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
        where = checked_addresses(addresses)
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
            self._records.drop(old.peer_id)
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
                record = opened_record(data, self._membership, now)
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
        return tuple(record for record in self._records.all() if self._stands(record))

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
        peer_id = self._records.at(address)
        return self.get(peer_id) if peer_id is not None else None

    def have(self) -> tuple[Stamp, ...]:
        """The stamps of our records, from which the other side finds the missing ones."""
        return tuple(record.stamp for record in self._records.all())

    def missing(self, have: Iterable[Stamp]) -> tuple[bytes, ...]:
        """The held records that are newer than these stamps, or have none among them."""
        theirs = {stamp.peer_id: stamp for stamp in have}
        return tuple(
            record.data
            for record in self._records.all()
            if self._stands(record)
            and ((stamp := theirs.get(record.peer_id)) is None or stamp < record.stamp)
        )

    def saved(self) -> bytes:
        """The content of the file: all records, those of dead and of missed peers as well, so that
        a restart has peers to dial."""
        unknown = [each for each in self._of_future.values() if each.peer_id not in self._records]
        records = [*unknown, *self._records.all()]
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
            at = made_at(data)
            if at > now:
                record = opened_record(data, self._membership, at)
                return None if record.name == self.identity.name else record
        return None

    def _sign(
        self, addresses: tuple[Address, ...], incarnation: int, version: int = 0
    ) -> PeerRecord:
        record = signed_record(self.identity, self.federation, addresses, incarnation, version)
        self._records.put(record)
        return record

    def _take(self, record: PeerRecord) -> str:
        """Store the record if it is newer; returns a text for an event, or ""."""
        old = self._records.get(record.peer_id)
        if old is not None and record.stamp <= old.stamp:
            return ""
        if record.peer_id == self.identity.peer_id:
            return self._outdo(record)
        if old is None:
            self._records.check_room(record.participant)
        self._records.put(record)
        place = ", ".join(f"{host}:{port}" for host, port in record.addresses)
        if old is not None and old.incarnation == record.incarnation:
            return f"found a certificate of peer {record.name} until {shown(record.expires)}"
        if old is not None and old.addresses == record.addresses:
            return f"saw peer {record.name} start again at {place}"
        return f"found peer {record.name} at {place}"

    def _outdo(self, record: PeerRecord) -> str:
        """Make a newer record than a record of this peer from a time when our clock was ahead, or
        made by another process with our key: our present record must be the newer."""
        own = self._records.get(self.identity.peer_id)
        if own is None:
            self._records.put(record)  # before the first announcement, which will be newer
            return ""
        self._sign(own.addresses, record.incarnation + 1)
        return "renewed our own record: one from a faster clock is about"

    def _forget_unbelievable(self, now: float) -> None:
        own, latest = self.identity.peer_id, latest_number(now, MICROS)
        for record in self._records.all():
            believable = now < record.expires and record.incarnation <= latest
            if record.peer_id != own and not (believable and self._stands(record)):
                self._records.drop(record.peer_id)

    def _stands(self, record: PeerRecord) -> bool:
        return self._membership.stands(record.name)
