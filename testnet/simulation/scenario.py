"""One run of a manifest: set up, work under faults, heal, converge, end; then the history."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import trio

from medusa.engine.objects.definitions import ANY, LATE, StreamDefinition
from medusa.engine.objects.schema import BEGINNING
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import MedusaError
from medusa.testnet.simulation.checkers import converged
from medusa.testnet.simulation.faults import Fault
from medusa.testnet.simulation.history import (
    History,
    Late,
    Overdue,
    Paid,
    PeerView,
    Quiescent,
    rows_of,
    schema_of,
)
from medusa.testnet.simulation.manifest import (
    Check,
    ContractTable,
    Manifest,
    StreamTable,
    SubscriberTable,
)
from medusa.testnet.simulation.peer_checks import last_output, money_of
from medusa.testnet.simulation.workload import (
    PATIENCE_S,
    PosterClient,
    Reader,
    Testbed,
    conclude,
    end_contract,
    end_stream,
    persist,
    producer_names,
)


async def run_faults(bed: Testbed, faults: Sequence[Fault]) -> None:
    """Carry out the schedule; returns when all faults are healed.

    Raises:
        InvalidInputError: the testbed cannot make such a fault.
    """
    start = bed.now()
    async with trio.open_nursery() as nursery:
        for fault in faults:
            nursery.start_soon(partial(_run, bed, fault, start))


async def _run(bed: Testbed, fault: Fault, start: float) -> None:
    await trio.sleep(max(0.0, start + fault.at_s - bed.now()))
    shown = f"{fault}"
    bed.note("fault", shown)
    await bed.inflict(fault)
    await trio.sleep(fault.for_s)
    bed.note("heal", shown)
    while True:
        try:
            await bed.heal(fault)
        except MedusaError as error:
            bed.note("heal", f"{shown}: {error}")
            await trio.sleep(1.0)
        else:
            return


LOOK_S: Final = 0.25
"""Seconds between two looks at the peers' internal states."""

LONGEST_LOOK_S: Final = 4.0
"""The longest interval, seconds, between two looks while the peers do not agree: each look asks all
peers for everything."""

SET_UP_S: Final = 120.0
"""Longest time for the definitions, seconds."""

AUDITOR: Final = "auditor of "
"""The prefix of the names of the readers that read every source stream to its end."""


@dataclass
class Run:
    """A manifest on a testbed. history: its events."""

    bed: Testbed
    manifest: Manifest
    history: History
    _contracts: dict[ContractTable, str] = field(default_factory=dict)

    async def __call__(self) -> None:
        """
        Raises:
            MedusaError: the streams and queries could not be defined.
        """
        with trio.move_on_after(SET_UP_S) as limit:
            await self._define()
        if limit.cancelled_caught:
            self._overdue("the definitions of streams and queries")
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._onlook)
            await self._work()
            nursery.cancel_scope.cancel()

    # -- set up ----------------------------------------------------------------------------------

    async def _define(self) -> None:
        with one_error():
            async with trio.open_nursery() as nursery:
                for stream in self.manifest.streams:
                    nursery.start_soon(self._define_stream, stream)
        for table in self.manifest.queries:
            query = table.query()
            async with self.bed.client(table.at) as client:
                await client.create_query(query)
                await client.start_query(query.name)
        for contract in self.manifest.contracts:
            self._contracts[contract] = await conclude(self.bed, contract, self._rng())
        self.bed.note("run", "everything is defined")

    async def _define_stream(self, stream: StreamTable) -> None:
        definition = StreamDefinition(
            stream.name,
            schema_of(stream.name).name,
            slack_us=int(stream.slack_s * 1e6),
            readers=(ANY,),
            writers=(ANY,),
            leader=self.bed.peers[stream.home].id,
            k_safety=stream.k_safety,
            history_us=int(stream.history_s * 1e6),
            max_ahead_us=None,
        )
        async with self.bed.client(stream.home) as client:
            await client.create_schema(schema_of(stream.name))
            await client.create_stream(definition)

    # -- the work ----------------------------------------------------------------------------------

    def _rng(self) -> random.Random:
        """A random generator for one client, independent of the other clients' draws."""
        return random.Random(self.bed.rng.getrandbits(64))

    async def _work(self) -> None:
        bed, history = self.bed, self.history
        tables = self.manifest.posters
        posters = [
            PosterClient(bed, history, table, producer, self._rng())
            for table, producer in zip(tables, producer_names(tables), strict=True)
        ]
        auditors = [
            SubscriberTable(AUDITOR + stream.name, stream.name, self.manifest.peers, 1e9)
            for stream in self.manifest.streams
        ]
        readers = [
            Reader(bed, history, each, self._rng())
            for each in (*self.manifest.subscribers, *auditors)
        ]
        async with trio.open_nursery() as nursery:
            for poster in posters:
                nursery.start_soon(poster.run)
            for reader in readers:
                nursery.start_soon(reader.run)
            for move in self.manifest.moves:
                nursery.start_soon(partial(self._move, move.at_s, move.stream, move.by, move.to))
            for table, contract in self._contracts.items():
                if table.revoked_s is not None:
                    nursery.start_soon(self._revoke, table, contract)
            await run_faults(bed, self.manifest.faults)
            await self._until_start_plus(self.manifest.workload_s)
            bed.note("run", "all is healed")
            for poster in posters:
                poster.hurried = True
            await self._converge(posters, readers)
            nursery.cancel_scope.cancel()

    async def _until_start_plus(self, seconds: float) -> None:
        await trio.sleep(max(0.0, seconds - self.bed.now()))

    async def _converge(self, posters: list[PosterClient], readers: list[Reader]) -> None:
        """Wait until everything has converged, within the allowed time; note what has not."""
        deadline = trio.current_time() + self.manifest.settle_s
        with trio.CancelScope(deadline=deadline):
            for poster in posters:
                await poster.done.wait()
        if not all(poster.done.is_set() for poster in posters):
            self._overdue("acknowledgements of posters")
            return
        await self._until_quiescent(deadline)
        with trio.move_on_after(self.manifest.settle_s):
            for stream in self.manifest.streams:
                owner = stream.home.partition("/")[0]
                own = [peer for peer in self.manifest.peers if peer.partition("/")[0] == owner]
                await end_stream(self.bed, stream.name, (stream.home, *own))
            self.bed.note("run", "streams are ended")
            for reader in readers:
                await reader.ended.wait()
            async with trio.open_nursery() as nursery:
                for stream in self.manifest.streams:
                    nursery.start_soon(self._read_late, stream.name)
            await self._until_paid()
        for reader in readers:
            if not reader.ended.is_set():
                self._overdue(
                    f"{reader.table.name} is at {reader.boundary} of {reader.table.stream}"
                )

    async def _until_quiescent(self, deadline: float) -> None:
        """Wait until the peers agree with one another, or the time is over; record their states."""
        pause_s = LOOK_S
        while True:
            now = self._state()
            over = trio.current_time() > deadline
            if over or converged(now, self.manifest):
                now = await self._with_lookups(now)
                if over or converged(now, self.manifest):
                    self.history.add(now)
                    return
            await trio.sleep(pause_s)
            pause_s = min(1.5 * pause_s, LONGEST_LOOK_S)

    def _state(self) -> Quiescent:
        views = self.bed.look(books=Check.MONEY in self.manifest.checks)
        running = {view.peer for view in views}
        down = tuple(p.id for name, p in self.bed.peers.items() if name not in running)
        return Quiescent(self.bed.now(), views, down)

    async def _with_lookups(self, now: Quiescent) -> Quiescent:
        """The same event, with each peer's catalog lookups of every stream."""
        if Check.MEMBERSHIP not in self.manifest.checks:
            return now
        streams = [table.name for table in self.manifest.streams]
        streams += [last_output(table.query()) for table in self.manifest.queries]
        told = await self.bed.look_up(streams)
        peers = tuple(
            msgspec.structs.replace(view, producers=told.get(view.peer, {})) for view in now.peers
        )
        return msgspec.structs.replace(now, peers=peers)

    async def _until_paid(self) -> None:
        """Wait until both ledgers agree after all tasks have ended, or the time is over; record
        them."""
        if not self._contracts or Check.MONEY not in self.manifest.checks:
            return
        try:
            while money_of(self._state(), self.manifest):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(LOOK_S)
        finally:
            now = self._state()
            self.history.add(Paid(now.at, now))

    async def _read_late(self, stream: str) -> None:
        """Read every late row. That stream does not end, so silence for a while counts as its
        end."""
        found: list[dict[str, object]] = []

        async def read(peer: str) -> None:
            found.clear()
            after = BEGINNING
            async with self.bed.client(peer, patience_s=PATIENCE_S) as client:
                while (
                    e := await client.receive_events(f"{stream}/{LATE}", after, 1.0)
                ) is not None:
                    found.extend(rows_of(e.table))
                    after = e.upto

        await persist(self.bed, self.manifest.peers, read)
        self.history.add(Late(self.bed.now(), stream, tuple(found)))

    async def _move(self, at_s: float, stream: str, by: str, to: str) -> None:
        await self._until_start_plus(at_s)
        target = self.bed.peers[to].id
        try:
            async with self.bed.client(by, patience_s=PATIENCE_S) as client:
                await client.move_task(stream, target)
        except (MedusaError, ExceptionGroup) as error:
            # half of the moves meet a fault; the state that they leave is checked
            self.bed.note("move", f"{stream} to {to}: {error}")
        else:
            self.bed.note("move", f"{stream} is at {to}")

    async def _revoke(self, table: ContractTable, contract: str) -> None:
        assert table.revoked_s is not None
        await self._until_start_plus(table.revoked_s)
        await end_contract(self.bed, table, contract)

    # -- looking on ------------------------------------------------------------------------------

    async def _onlook(self) -> None:
        """Record each peer's state whenever it has changed."""
        seen: dict[str, PeerView] = {}
        for look in itertools.count():
            for covered in self.bed.covered(look):
                self.history.add(covered)
            for reached in self.bed.reached(look):
                self.history.add(reached)
            for view in self.bed.look():
                before = seen.get(view.peer)
                if before is None or _facts(before) != _facts(view):
                    seen[view.peer] = view
                    self.history.add(view)
            await trio.sleep(LOOK_S)

    def _overdue(self, what: str) -> None:
        self.bed.note("overdue", what)
        self.history.add(Overdue(self.bed.now(), what))


def _facts(view: PeerView) -> tuple[object, ...]:
    return (view.life, view.members, view.primaries, view.works, view.gives, view.incarnation)
