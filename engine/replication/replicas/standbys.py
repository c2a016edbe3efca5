"""The secondary's side: the queries that this peer would take over, and the takeover itself.

The peer decides a takeover when it stores a term with a higher number. All further steps can be
repeated: it serves the outputs, the catalog names it, consumers come from the boundary that they
have, and the holder of the lower term steps down when it learns of the higher one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import trio

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.queries.lifecycle import Lifecycle
from medusa.engine.replication.records.query_history import follows
from medusa.engine.replication.records.stored_query import StoredQuery, written
from medusa.engine.replication.records.term import HIGHEST_NUMBER, Term
from medusa.engine.replication.replicas.messages import (
    Dismiss,
    Dismissed,
    Incumbent,
    KeepUp,
    KeptUp,
    StandBy,
)
from medusa.engine.replication.replicas.standby import Standby
from medusa.engine.replication.replicas.takeovers import TICK_S, Takeovers
from medusa.engine.replication.replicas.watch import Ask, Detected, Doubt, Effect, TakeOver, Tick
from medusa.engine.streams.messages import Done
from medusa.engine.streams.store.stream_state import StreamState
from medusa.engine.streams.store.subscriptions import Lease
from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.gossip.events import Health
from medusa.overlay.names import NO_PEER, ObjectName, PeerId

ASK_CALL_S: Final = 5.0
"""The longest wait for a primary that is asked, seconds."""

RESUME_S: Final = 10.0
"""How often to try again to open a standby of the last run, seconds."""

MAX_STANDBYS: Final = 500
"""Queries for which a peer stands by: each has logs, and may run here some day."""


class Standbys:
    """The standbys of one peer.

    Attributes:
        changing: held while a standby is added or removed.
    """

    def __init__(self, queries: QueryHost, lifecycle: Lifecycle) -> None:
        shop = queries.shop
        self._overlay = shop.overlay
        self._here = shop.here
        self._participant = shop.overlay.identity.participant
        self._store = shop.store
        self._directory = shop.directory
        self._followers = shop.followers
        self._queries = queries
        self._nursery = shop.nursery
        self._standbys: dict[str, Standby] = {}
        self._opened = Bell()
        self.changing = trio.Lock()
        self._takeovers = Takeovers(self, queries)
        lifecycle.vacated.made_by(self.vacate)

    def all(self) -> list[Standby]:
        return list(self._standbys.values())

    def get(self, query: str) -> Standby | None:
        return self._standbys.get(query)

    def has(self, standby: Standby) -> bool:
        """Whether this peer still has this standby."""
        return self._standbys.get(standby.name) is standby

    def hand_over(self, standby: Standby) -> None:
        """Release a standby whose query this peer has taken over."""
        del self._standbys[standby.name]

    def rendition(self, stream: str) -> StreamState | None:
        """The log of a stream that this peer computes beside the primary."""
        for standby in self._standbys.values():
            state = standby.rendition(stream)
            if state is not None:
                return state
        return None

    # -- asked by a primary -----------------------------------------------------------------

    async def stand_by(self, primary: PeerId, participant: str, request: StandBy) -> KeptUp:
        """Become the secondary of a query, or take its changes.

        Args:
            primary: the caller. participant: its participant.

        Raises:
            NotAuthorisedError: the query is not of our participant, or not the caller's.
            InvalidInputError: it makes no sense, or calls a function that is not allowed here.
            ConflictError: a later term is known here.
            BusyError: there are too many, or this peer is still leaving the query.
        """
        stored = request.stored
        self._check_ours(primary, participant, stored)
        async with self.changing:
            known = self._known(stored.name)
            if known.succeeds(stored.term):
                return KeptUp(written(known), {})
            for output in stored.entry.outputs:
                self._directory.believe(Term(output, stored.term.number))
            if self._queries.occupied(stored.name):
                raise BusyError(f"{stored.name}: this peer is still leaving it")
            standby = self._standbys.get(stored.name)
            if standby is not None and follows(standby.stored, stored):
                return _kept_up(standby, await standby.take_edition(stored))
            if standby is not None:
                await self._drop(standby)
            if len(self._standbys) >= MAX_STANDBYS:
                raise BusyError(f"this peer stands by for {MAX_STANDBYS} queries already")
            standby = await self._open(stored)
            # a query of the last run that is not opened yet
            self._queries.pending.pop(stored.name, None)
            return _kept_up(standby)

    async def keep_up(self, primary: PeerId, request: KeepUp) -> KeptUp:
        """Note that the primary lives. Raises: NotFoundError: this peer does not stand by for the
        query."""
        await trio.lowlevel.checkpoint()
        standby = self._standbys.get(request.query)
        if standby is None:
            known = self._known(request.query)
            if known.number > request.term_number:
                return KeptUp(written(known), {})
            raise NotFoundError(f"{request.query[:256]}: this peer does not stand by for it")
        if (standby.term.holder, standby.term.number) == (primary, request.term_number):
            self._adopt(standby, request.leases)
            now = trio.current_time()
            effects = standby.watch.handle(standby.receive(request, now), now)
            self._apply(standby, effects)
        return _kept_up(standby)

    def _adopt(self, standby: Standby, leases: Iterable[Lease]) -> None:
        """Grant subscribers the leases that they have at the primary."""
        for lease in leases:
            if lease.stream in standby.stored.entry.outputs:
                # then this peer keeps less for its consumers than it could
                with suppress(BusyError):
                    self._store.adopt(lease)

    async def dismiss(self, primary: PeerId, participant: str, request: Dismiss) -> Dismissed:
        """Stop standing by: the primary has another secondary, or the query is deleted.

        Raises:
            NotAuthorisedError: the query is not of our participant, or not the caller's.
                InvalidInputError: its term is of the future. ConflictError: this peer has the query
                itself, or may take it over.
        """
        self._check_owner(participant, request.query)
        HIGHEST_NUMBER.check(request.query, request.term_number, self._overlay.clock())
        async with self.changing:
            standby = self._standbys.get(request.query)
            if standby is not None and standby.yields_to(
                Term(request.query, request.term_number, primary)
            ):
                await self._drop(standby)
            if self._known(request.query).holder:
                raise ConflictError(f"{request.query[:256]}: this peer has not let go of it")
            return Dismissed(self._queries.files.given(request.query))

    async def vacate(self, query: str) -> None:
        """Stop standing by for a query of that name, if that query no longer exists: a new one is
        to be created here.

        Raises:
            ConflictError: the query still exists, or its primary cannot be asked.
        """
        standby = self._standbys.get(query)
        if standby is not None:
            await self._ask(standby)
        if query in self._standbys or query in self._queries.pending:
            raise ConflictError(
                f"{query}: this peer stands by for a query of that name; delete that, or make it "
                "at another peer"
            )

    def _check_ours(self, primary: PeerId, participant: str, stored: StoredQuery) -> None:
        self._check_owner(participant, stored.name)
        HIGHEST_NUMBER.check(stored.name, stored.term.number, self._overlay.clock())
        if (stored.term.holder, stored.term.secondary) != (primary, self._here):
            raise InvalidInputError(f"{stored.name}: a term of other peers")

    def _check_owner(self, participant: str, query: str) -> None:
        owner = ObjectName.parse(query).participant
        if not owner == participant == self._participant:
            raise NotAuthorisedError(f"{query}: only peers of {owner} stand by for it")

    def _known(self, query: str) -> Term:
        """The latest known term of the query that is not of the future."""
        known = self._here_known(query)
        return (
            known if HIGHEST_NUMBER.believes(known.number, self._overlay.clock()) else Term(query)
        )

    def _here_known(self, query: str) -> Term:
        with suppress(NotFoundError):
            return self._queries.get(query).stored.term
        pending = self._queries.pending.get(query)
        if pending is not None:
            return pending.term
        standby = self._standbys.get(query)
        return Term(query) if standby is None else standby.term

    # -- over time ----------------------------------------------------------------------------

    async def resume(self) -> None:
        """Resume the standbys of the last run."""
        for stored in list(self._queries.pending.values()):
            if stored.term.holder in {NO_PEER, self._here}:
                continue
            try:
                await self._open(stored, again=True)
            # another peer's query must not prevent this peer from starting
            except MedusaError as error:
                text = f"does not stand by for {stored.name} yet: {error}"
                self._overlay.events.note("error", text)
            else:
                del self._queries.pending[stored.name]

    async def maintain(self) -> None:
        """Watch the primaries, for ever."""
        with self._overlay.gossip.changed.listening(self._detected):
            resumed_at = trio.current_time()
            while True:
                if not self._standbys:
                    with trio.move_on_at(resumed_at + RESUME_S):
                        await self._opened.wait()
                self._opened.clear()
                await trio.sleep(TICK_S)
                for standby in self.all():
                    self._look_at(standby)
                if trio.current_time() - resumed_at > RESUME_S:
                    resumed_at = trio.current_time()
                    async with self.changing:
                        await self.resume()

    def _look_at(self, standby: Standby) -> None:
        if standby.record.decided is not None:
            self._apply(standby, [TakeOver("as it was decided")])
            return
        standby.note_boundaries(trio.current_time())
        standby.note_silence(trio.current_time())
        self._notify(standby, self._overlay.gossip.health(standby.term.holder))
        self._apply(standby, standby.watch.handle(Tick(), trio.current_time()))
        if standby.streams.lost:
            # the primary notices this, and asks again
            self._nursery.start_soon(self.give_up, standby)

    def _detected(self, peer: PeerId, health: Health) -> None:
        for standby in self.all():
            if standby.term.holder == peer:
                self._notify(standby, health)

    def _notify(self, standby: Standby, health: Health) -> None:
        self._apply(standby, standby.watch.handle(Detected(health), trio.current_time()))

    def _apply(self, standby: Standby, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Doubt():
                    self._overlay.gossip.doubt(standby.term.holder)
                case Ask():
                    self._nursery.start_soon(self._ask, standby)
                case TakeOver(reason):
                    self._takeovers.begin(standby, reason)

    async def _ask(self, standby: Standby) -> None:
        """Ask the primary whether this peer is still its secondary; if not, give up the standby."""
        if standby.record.decided is not None:
            return
        question = Incumbent(standby.name, standby.term.number)
        with suppress(MedusaError):
            try:
                connection = await self._overlay.connect(standby.term.holder)
                await connection.call("replica.incumbent", question, Done, timeout_s=ASK_CALL_S)
            except (NotFoundError, ConflictError):
                await self.give_up(standby)

    async def give_up(self, standby: Standby) -> None:
        """Stop standing by, unless this peer has decided to take the query over."""
        async with self.changing:
            if self.has(standby) and standby.record.decided is None:
                await self._drop(standby)

    # -- afterwards ------------------------------------------------------------------------------

    async def _open(self, stored: StoredQuery, *, again: bool = False) -> Standby:
        """Open a standby. again: whether it is of the last run; then a failure to open it is tried
        again later."""
        plan = await self._overlay.threads.run(self._participant, stored.network.tasks)
        self._queries.shop.check_functions(plan)
        standby = Standby(self._queries, stored, plan, resumed=again)
        try:
            await standby.open()
        except BaseException:  # no loop takes care of a half opened standby
            if not again:
                await standby.drop()
            raise
        self._standbys[standby.name] = standby
        self._opened.ring()
        return standby

    async def _drop(self, standby: Standby) -> None:
        del self._standbys[standby.name]
        await standby.drop()


def _kept_up(standby: Standby, earliest: int = BEGINNING) -> KeptUp:
    return KeptUp(written(standby.term), standby.boundaries, standby.record.saved, earliest)
