from __future__ import annotations

import math
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import msgspec
import trio

from medusa.engine.objects.query import QueryStatus
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import HIGHEST_NUMBER
from medusa.engine.replication.replicas.kept_streams import GRACE_S, PRIMARY
from medusa.engine.replication.replicas.standby import Standby
from medusa.engine.streams.store.stream_state import Role
from medusa.overlay.errors import MedusaError, UnavailableError, WithdrawnError

TICK_S: Final = 0.25
"""How often silent primaries are checked, seconds."""

LOOK_UP_S: Final = 5.0
"""How long, and how often, the catalog is asked about a query that does not run, seconds."""


class Standbys(Protocol):
    """The standbys among which a takeover finds its own.

    Attributes:
        changing: held while a standby is added or removed.
    """

    changing: trio.Lock

    def has(self, standby: Standby) -> bool: ...

    def hand_over(self, standby: Standby) -> None: ...

    async def give_up(self, standby: Standby) -> None: ...


class Takeovers:
    """Takes queries over from their primaries, one takeover of a query at a time."""

    def __init__(self, standbys: Standbys, queries: QueryHost) -> None:
        shop = queries.shop
        self._standbys = standbys
        self._queries = queries
        self._overlay = shop.overlay
        self._here = shop.here
        self._store = shop.store
        self._directory = shop.directory
        self._followers = shop.followers
        self._nursery = shop.nursery
        self._under_way: set[Standby] = set()
        self._looked_up_at: WeakKeyDictionary[Standby, float] = WeakKeyDictionary()

    def begin(self, standby: Standby, reason: str) -> None:
        """Take a query over, unless a takeover is under way. reason: for people."""
        if standby not in self._under_way:
            self._under_way.add(standby)
            self._nursery.start_soon(self._take_over, standby, reason)

    async def _take_over(self, standby: Standby, reason: str) -> None:
        primary = standby.stored.term.holder
        try:
            await self._look_up(standby)
            async with self._standbys.changing:
                if not self._standbys.has(standby):
                    return
                if standby.stored.entry.status is not QueryStatus.RUNNING:
                    return  # no consumer waits for it; its primary starts it when it is back
                term = await self._succeed(standby)
        except MedusaError as error:  # for example, the disk is full: the next tick tries again
            self._overlay.events.note("error", f"could not take over {standby.name}: {error}")
            return
        finally:
            self._under_way.discard(standby)
        self._overlay.events.note(
            "warning",
            f"took over {standby.name} from {primary.hex()[:8]}: {reason}",
            query=standby.name,
            term=term,
        )

    async def _look_up(self, standby: Standby) -> None:
        """Look up changes that a primary published before it died, but did not send to this peer:
        the query was started; or, while this peer was away, it was deleted, or modified with
        another peer as its secondary."""
        known, now = standby.stored.entry, trio.current_time()
        sure = known.status is QueryStatus.RUNNING and standby.watch.sure(now)
        if sure or now - self._looked_up_at.get(standby, -math.inf) < LOOK_UP_S:
            return
        self._looked_up_at[standby] = now
        edition, found, over = known.edition, known, False

        async def ask_for_edition() -> None:
            nonlocal edition
            with suppress(MedusaError):
                edition = await self._published_edition(standby)

        async def ask_for_entry() -> None:
            nonlocal found, over
            try:
                found = await self._directory.query(standby.name)
            except WithdrawnError:
                over = True
            except MedusaError:
                pass  # the catalog is asked again

        with trio.move_on_after(LOOK_UP_S):  # in parallel: the catalog is slow when peers die
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_for_edition)
                nursery.start_soon(ask_for_entry)
        with suppress(MedusaError):
            if over or edition > known.edition:
                # the query, or this edition of it, is obsolete
                await self._standbys.give_up(standby)
            elif (found.query, found.peer) == (known.query, standby.stored.term.holder.hex()):
                async with self._standbys.changing:
                    if self._standbys.has(standby):
                        await standby.take_status(found)

    async def _published_edition(self, standby: Standby) -> int:
        """The newest published edition. A peer that was away may know no other peers yet; then it
        asks again."""
        while not standby.watch.sure(trio.current_time()):
            with suppress(UnavailableError):
                return await self._directory.edition(standby.stored.entry.outputs[0])
            await trio.sleep(TICK_S)
        return 0

    def _decide(self, standby: Standby) -> StoredQuery:
        """Store that this peer has the query. All later steps can be repeated, and are until they
        succeed."""
        known = (standby.term.number, *map(self._directory.number, standby.stored.entry.outputs))
        now = self._overlay.clock()
        term = HIGHEST_NUMBER.next(standby.name, known, self._here, now)
        entry = msgspec.structs.replace(standby.stored.entry, peer=self._here.hex())
        before_us = standby.stored.parted_from(standby.term.holder)
        parted = tuple(peer for peer in before_us if peer != self._here.hex())
        stored = msgspec.structs.replace(standby.stored, entry=entry, parted=parted).under(term)
        standby.record.decide(stored)
        return stored

    async def _succeed(self, standby: Standby) -> int:
        """Complete the takeover; returns the number of the term."""
        stored = standby.record.decided or self._decide(standby)
        with trio.CancelScope(shield=True):
            await standby.leave_primary()
            running = standby.copy
            standby.record.take_over()
            if not standby.computes:
                await running.prepare()
            for task in running.tasks:
                await self._store.change_role(task.state, Role.DERIVED)
                needed = stored.positions.get(task.name, task.state.log.start)
                task.state.log.retention.hold(PRIMARY, needed, trio.current_time() + GRACE_S)
            self._standbys.hand_over(standby)
            self._queries.take_over(running)
            standby.streams.release()
            for task in running.tasks:
                self._followers.read_anew(task.name)
        return stored.term.number
