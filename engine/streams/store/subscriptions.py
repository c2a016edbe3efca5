"""Subscriptions to this peer's streams, and the holds that keep tuples for them.

A lease keeps a stream's tuples for a named subscriber that is away. It says how long tuples stay,
not which tuples are right. If a crash loses the last second of acknowledgements, an epoch stays
longer, never shorter.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec import Struct

from medusa.engine.objects.definitions import base_of
from medusa.engine.objects.schema import END
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.stream_state import LogKey, StreamState
from medusa.overlay.clock import shown
from medusa.overlay.errors import BusyError, DamagedError, MedusaError, NotFoundError
from medusa.overlay.events import Events
from medusa.overlay.files import load_json, save_json
from medusa.overlay.inventory import Inventory, is_missing

MAX_LEASES: Final = 10_000
"""Named subscribers of one peer: other participants choose the names, and must not fill the
file."""
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
        self._inventory = Inventory(path.parent)
        self._read()

    def _read(self) -> None:
        mend = "remove it: subscribers that are away are not waited for any more"
        try:
            leases = load_json(self._path, list[Lease], mend=mend)
        except NotFoundError:
            if self._path.name in self._inventory.names:
                about = is_missing(self._path, self._inventory)
                raise DamagedError(f"{about}: no subscriber is waited for then") from None
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
        """Drop and return the expired leases. Shorten leases that would outlast one that is renewed
        now: they came from a clock that was ahead, or from another peer."""
        for lease in self.all():
            if not lease.expires <= now + self._lease_s:  # written so that NaN is refused, too
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

    @property
    def are_saved(self) -> bool:
        """Whether the file has all leases, or a write of them is under way."""
        return not self._changed

    def save(self) -> None:
        """Write the leases if they changed (blocking).

        Raises:
            MedusaError: the leases could not be written; the next call tries again.
        """
        if not self._changed:
            return
        self._changed = False
        try:
            save_json(self._path, self.all())
            self._inventory.add(self._path.name)
        except MedusaError:
            self._changed = True
            raise


_PEER: Final = re.compile(r"[0-9a-f]{40}( |$)")
"""The pattern of the beginning of a peer's subscriber name: see
`medusa.engine.replication.following.book`."""


LEFT: Final = 256
"""Holds for readers that left, per participant and stream; the limit prevents calls from growing a
list."""


SHOWN: Final = 5
"""Most subscribers that one error names."""


def consumer_of(subscriber: str) -> Hold:
    """The hold of a named subscriber. Its kind is `subscriber`, so a name that another participant
    chooses is never the id of a consumer that this peer itself holds rows for."""
    return Hold("subscriber", subscriber)


def reader_in_words(subscriber: str, holder: str) -> str:
    """A subscriber, for people. subscriber: its name, "" for none; a peer's name begins with its
    id."""
    if not subscriber:
        return f"a subscriber of {holder}"
    if _PEER.match(subscriber):
        return f"peer {subscriber[:8]} of {holder}"
    return f"subscriber {subscriber} of {holder}"


class Reader:
    """One subscription's hold on a stream: retention keeps its unacknowledged tuples.

    Attributes:
        subscriber: its name, "" for none. holder: its participant.
        released: set once the stream no longer keeps tuples for it; `why` has the reason.
    """

    def __init__(
        self, take: Callable[[int], None], boundary: int, subscriber: str, holder: str
    ) -> None:
        self._take = take
        self.subscriber = subscriber
        self.holder = holder
        self.boundary = boundary
        self.released = trio.Event()
        self.why = ""

    def end(self, why: str) -> None:
        self.why = why
        self.released.set()

    def acknowledge(self, boundary: int) -> None:
        """Note an acknowledgement. Boundaries only grow; one that is beyond the stream harms only
        its sender."""
        if boundary > self.boundary and not self.released.is_set():
            self.boundary = boundary
            self._take(boundary)


class Subscriptions:
    """The subscriptions and leases of the streams here.

    Args:
        participant: ours.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        participant: str,
        leases: Leases,
        config: EngineConfig,
        clock: Callable[[], float],
        events: Events,
    ) -> None:
        self._participant = participant
        self._leases = leases
        self._lease_s = config.lease_s
        self._grace_s = config.timing.grace_s
        self._clock = clock
        self._events = events
        self._saving = trio.Lock()
        self._calls = 0
        self._readers: dict[tuple[LogKey, Hold], list[Reader]] = {}
        self._released: dict[tuple[str, Hold], str] = {}

    @asynccontextmanager
    async def hold(
        self, state: StreamState, subscriber: str, holder: str, after: int
    ) -> AsyncIterator[Reader]:
        """Hold the stream for a reader, from the boundary `after` on. The hold outlives the block:
        for a named reader by its lease, for another one by `Timing.grace_s`.

        Args:
            subscriber: its name, "" for none. holder: its participant.

        Raises:
            BusyError: too many named subscribers.
        """
        self._calls += 1
        named = f"{holder} {subscriber}"
        consumer = consumer_of(named) if subscriber else Hold("call", str(self._calls))
        foreign = self._foreign(holder)

        def take(boundary: int) -> None:
            expires = None
            if subscriber:
                self._leases.renew(state.name, named, holder, boundary, self._clock())
                expires = trio.current_time() + self._lease_s
            state.log.retention.hold(consumer, boundary, expires, foreign)

        take(after)
        reader = Reader(take, after, subscriber, holder)
        self._released.pop((state.name, consumer), None)
        readers = self._readers.setdefault((state.key, consumer), [])
        readers.append(reader)
        state.subscribers += 1
        try:
            if subscriber:
                await self.save()  # saved before its first tuple, so that a crash keeps the lease
            yield reader
        finally:
            state.subscribers -= 1
            readers.remove(reader)
            if not readers:
                self._readers.pop((state.key, consumer), None)
            if not subscriber:
                state.log.retention.release(consumer)
                if reader.boundary < END and not reader.released.is_set():
                    left = Hold("left", f"{holder} {self._calls % LEFT}")
                    expires = trio.current_time() + self._grace_s
                    state.log.retention.hold(left, reader.boundary, expires, foreign)

    def release(self, state: StreamState, consumer: Hold, holder: str, why: str) -> None:
        """Release a consumer of another participant; its calls end."""
        state.log.retention.release(consumer)
        if consumer.kind == "subscriber":
            self._leases.drop(state.name, consumer.id)
        for reader in self._readers.get((state.key, consumer), []):
            reader.end(why)
        self._released[state.name, consumer] = why
        if len(self._released) > MAX_LEASES:
            del self._released[next(iter(self._released))]
        self._events.note("warning", f"waits no longer for {holder}, who reads {state.name}: {why}")

    def why(self, stream: str, subscriber: str, holder: str) -> str:
        """Why the stream recently released a named subscriber; "" if it did not."""
        return self._released.get((stream, consumer_of(f"{holder} {subscriber}")), "")

    def _foreign(self, holder: str) -> str:
        return "" if holder == self._participant else holder

    def readers(self, state: StreamState) -> dict[str, str]:
        """The readers of a stream at this peer, by name: connected ones, and those with a lease.
        The value of each is a text on how a person ends the reading."""
        found: dict[str, str] = {}
        for (key, _), readers in self._readers.items():
            for reader in readers if key == state.key else ():
                who = reader_in_words(reader.subscriber, reader.holder)
                found[who] = self._end_of(state, reader.subscriber, reader.holder)
        for lease in self._waited_for(state.name):
            subscriber = lease.subscriber.removeprefix(f"{lease.holder} ")
            who = reader_in_words(subscriber, lease.holder)
            if who not in found:
                found[who] = self._end_of(state, subscriber, lease.holder, lease.expires)
        return found

    def _end_of(
        self, state: StreamState, subscriber: str, holder: str, until: float | None = None
    ) -> str:
        """How the stream's owner ends the reading of one reader, for people. until: the end of the
        lease of a reader that is away, seconds since the epoch."""
        if holder != self._participant:
            return f"`medusa stream alter {base_of(state.name)} --readers ...` without {holder}"
        if not subscriber:
            return "connected now: end it there"
        if _PEER.match(subscriber):
            return "a query or a view there reads it: delete that"
        forget = f"`medusa subscribe {state.name} --subscriber {subscriber} --forget`"
        if until is None:
            return f"connected now: end it there, then {forget}"
        return f"away, waited for until {shown(until)}: {forget}"

    def _waited_for(self, stream: str) -> list[Lease]:
        """The leases of subscribers that have not left."""
        return [lease for lease in self._leases.of(stream) if lease.boundary < END]

    def check_known(self, stream: str, subscriber: str, holder: str) -> None:
        """Refuse the name of a subscriber for which the stream keeps no tuples. Raises:
        NotFoundError."""
        known = [lease.subscriber for lease in self._waited_for(stream) if lease.holder == holder]
        if f"{holder} {subscriber}" not in known:
            names = ", ".join(name.removeprefix(f"{holder} ") for name in sorted(known)[:SHOWN])
            raise NotFoundError(
                f"{stream} waits for no subscriber {subscriber} of {holder}; for {names or 'none'}"
            )

    def of(self, stream: str) -> list[Lease]:
        """The leases on a stream."""
        return self._leases.of(stream)

    def adopt(self, lease: Lease, state: StreamState | None) -> None:
        """Grant a lease that another peer has granted. state: the stream, if it is here.

        Raises:
            BusyError: too many named subscribers.
        """
        self._leases.take(lease)
        if state is not None:
            self._hold(state, lease)

    def restore(self, state: StreamState) -> None:
        """Hold a stream that was opened again for its leases."""
        for lease in self._leases.of(state.name):
            self._hold(state, lease)

    def _hold(self, state: StreamState, lease: Lease) -> None:
        consumer = consumer_of(lease.subscriber)
        left_s = min(lease.expires - self._clock(), self._lease_s)
        expires = trio.current_time() + left_s
        state.log.retention.hold(consumer, lease.boundary, expires, self._foreign(lease.holder))

    def forget(self, stream: str) -> None:
        """Drop the leases on a deleted stream."""
        for lease in self._leases.of(stream):
            self._leases.drop(stream, lease.subscriber)

    async def maintain(self) -> None:
        """Drop expired leases, and save the changes."""
        self._leases.expire(self._clock())
        await self.save()

    async def save(self) -> None:
        """Save the leases; if the disk is full, the next call tries again."""
        async with self._saving:
            if self._leases.are_saved:
                return
            try:
                await trio.to_thread.run_sync(self._leases.save)
            except MedusaError as error:
                self._events.note("error", f"could not save leases of subscribers: {error}")
