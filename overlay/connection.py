"""A connection: drives the multiplexer over one TLS stream, and makes calls over it."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import trio
from msgspec import Struct

from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import (
    BrokenError,
    BusyError,
    ClosedError,
    DeadlineError,
    DecodeError,
)
from medusa.overlay.events import Events
from medusa.overlay.identity import PeerName
from medusa.overlay.listeners import Listeners
from medusa.overlay.log import bound, bound_fields
from medusa.overlay.memory import Share
from medusa.overlay.multiplex import Multiplexer
from medusa.overlay.names import NO_PEER
from medusa.overlay.rpc import Caller, Duplex, EndOfCall, Service, keep
from medusa.overlay.streams import Buffer, Event, Opened, Stream

READ_BYTES: Final = 256 * 2**10
"""Bytes taken from the stream at once, at most."""

FRAMES_AT_ONCE: Final = 32
"""Frames handled before other tasks have their turn: most of a read of streamed tuples, or some ten
small calls. Without the limit one member's flood (a few thousand small frames in a read) delayed
every other task, the failure detector too."""

DEFAULT_WEIGHT: Final = 16
"""Weight of a call without one: control messages are small and should be quick."""

BULK_WEIGHT: Final = 4
"""Weight for streams of tuples: a quarter of a control call's share."""

MAX_CALLS: Final = 1024
"""Handlers at work for one connection, including those that are being cancelled."""

_NUMBERS: Final = itertools.count(1)
"""Numbers that tell the connections of a process apart in its log."""

R = TypeVar("R", bound=Struct)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """When a silent connection counts as dead, in seconds.

    Attributes:
        ping_s: time between pings.
        dead_after_s: time without any received byte after which the connection is dead.
        probe_s: time within which a suspected connection must answer.
        stall_s: a write that takes longer is evidence that the remote does not forward.
    """

    ping_s: float = 10.0
    dead_after_s: float = 30.0
    probe_s: float = 3.0
    stall_s: float = 1.0

    def __post_init__(self) -> None:
        assert 0 < self.ping_s < self.dead_after_s
        assert self.probe_s > 0
        assert self.stall_s > 0


class Connection:
    """One connection to one remote, until it breaks or is closed.

    Attributes:
        remote: the peer at the other end (a client has the empty peer id).
        caller: the remote as our methods see it.
        closed: set once no more calls can be made over it.
        doubted: called when there is evidence that the remote, or the way to it, does not work.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        caller: Caller,
        *,
        dialled: bool,
        service: Service,
        events: Events,
        keep_alive: KeepAlive | None = None,
        memory: Share | None = None,
    ) -> None:
        """
        Args:
            caller: the remote.
            memory: the memory share of the remote's participant, over all its connections.
        """
        self.remote = remote = PeerName(caller.participant, caller.peer_id or NO_PEER)
        self.caller = caller
        self.closed = trio.Event()
        self.doubted: Listeners[[]] = Listeners()
        self._stream = stream
        self._service = service
        self._events = events
        self._keep_alive = keep_alive or KeepAlive()
        self._memory = memory or Share()
        self._charged_s = 0.0
        self._multiplexer = Multiplexer(dialled=dialled, memory=self._memory)
        self._calls: dict[Stream, Duplex] = {}
        self._handling = 0
        self._writer = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._probes = Bell()
        self._write_begun = Bell()
        self._heard_at = 0.0
        self._reads = 0
        self._writing_since = math.inf
        self._end: tuple[str, bool] | None = None
        self._label = (
            f"{remote.participant}/{remote.peer_id.hex()[:8] or 'client'}#{next(_NUMBERS)}"
        )

    # -- calling

    async def call(
        self,
        method: str,
        request: Struct,
        response_type: type[R],
        *,
        body: Buffer = b"",
        timeout_s: float = 10.0,
        weight: int = DEFAULT_WEIGHT,
    ) -> R:
        """Call a unary method; see `call_with_body`."""
        response, _ = await self.call_with_body(
            method, request, response_type, body=body, timeout_s=timeout_s, weight=weight
        )
        return response

    async def call_with_body(
        self,
        method: str,
        request: Struct,
        response_type: type[R],
        *,
        body: Buffer = b"",
        timeout_s: float = 10.0,
        weight: int = DEFAULT_WEIGHT,
    ) -> tuple[R, bytes]:
        """Call a unary method and return its response with its body.

        Raises:
            DeadlineError: no response within `timeout_s`; the handler is cancelled.
            BrokenError: the connection broke, before or during the call.
            ClosedError: our side closed the connection.
            DecodeError: the response is malformed.
            MedusaError: the error of the handler.
        """
        with trio.move_on_after(timeout_s):
            async with self.open(method, request, body=body, weight=weight) as duplex:
                duplex.finish_now()
                try:
                    return await duplex.receive(response_type)
                except EndOfCall:
                    raise DecodeError(f"{method}: {self} finished without a response") from None
        raise DeadlineError(f"{method}: {self} did not answer within {timeout_s:g} s")

    @asynccontextmanager
    async def open(
        self,
        method: str,
        request: Struct,
        *,
        body: Buffer = b"",
        weight: int = DEFAULT_WEIGHT,
    ) -> AsyncIterator[Duplex]:
        """Open a call and send its request; leaving the block leaves the call.

        Raises:
            BusyError: as many calls are open as the remote accepts.
            BrokenError, ClosedError: there is no connection any more.
        """
        if self._end is not None:
            text, closed_here = self._end
            raise ClosedError(text) if closed_here else BrokenError(text)
        cause = bound_fields().get("cause", "")
        duplex = self._add(self._multiplexer.open(method, weight, cause))
        try:
            await duplex.send(request, body)
            yield duplex
        finally:
            duplex.close()
            self._forget_over(duplex)

    def close(self, reason: str = "closed") -> None:
        """Close our side now; calls under way fail with ClosedError."""
        self._finish(f"connection to {self}: {reason}", closed_here=True)

    def give_up(self, reason: str) -> None:
        """Close a connection whose remote is known to be gone: calls under way fail with
        BrokenError."""
        self._finish(f"connection to {self}: {reason}", closed_here=False)

    def probe(self) -> None:
        """Suspect this connection: it is closed unless the remote answers soon."""
        self._probes.ring()

    def __str__(self) -> str:
        return f"{self.remote.participant} peer {self.remote.peer_id.hex()[:12] or '(client)'}"

    # -- driving

    async def run(self) -> None:
        """Drive the connection until it ends; never raises for an action of the remote."""
        try:
            with self._scope, bound(participant=self.caller.participant, connection=self._label):
                self._heard_at = trio.current_time()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._stay_alive)
                    nursery.start_soon(self._probe)
                    nursery.start_soon(self._watch_writes)
                    await self._read(nursery)
        finally:
            self._finish(f"connection to {self} is closed", closed_here=True)
            await trio.aclose_forcefully(self._stream)

    async def _read(self, nursery: trio.Nursery) -> None:
        while True:
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                self._finish(f"connection to {self} broke", closed_here=False)
                return
            self._heard_at = trio.current_time()
            self._reads += 1
            await keep(self._memory.pace)
            try:
                self._take(self._multiplexer.receive(bytes(data), FRAMES_AT_ONCE), nursery)
                while self._multiplexer.receiving:
                    await trio.lowlevel.checkpoint()
                    await keep(self._memory.pace)
                    self._take(self._multiplexer.receive(most=FRAMES_AT_ONCE), nursery)
            except DecodeError as error:
                self._events.note("warning", f"cut {self}, which broke the protocol: {error}")
                self._finish(f"{self} broke the protocol: {error}", closed_here=False)
                return

    def _take(self, events: list[Event], nursery: trio.Nursery) -> None:
        self._charge()
        for event in events:
            if isinstance(event, Opened):
                self._start(event.stream, nursery)
            elif (duplex := self._calls.get(event.stream)) is not None:
                duplex.notify()
                self._forget_over(duplex)
        self._wake_writer()

    def _charge(self) -> None:
        cost_s = self._multiplexer.cost_s
        self._memory.pace.spend(cost_s - self._charged_s, trio.current_time())
        self._charged_s = cost_s

    async def _write(self) -> None:
        while True:
            while not self._multiplexer.pending:
                await self._writer.park()
            buffers, drained = self._multiplexer.pull()
            try:
                if buffers:
                    self._writing_since = trio.current_time()
                    self._write_begun.ring()
                    await self._stream.send_all(b"".join(buffers))
                    self._writing_since = math.inf
                    self._multiplexer.written()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._finish(f"connection to {self} broke", closed_here=False)
                return
            for stream in drained:
                if (duplex := self._calls.get(stream)) is not None:
                    duplex.notify_sent()
                    self._forget_over(duplex)

    async def _stay_alive(self) -> None:
        while True:
            await trio.sleep(self._keep_alive.ping_s)
            silence = trio.current_time() - self._heard_at
            if silence > self._keep_alive.dead_after_s:
                self._finish(f"{self} was silent for {silence:.0f} s", closed_here=False)
                return
            self._ping()

    async def _probe(self) -> None:
        while True:
            await self._probes.wait()
            before = self._reads
            self._ping()
            await trio.sleep(self._keep_alive.probe_s)
            if self._reads == before:
                self._finish(f"{self} did not answer a probe", closed_here=False)
                return
            self._probes.clear()

    async def _watch_writes(self) -> None:
        while True:
            if math.isinf(self._writing_since):
                await self._write_begun.wait()
            self._write_begun.clear()
            await trio.sleep(self._keep_alive.stall_s)
            if trio.current_time() - self._writing_since > self._keep_alive.stall_s:
                self.doubted.notify()

    def _ping(self) -> None:
        self._multiplexer.ping()
        self._wake_writer()

    def _start(self, stream: Stream, nursery: trio.Nursery) -> None:
        """Begin to answer a call."""
        duplex = self._add(stream)
        if self._handling >= MAX_CALLS:
            duplex.fail(BusyError(f"{MAX_CALLS} calls are at work here"))
            duplex.abandon()  # the request may have arrived, and no handler will read it
            self._forget_over(duplex)
            return
        self._handling += 1
        nursery.start_soon(self._answer, duplex)

    async def _answer(self, duplex: Duplex) -> None:
        try:
            await self._service.serve(self.caller, duplex, self._events)
        finally:
            self._handling -= 1
            self._forget_over(duplex)

    def _add(self, stream: Stream) -> Duplex:
        duplex = Duplex(self._multiplexer, stream, self._wake_writer)
        self._calls[stream] = duplex
        return duplex

    def _forget_over(self, duplex: Duplex) -> None:
        """Stop notifying calls whose stream is over; their holders can still read the rest."""
        if duplex.over:
            self._calls.pop(duplex.stream, None)

    def _wake_writer(self) -> None:
        if self._multiplexer.pending:
            self._writer.unpark_all()

    def _finish(self, text: str, *, closed_here: bool) -> None:
        """End the connection: every call fails and the tasks end."""
        if self._end is not None:
            return
        self._end = (text, closed_here)
        if not closed_here:
            self.doubted.notify()
        self._multiplexer.break_all(text, closed_here=closed_here)
        for duplex in list(self._calls.values()):
            duplex.notify()
        self._calls.clear()
        self.closed.set()
        self._scope.cancel()


@asynccontextmanager
async def running(connection: Connection) -> AsyncIterator[None]:
    """Drive the connection within the block, and close it at its end.

    An error of the block is raised as itself, not in a group: `run` raises none of its own.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again, outside of the nursery
            failure = error
        finally:
            connection.close()
    if failure is not None:
        raise failure
