"""An elector of one stream at work: the driver of `HomeTenure`, its file, messages and journal."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random  # noqa: TID251 - a driver; the logic is passed it
from typing import Final

import trio
from msgspec.structs import replace

from engine.alteration import Alteration, altered
from engine.definitions import StreamEntry
from engine.homes.ballot import Ballot, Tenure
from engine.homes.ballot_files import BallotFiles, StoredBallot
from engine.homes.events import (
    Activated,
    Called,
    Committed,
    Drop,
    Effect,
    Event,
    Keep,
    Lost,
    Received,
    Send,
    Ship,
    StopShipping,
    Suspended,
    Tick,
    Won,
    highest_fence,
)
from engine.homes.messages import TELL, AskVote, Delete, Inquire, Install, Message, Tell, Told
from engine.homes.tenure import BEATS, HomeTenure
from engine.homes.tenure import Role as TenureRole
from engine.kept import KeptStream, Role, entries_of, key_of
from engine.producers import Producers
from engine.stream_store import HOME, StreamStore
from engine.streams.home import Home
from engine.streams.journal import Position
from engine.tenure import check_fence
from overlay.errors import (
    DamagedError,
    MedusaError,
    StorageError,
    StorageFullError,
    UnavailableError,
)
from overlay.events import Events
from overlay.identity import parse_peer_id
from overlay.node import Overlay

ANNOUNCE_AGAIN_S: Final = 1.0
"""Between two tries to tell the catalog who is home, seconds."""

LAPSE: Final = 3
"""A post waits for its replicas so many silences long before its poster is told to try again: an
election, and the recruiting after it, take about two."""


FOUNDED: Final = 1
"""The fence that a founder joins by itself, before anything can be acknowledged."""

HOLDER: Final = "home"
"""The name under which a replica's logs are kept as far back as the home's are."""


@dataclass(frozen=True)
class Surroundings:
    """What the electors of a peer share.

    Attributes:
        quiet_s: see `HomeTenure`.
        ship: ships to a peer under a fence, until that ends.
    """

    overlay: Overlay
    store: StreamStore
    producers: Producers
    files: BallotFiles
    events: Events
    nursery: trio.Nursery
    quiet_s: float
    ship: Callable[[Keeper, str, int], Awaitable[None]]

    @property
    def own(self) -> str:
        return self.overlay.identity.peer_id.hex()


class Keeper:
    """
    Attributes:
        entry: the stream as published. entries: that, and what is beside it, by name.
        tenure: what this peer is to it.
        kept: its logs and journal, where this peer has any.
        trouble: why replicas of ours store nothing more.
        deleted: set once the stream is, by the word of a majority.
    """

    def __init__(self, around: Surroundings, stored: StoredBallot) -> None:
        self.around = around
        self._set_entry(stored.entry)
        self.tenure = HomeTenure(
            around.own,
            stored.ballot,
            quiet_s=around.quiet_s,
            rng=Random(secrets.randbits(64)),  # noqa: S311 - it only spreads candidates over time
            now=trio.current_time(),
        )
        self.kept: KeptStream | None = None
        self.trouble = ""
        self.following = trio.Lock()
        self.deleted = trio.Event()
        self._cleared = trio.Event()
        self._files = around.files
        self._lock = trio.Lock()
        self._unsaved: Ballot | None = None
        self._ships: dict[str, trio.CancelScope] = {}
        self._generation = 0
        self._moved = trio.Event()
        self._published = False
        self._announcing = trio.CancelScope()

    def _set_entry(self, entry: StreamEntry) -> None:
        self.entry = entry
        self.entries = {each.stream.name: each for each in entries_of(entry)}

    @property
    def name(self) -> str:
        return self.entry.stream.name

    @property
    def is_home(self) -> bool:
        """Whether posts are acknowledged here."""
        return self.tenure.role is TenureRole.HOME

    @property
    def home(self) -> Home:
        assert self.kept is not None
        assert self.kept.home is not None, "a stream with replicas has a journal at each"
        return self.kept.home

    async def run(self) -> None:
        """Let time pass for it, until it is deleted."""
        if self.tenure.deleted:  # a crash may have come before all of it was gone
            await self._drop()
        while not self.tenure.deleted:
            await trio.sleep(self.around.quiet_s / BEATS)
            await self.try_feed(Tick())

    async def open(self) -> KeptStream:
        """Its logs and journal, opened or made."""
        if self.kept is None:
            store, journal = self.around.store, self.tenure.ballot.journal
            self.kept = await store.keep(self.entry, Role.REPLICA, HOME, journal=journal)
            if self.tenure.home not in {"", self.around.own}:
                self.hold(*self.home.starts)
            lost = self.home.lost or not self.home.source.segments
            if lost and self.tenure.ballot.joined > FOUNDED:
                text = "what it had as a replica is not whole: it waits for another member's"
                self.around.events.note("error", f"{self.name}: {text}")
                await self.forget()
        return self.kept

    def hold(self, *starts: int) -> None:
        """As a replica: keep what the home keeps for those who read it. starts: see `Home`."""
        for log, start in zip((self.home.log, *self.home.logs_beside), starts, strict=False):
            log.hold(HOLDER, start)

    def _hold_for_a_while(self) -> None:
        """As the next home: whom the last one waited for is not known, but how long at most."""
        expires = trio.current_time() + self.around.store.lease_s
        for log in self.home.logs:
            if HOLDER in log.retention.consumers:
                log.hold(HOLDER, log.start, expires)

    async def found(self) -> None:
        """Be the first home; see `HomeTenure.found`."""
        async with self._lock:
            await self.open()
            await self._carry_out(self.tenure.found(trio.current_time()), None)

    async def tell(self, sender: str, message: Message) -> Message:
        """What another elector says or asks; our answer.

        Raises:
            MedusaError: it could not be written down, or is of the future: we have said nothing.
        """
        answer = await self.feed(Received(sender, message))
        if answer is None:
            raise UnavailableError(f"{sender} is no elector of {self.name}")
        return answer

    async def try_feed(self, event: Event) -> None:
        """`feed`, where nobody can be told of what fails."""
        try:
            await self.feed(event)
        except MedusaError as error:
            self.around.events.note("error", f"{self.name}: {error}")

    async def feed(self, event: Event) -> Message | None:
        """Something has happened. Gives the answer, where it was a request.

        Raises:
            MedusaError: the disk does not take what was to be kept, or another elector speaks of a
                fence of the future; nothing follows from the event.
        """
        if isinstance(event, Received | Called):
            # They count up by one, far below what clocks make: who claims one beyond leaves none.
            check_fence(self.name, highest_fence(event), self.around.overlay.clock())
        async with self._lock:
            home = self.tenure.home
            effects = self.tenure.handle(event, trio.current_time())
            answer = await self._carry_out(effects, event)
            if self.tenure.home != home:
                self._notify()
            return answer

    async def forget(self) -> None:
        """See `HomeTenure.forget`."""
        async with self._lock:
            await self._carry_out(self.tenure.forget(), None)

    async def alter(self, alteration: Alteration) -> None:
        """As the home: the stream is defined so from now on, at all replicas on return. The same
        again is no change, but is waited for.

        Raises:
            InvalidInputError: it cannot be defined so.
            UnavailableError: this peer is not the home, or its replicas do not answer: it may come
                to be defined so, or not; asked again, it is.
        """
        before = self.home.definition or self.entry.stream
        definition = altered(before, alteration)
        if definition != before:
            await self.home.alter(definition)
        await self.acknowledged(self.home.source.position)
        await self.around.producers.announce_altered(
            entries_of(replace(self.entry, stream=definition))
        )
        async with self._lock:
            await self._take_definition()
            if self.is_home:
                self._announce_soon()

    async def _take_definition(self) -> None:
        """What the journal says that the stream is; all replicas have it."""
        definition = None if self.kept is None else self.home.definition
        if definition is None or definition.edition <= self.entry.stream.edition:
            return
        assert self.kept is not None, "it has a journal"
        self._set_entry(replace(self.entry, stream=definition))
        await self.around.store.define(self.kept, self.entry)
        try:
            await self._save(self.tenure.ballot)
        except StorageError as error:  # the journal has it, and the ballot will
            self.around.events.note("warning", f"{self.name}: {error}")

    async def delete(self) -> None:
        """As the home: the stream is deleted, here on return, at others as soon as they hear of it.

        Raises:
            UnavailableError: this peer is not the home, or no majority of its electors answers:
                nothing has changed, or it is said that it may come to be deleted still.
            StorageError: it is deleted, and files of it stay here until the peer starts again.
        """
        async with self._lock:
            now = trio.current_time()
            if not self.tenure.is_confirmed(now):
                raise UnavailableError(
                    f"{self.name}: no majority of its electors answers: nothing has changed"
                )
            folder = self.around.store.folder_of(key_of(self.name, HOME))
            await self._carry_out(self.tenure.delete(now), None)
        with trio.move_on_after(LAPSE * self.around.quiet_s) as waiting:
            await self.deleted.wait()
        if waiting.cancelled_caught:
            raise UnavailableError(
                f"{self.name}: its electors have not all answered: it may come to be deleted, or "
                "not; ask again"
            )
        await self._cleared.wait()
        if folder.exists():
            raise StorageError(f"{self.name}: its files stay, see the events: start the peer")

    async def settled(self) -> None:
        """Returns once some elector is home."""
        while not (self.is_home or self.tenure.home not in {"", self.around.own}):
            await self._moved.wait()

    async def home_changed(self) -> None:
        """Returns once another peer is home, or this one."""
        before = self.tenure.home
        while self.tenure.home == before:
            await self._moved.wait()

    async def suspended(self) -> None:
        """
        Raises:
            UnavailableError: as soon as posts are not acknowledged here any more.
        """
        generation = self._generation
        while self.is_home and self._generation == generation:
            await self._moved.wait()
        raise UnavailableError(f"{self.name}: its home is changing: send it again")

    async def acknowledged(self, upto: Position) -> None:
        """Returns once all replicas have what is before `upto`.

        Raises:
            UnavailableError: this peer is not the home any more, or they do not answer: the post
                may be there, or not; sent again it is there once.
            StorageFullError: a replica has no room.
        """
        generation = self._generation
        with trio.move_on_after(LAPSE * self.around.quiet_s):
            while self._generation == generation:
                if self.tenure.committed >= upto:
                    return
                await self._moved.wait()
        if self.trouble:
            raise StorageFullError(f"{self.name} waits for a replica: {self.trouble}")
        raise UnavailableError(f"{self.name}: its replicas have not answered: send it again")

    # -- effects ------------------------------------------------------------------------------

    async def _carry_out(self, effects: list[Effect], event: Event | None) -> Message | None:
        answer: Message | None = None
        if self._unsaved is not None:
            await self._save(self._unsaved)
        for effect in effects:
            match effect:
                case Send(to, message):
                    if isinstance(message, Inquire | AskVote | Install | Delete):
                        self.around.nursery.start_soon(self._ask, to, message)
                    else:
                        answer = message
                case _:
                    await self._do(effect)
        if isinstance(event, Received):
            await self._note_home()
        return answer

    async def _do(self, effect: Effect) -> None:
        match effect:
            case Keep(ballot):
                await self._save(ballot)
            case Won(fence):
                await self._lead(fence)
            case Ship(peer, fence):
                self._ships[peer] = trio.CancelScope()
                self.around.nursery.start_soon(self._ship, peer, fence, self._ships[peer])
            case StopShipping():
                self._stop_shipping()
            case Activated(tenure):
                await self._activate(tenure)
            case Committed(upto):
                self.trouble = ""
                await self.home.settle(upto, self.around.overlay.clock())
                self._notify()
            case Suspended(succeeded):
                await self._suspend(succeeded=succeeded)
            case Drop():
                self.around.nursery.start_soon(self._drop)
            case Send():
                raise AssertionError("sent by the caller")

    def _stop_shipping(self) -> None:
        for scope in self._ships.values():
            scope.cancel()
        self._ships.clear()

    async def _save(self, ballot: Ballot) -> None:
        self._unsaved = ballot
        stored = StoredBallot(self.entry, ballot)
        await trio.to_thread.run_sync(self._files.save, stored)
        self._unsaved = None

    async def _drop(self) -> None:
        """Leave nothing of the stream but the ballot, which says that it is deleted."""
        self._announcing.cancel()
        self._serve_no_more()
        self.deleted.set()
        async with self.following:  # what was shipped to us ends, see `follow`
            kept, self.kept = self.kept, None
            if kept is not None and kept.home is not None:
                await kept.home.retire()
            with trio.CancelScope(shield=True):
                await self.around.store.erase(key_of(self.name, HOME))
        if self.around.store.get(self.name) is None:  # it may be of a new one, without replicas
            await self._withdraw()
        self.around.events.note("info", f"{self.name} is deleted")
        self._cleared.set()

    async def _withdraw(self) -> None:
        for stream in self.entries:
            with suppress(MedusaError):  # a restart takes it back as well
                await self.around.producers.withdraw(stream)

    async def _lead(self, fence: int) -> None:
        try:
            async with self.home.exclusive():
                self.home.replica.lead(fence)
        except MedusaError:
            resigned = self.tenure.resign(trio.current_time())
            await self._carry_out(resigned, None)
            raise

    async def _activate(self, tenure: Tenure) -> None:
        assert self.kept is not None
        async with self.home.exclusive():
            self.home.replica.leading = True
        for kept in self._all_kept:
            kept.role = Role.at_home(kept.name)
        await self._take_definition()
        self._hold_for_a_while()
        text = f"became home of {self.name}, fence {tenure.fence}"
        self.around.events.note("info", text, stream=self.name, term=tenure.fence)
        self._announce_soon()
        self._notify()

    async def _suspend(self, *, succeeded: bool) -> None:
        self._generation += 1
        self._announcing.cancel()
        if self.kept is not None:
            async with self.home.exclusive():
                self.home.replica.leading = False
        if succeeded:
            self._serve_no_more()
        self._notify()

    @property
    def _all_kept(self) -> list[KeptStream]:
        assert self.kept is not None
        return [self.kept, *self.around.store.beside(self.kept)]

    def _serve_no_more(self) -> None:
        """Send subscribers away, here too: the log of who is no replica any more stands still."""
        if self.kept is None or self.kept.role is not Role.SOURCE:
            return
        for kept in self._all_kept:
            kept.role = Role.REPLICA
            kept.send_away()

    def _notify(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    async def _ask(self, to: str, message: Message) -> None:
        """A question to another elector; no answer is as good as none."""
        quiet_s = self.around.quiet_s
        try:
            with trio.fail_after(quiet_s):
                connection = await self.around.overlay.connect(parse_peer_id(to))
                told = await connection.call(TELL, Tell(self.name, message), Told)
        except (MedusaError, trio.TooSlowError):
            return
        await self.try_feed(Received(to, told.message))

    async def _ship(self, peer: str, fence: int, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await self.around.ship(self, peer, fence)
            except DamagedError as error:
                text = "another member is to be its home, as soon as one can"
                self.around.events.note("error", f"{self.name}: {error}; {text}")
                await self._find_damaged()
            except MedusaError as error:
                self.around.events.note("warning", f"{self.name}: replica {peer[:8]}: {error}")
        if self._ships.get(peer) is scope:
            await self.try_feed(Lost(peer, fence))

    async def _find_damaged(self) -> None:
        with trio.CancelScope(shield=True):  # for it stops what ships, this too
            async with self._lock:
                await self._carry_out(self.tenure.found_damaged(trio.current_time()), None)

    def _announce_soon(self) -> None:
        tenure = self.tenure.ballot.tenure
        assert tenure is not None, "it is the home"
        self._announcing.cancel()
        self._announcing = trio.CancelScope()
        self.around.nursery.start_soon(self._announce, tenure, self._announcing)

    async def _announce(self, tenure: Tenure, scope: trio.CancelScope) -> None:
        producers = self.around.producers
        announce = partial(producers.announce, secondary=tenure.replicas[0], fence=tenure.fence)
        with scope:
            while True:
                try:
                    for entry in self.entries.values():
                        await announce(entry)
                except MedusaError as error:
                    self.around.events.note("warning", f"could not announce {self.name}: {error}")
                    await trio.sleep(ANNOUNCE_AGAIN_S)
                else:
                    self._published = True
                    return

    async def _note_home(self) -> None:
        """Where another has taken over, what we published does not count any more."""
        if self.tenure.home in {"", self.around.own}:
            return
        self._serve_no_more()  # one that could do nothing any more does not step down a second time
        if not self._published:
            return
        self._published = False
        self.around.events.note(
            "info", f"follows {self.tenure.home[:8]}, the home of {self.name} now"
        )
        self.around.nursery.start_soon(self._leave)

    async def _leave(self) -> None:
        for stream in self.entries:
            try:
                await self.around.producers.leave(stream)
            except MedusaError as error:
                self.around.events.note("warning", f"{stream}: {error}")


def started(entry: StreamEntry, electors: tuple[str, ...]) -> StoredBallot:
    """The ballot of an elector of a new stream."""
    return StoredBallot(entry, Ballot(electors))
