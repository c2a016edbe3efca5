"""A voter of one stream at work: drives `Election`, its file, messages and journal."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a driver; the logic is passed it
from typing import Final

import trio
from msgspec.structs import replace

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.replication.directory.announcements import Announcements, Announcing
from medusa.engine.replication.leaders.ballot import Ballot, SourceTerm
from medusa.engine.replication.leaders.election import BEATS, Election
from medusa.engine.replication.leaders.events import (
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
)
from medusa.engine.replication.leaders.logs import BallotFiles, StoredBallot, VoterLogs
from medusa.engine.replication.leaders.messages import (
    REQUEST,
    Message,
    Request,
    VoterAnswer,
    VoterRequest,
    highest_number,
)
from medusa.engine.replication.leaders.news import News
from medusa.engine.replication.leaders.voter import Role as VoterRole
from medusa.engine.replication.records.term import MAJORITY
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import StreamState, entries_of
from medusa.overlay.errors import (
    DamagedError,
    MedusaError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from medusa.overlay.events import Events
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.node.node import Overlay

FOUNDED: Final = 1
"""The number of the term that a founder joins alone, before any post can be acknowledged."""


@dataclass(frozen=True)
class Surroundings:
    """The parts of a peer that all its voters use.

    Attributes:
        quiet_s: see `Election`.
        ship: ships a journal to a peer under a term, until the call ends.
    """

    overlay: Overlay
    store: StreamStore
    announcements: Announcements
    files: BallotFiles
    events: Events
    nursery: trio.Nursery
    quiet_s: float
    ship: Callable[[VoterDriver, str, int], Awaitable[None]]

    @property
    def own(self) -> str:
        return self.overlay.identity.peer_id.hex()


class VoterDriver:
    """This peer as a voter of one stream.

    Attributes:
        entry: the stream as published. entries: the entries of the stream, its late tuples and its
            revisions, by name. election: decides its role.
        logs: its files, if it has any. announcing: its catalog entries.
        news: wakes tasks that wait for its leader or its replicas.
        deleted: set once a majority has deleted the stream.
        cleared: set once the deleted stream has no files here any more.
    """

    def __init__(self, around: Surroundings, stored: StoredBallot) -> None:
        self.around = around
        self._set_entry(stored.entry)
        self.election = Election(
            around.own,
            stored.ballot,
            quiet_s=around.quiet_s,
            rng=Random(secrets.randbits(64)),  # noqa: S311 - it only spreads candidates over time
            now=trio.current_time(),
        )
        self.logs = VoterLogs(around.store)
        self.announcing = Announcing(self.name, around.announcements, around.events, around.nursery)
        self.news = News(self.name, self.election, around.quiet_s)
        self.following = trio.Lock()
        self.deleted = trio.Event()
        self.cleared = trio.Event()
        self._files = around.files
        self._lock = trio.Lock()
        self._unsaved: Ballot | None = None
        self._shipments = Shipments(self)

    def _set_entry(self, entry: StreamEntry) -> None:
        self.entry = entry
        self.entries = {each.stream.name: each for each in entries_of(entry)}

    @property
    def name(self) -> str:
        return self.entry.stream.name

    @property
    def is_leader(self) -> bool:
        """Whether posts are acknowledged here."""
        return self.election.role is VoterRole.LEADER

    async def run(self) -> None:
        """Let time pass for the election, until the stream is deleted."""
        if self.election.deleted:  # a crash may have come before everything was removed
            await self._drop()
        while not self.election.deleted:
            await trio.sleep(self.around.quiet_s / BEATS)
            await self.try_feed(Tick())

    async def open(self) -> StreamState:
        """Open the stream's logs and journal, or make them."""
        if self.logs.state is not None:
            return self.logs.state
        state = await self.logs.open(self.entry, self.election.ballot.journal)
        leader = self.logs.leader
        if self.election.leader not in {"", self.around.own}:
            self.logs.hold(*leader.logs.starts)
        lost = leader.lost or not leader.source.journal.segments
        if lost and self.election.ballot.joined > FOUNDED:
            text = f"waits for another member's journal of {self.name}"
            self.around.events.note("error", f"{text}: what it had as a replica is not whole")
            await self.forget()
        return state

    async def found(self) -> None:
        """Become the first leader; see `Election.found`."""
        async with self._lock:
            await self.open()
            await self._carry_out(self.election.found(trio.current_time()), None)

    async def answer(self, sender: str, message: Message) -> Message:
        """Answer a message of another voter.

        Raises:
            MedusaError: the answer could not be stored, or the message is of the future.
        """
        answer = await self.feed(Received(sender, message))
        if answer is None:
            raise UnavailableError(f"{sender} is no voter of {self.name}")
        return answer

    async def try_feed(self, event: Event) -> None:
        """Call `feed`, and note a failure as an event, because no caller can receive it."""
        try:
            await self.feed(event)
        except MedusaError as error:
            self.around.events.note("error", f"could not go on with {self.name}: {error}")

    async def feed(self, event: Event) -> Message | None:
        """Handle an event; returns the answer to a request.

        Raises:
            MedusaError: the disk does not take the ballot, or another voter names a term of the
                future; the event has no effect.
        """
        if isinstance(event, Received | Called):
            # An honest number is one more than the last, and so is far below the clock's. A number
            # above the clock's is refused: after the greatest one there could be no other leader.
            number = event.number if isinstance(event, Called) else highest_number(event.message)
            MAJORITY.check(self.name, number, self.around.overlay.clock())
        async with self._lock:
            leader = self.election.leader
            effects = self.election.handle(event, trio.current_time())
            answer = await self._carry_out(effects, event)
            if self.election.leader != leader:
                self.news.notify()
            return answer

    async def forget(self) -> None:
        """See `Election.forget`."""
        await self.step(lambda _: self.election.forget())

    async def step(self, asked: Callable[[float], list[Effect]]) -> None:
        """Carry out the effects of a request of this peer, with the present time of trio's clock;
        if `asked` raises, nothing has happened.

        Raises:
            MedusaError: as of `feed`.
        """
        async with self._lock:
            await self._carry_out(asked(trio.current_time()), None)

    async def be_altered(self) -> None:
        """Wait until all replicas have the new definition of the stream, and use it. Raises:
        NotFoundError: the stream was deleted meanwhile.
        """
        async with self._lock:
            if self.election.deleted:
                raise NotFoundError(f"{self.name} is deleted")
            await self._take_definition()
            if self.is_leader:
                self._announce_soon()

    async def _take_definition(self) -> None:
        """Take the journal's definition of the stream, which all replicas have."""
        definition = self.logs.definition
        if definition is None or definition.edition <= self.entry.stream.edition:
            return
        self._set_entry(replace(self.entry, stream=definition))
        await self.logs.define(self.entry)
        try:
            await self._save(self.election.ballot)
        # the journal has the definition, and the ballot gets it later
        except StorageError as error:
            self.around.events.note("warning", f"could not save {self.name}: {error}")

    # -- effects ------------------------------------------------------------------------------

    async def _carry_out(self, effects: list[Effect], event: Event | None) -> Message | None:
        answer: Message | None = None
        if self._unsaved is not None:
            await self._save(self._unsaved)
        for effect in effects:
            match effect:
                case Send(to, message):
                    if isinstance(message, Request):
                        self.around.nursery.start_soon(self._ask, to, message)
                    else:
                        answer = message
                case _:
                    await self._do(effect)
        if isinstance(event, Received):
            self._note_leader()
        return answer

    async def _do(self, effect: Effect) -> None:
        match effect:
            case Keep(ballot):
                await self._save(ballot)
            case Won(number, reopened):
                await self._lead(number, reopened=reopened)
            case Ship(peer, number):
                self._shipments.begin(peer, number)
            case StopShipping():
                self._shipments.stop()
            case Activated(term):
                await self._activate(term)
            case Committed(upto):
                self.news.trouble = ""
                await self.logs.leader.settle(upto, self.around.overlay.clock())
                self.news.notify()
            case Suspended(succeeded):
                await self._suspend(succeeded=succeeded)
            case Drop():
                self.around.nursery.start_soon(self._drop)
            case Send():
                raise AssertionError("sent by the caller")

    async def _save(self, ballot: Ballot) -> None:
        self._unsaved = ballot
        stored = StoredBallot(self.entry, ballot)
        await trio.to_thread.run_sync(self._files.save, stored)
        self._unsaved = None

    @failpoint(Failpoint.VOTER_DROP)
    async def _drop(self) -> None:
        """Remove everything of the stream except the ballot, which says that it is deleted."""
        self.announcing.stop()
        self.logs.serve_no_more()
        self.deleted.set()
        async with self.following:  # a leader's call to this peer ends, see `follow`
            await self.logs.erase(self.name)
        # a new stream without replicas may have the name
        if self.around.store.get(self.name) is None:
            await self.announcing.withdraw(self.entries)
        self.around.events.note("info", f"deleted {self.name}")
        self.cleared.set()

    async def _lead(self, number: int, *, reopened: bool) -> None:
        try:
            await self.logs.lead(number, reopened=reopened)
        except MedusaError:
            resigned = self.election.resign(trio.current_time())
            await self._carry_out(resigned, None)
            raise

    async def _activate(self, term: SourceTerm) -> None:
        await self.logs.serve()
        await self._take_definition()
        self.logs.hold_for_a_while()
        text = f"became leader of {self.name}, term {term.number}"
        self.around.events.note("info", text, stream=self.name, term=term.number)
        self._announce_soon()
        self.news.notify()

    async def _suspend(self, *, succeeded: bool) -> None:
        self.news.suspend()
        self.announcing.stop()
        await self.logs.take_no_posts()
        if succeeded:
            self.logs.serve_no_more()
        self.news.notify()

    async def _ask(self, to: str, message: Message) -> None:
        """Ask another voter; a failure counts as no answer."""
        quiet_s = self.around.quiet_s
        try:
            with trio.fail_after(quiet_s):
                connection = await self.around.overlay.connect(parse_peer_id(to))
                answer = await connection.call(
                    REQUEST, VoterRequest(self.name, message), VoterAnswer
                )
        except (MedusaError, trio.TooSlowError):
            return
        await self.try_feed(Received(to, answer.message))

    def _announce_soon(self) -> None:
        term = self.election.ballot.term
        assert term is not None, "it is the leader"
        self.announcing.announce_soon(self.entries.values(), term.of(self.name))

    def _note_leader(self) -> None:
        """If another peer has taken over, stop serving the stream and publishing it."""
        leader = self.election.leader
        if leader not in {"", self.around.own}:
            # a leader that was suspended before gets no second `Suspended`
            self.logs.serve_no_more()
            self.announcing.leave_soon(self.entries, leader)


class Shipments:
    """The present shipments of the journal by this peer, as the leader or a candidate."""

    def __init__(self, voter: VoterDriver) -> None:
        self._voter = voter
        self._around = voter.around
        self._scopes: dict[str, trio.CancelScope] = {}

    def begin(self, peer: str, number: int) -> None:
        """Ship to a peer under that term."""
        self._scopes[peer] = scope = trio.CancelScope()
        self._around.nursery.start_soon(self._ship, peer, number, scope)

    def stop(self) -> None:
        """Stop shipping to all peers."""
        for scope in self._scopes.values():
            scope.cancel()
        self._scopes.clear()

    async def _ship(self, peer: str, number: int, scope: trio.CancelScope) -> None:
        voter, events = self._voter, self._around.events
        with scope:
            try:
                await self._around.ship(voter, peer, number)
            except DamagedError as error:
                text = "another member is to be its leader, as soon as one can"
                events.note("error", f"gives up {voter.name}: {error}; {text}")
                # forgetting the stream stops all shipping, and so perhaps this task
                with trio.CancelScope(shield=True):
                    await voter.step(voter.election.found_damaged)
            except MedusaError as error:
                events.note("warning", f"could not ship {voter.name} to {peer[:8]}: {error}")
        if self._scopes.get(peer) is scope:
            await voter.try_feed(Lost(peer, number))


def started(entry: StreamEntry, voters: tuple[str, ...]) -> StoredBallot:
    """The ballot of a voter of a new stream."""
    return StoredBallot(entry, Ballot(voters))
