"""Leases: the named subscribers that a stream's retention waits for while they are away.

A lease says how long tuples stay, not which tuples are right. If a crash loses the last second of
acknowledgements, an epoch stays longer, never shorter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from overlay.errors import BusyError, MedusaError, NotFoundError
from overlay.files import load_json, save_json

MAX_LEASES: Final = 10_000
"""Named subscribers of one peer: strangers must not fill the file with names."""
MAX_LEASES_PER_HOLDER: Final = 256
"""Named subscribers of one participant, so that none takes the places of all."""


class Lease(Struct, frozen=True):
    """A named subscriber's hold on a stream: as a consumer group's offset, for a while.

    Attributes:
        subscriber: the holder, a space, and the name that it chose.
        holder: the participant on whose behalf it is held.
        boundary: the last one that the subscriber has acknowledged, microseconds.
        expires: seconds since the epoch.
    """

    stream: str
    subscriber: str
    holder: str
    boundary: int
    expires: float


class Leases:
    """The leases of one peer, kept in one file.

    Args:
        path: where they are kept.
        lease_s: how long one lasts after its last sign of life, seconds.
    """

    def __init__(self, path: Path, lease_s: float) -> None:
        self._path = path
        self._lease_s = lease_s
        self._leases: dict[str, dict[str, Lease]] = {}
        self._changed = False
        self._read()

    def _read(self) -> None:
        mend = "remove it: subscribers that are away are not waited for any more"
        try:
            leases = load_json(self._path, list[Lease], mend=mend)
        except NotFoundError:
            return
        for lease in leases:
            self._leases.setdefault(lease.stream, {})[lease.subscriber] = lease

    def renew(self, stream: str, subscriber: str, holder: str, boundary: int, now: float) -> None:
        """Note that `subscriber` has everything up to `boundary`.

        Raises:
            BusyError: too many leases already.
        """
        self.take(Lease(stream, subscriber, holder, boundary, now + self._lease_s))

    def take(self, lease: Lease) -> None:
        """Keep a lease that another peer has granted.

        Raises:
            BusyError: too many leases already.
        """
        leases = self._leases.setdefault(lease.stream, {})
        if lease.subscriber not in leases:
            known = self.all()
            of_holder = sum(each.holder == lease.holder for each in known)
            if len(known) >= MAX_LEASES or of_holder >= MAX_LEASES_PER_HOLDER:
                raise BusyError(f"too many named subscribers; {lease.holder} holds {of_holder}")
        leases[lease.subscriber] = lease
        self._changed = True

    def expire(self, now: float) -> list[Lease]:
        """Drop and return the leases that ran out. None ends later than one that is renewed now: a
        longer one came from a clock that was ahead, or from another peer."""
        for lease in self.all():
            if not lease.expires <= now + self._lease_s:  # refuses NaN as well
                self.take(msgspec.structs.replace(lease, expires=now + self._lease_s))
        gone = [lease for lease in self.all() if lease.expires <= now]
        for lease in gone:
            self.drop(lease.stream, lease.subscriber)
        return gone

    def drop(self, stream: str, subscriber: str) -> None:
        leases = self._leases.get(stream, {})
        if leases.pop(subscriber, None) is not None:
            self._changed = True
        if not leases:
            self._leases.pop(stream, None)

    def of(self, stream: str) -> list[Lease]:
        return list(self._leases.get(stream, {}).values())

    def all(self) -> list[Lease]:
        return [lease for leases in self._leases.values() for lease in leases.values()]

    def save(self) -> None:
        """Write them if they changed (blocking).

        Raises:
            MedusaError: they could not be written; the next call tries again.
        """
        if not self._changed:
            return
        self._changed = False
        try:
            save_json(self._path, self.all())
        except MedusaError:
            self._changed = True
            raise
