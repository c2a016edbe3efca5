"""Typed calls over a multiplexed stream: messages, the two ends of an open call, served methods.

A message on a stream is two lengths (u32 struct, u32 body, big-endian), the struct in MessagePack,
and the body unchanged. A call is one stream: the request, then the messages that the method
defines, until the side that answers finishes. An error ends the call with its code and text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct as Layout
from typing import Any, Final, TypeAlias, TypeVar, cast

import trio
from msgspec import Struct

from medusa.overlay.client_tokens import EVERY_SCOPE, OWNER, Scope, check_scope
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import (
    ClosedError,
    DecodeError,
    InternalError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.events import Events, Level
from medusa.overlay.log import Fields, bound
from medusa.overlay.multiplex import Multiplexer
from medusa.overlay.names import PeerId
from medusa.overlay.pace import DECODED_S, Pace
from medusa.overlay.send_queue import AHEAD_BYTES
from medusa.overlay.streams import Buffer, Stream

MAX_STRUCT_BYTES: Final = 2**20
"""Bytes of a message's struct, which is decoded at once into Python objects."""

REQUEST_BYTES: Final = 128 * 2**10
"""Bytes of a request with its body, unless its method allows more: 256 names of the longest kind.
It is decoded at once on the event loop, before its sender is authorised."""

MAX_BODY_BYTES: Final = 16 * 2**20
"""Bytes of a message's body: twice the largest batch of tuples or document."""

MAX_METHOD: Final = 128
"""Characters of a method's name, which is part of errors."""

MAX_TOLD: Final = 200
"""Characters of a client's call in its event: a line or two."""

CHANGES: Final = frozenset({Scope.DEFINE, Scope.OPERATE})
"""Scopes of calls that get an event: a person's actions, not the flow of data."""

_LENGTHS: Final = Layout("!II")

T = TypeVar("T", bound=Struct)


LONG_STRUCT: Final = 16 * 2**10
"""Bytes of a struct above which decoding takes most of the time of a message."""


class EndOfCall(trio.EndOfChannel):
    """The other side has finished: no message follows."""


def holder_with(token: str) -> str:
    """The holder that the clients with a token of that name are; no participant is called so."""
    return f"client token {token}"


@dataclass(frozen=True, slots=True)
class Caller:
    """The remote that makes a call.

    Attributes:
        peer_id: None for a client that holds a token of the participant.
        own: whether it belongs to this peer's participant.
        token, scopes: for a client, the name and the scopes of its token.
    """

    participant: str
    peer_id: PeerId | None
    own: bool = False
    token: str = OWNER
    scopes: frozenset[Scope] = EVERY_SCOPE

    @property
    def holder(self) -> str:
        """The holder whose share of this peer's memory, time and places the call takes: its
        participant, with all its peers, or its token, with all clients that show it."""
        return self.participant if self.peer_id is not None else holder_with(self.token)


async def keep(pace: Pace) -> None:
    """Wait while the participant has spent more than its share of the event loop's time."""
    while (pause_s := pace.pause_s(trio.current_time())) > 0:  # noqa: ASYNC110
        await trio.sleep(pause_s)  # other connections of the participant may spend more meanwhile


class Duplex:
    """One open call, either side. Different tasks may send and receive messages.

    Attributes:
        method: the called method.
        cause: the caller's id of the reason for the call.
        stream: its state in the multiplexer.
        scope: cancelled when the call ends early; the side that answers runs its handler in it.
    """

    def __init__(
        self, multiplexer: Multiplexer, stream: Stream, wake_writer: Callable[[], None]
    ) -> None:
        self.method = stream.method
        self.cause = stream.cause
        self.scope = trio.CancelScope()
        self._multiplexer = multiplexer
        self.stream = stream
        self._wake_writer = wake_writer
        self._receivers = trio.lowlevel.ParkingLot()
        self._senders = trio.lowlevel.ParkingLot()
        self._lengths: tuple[int, int] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more can be sent."""
        return self.stream.over

    async def send(self, message: Struct, body: Buffer = b"") -> None:
        """Send a message; see `send_raw`."""
        await self.send_raw(encode(message), body)

    async def wait_writable(self) -> None:
        """Wait until a sent message would begin to leave at once. A sender that makes its messages
        only then holds none while it waits.

        Raises: as `send_raw`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.stream.over and not self._multiplexer.may_send(self.stream):
            await self._senders.park()
        self._check_open()

    async def send_raw(self, message: Buffer, body: Buffer = b"") -> None:
        """Send an encoded message, once earlier ones have left for the wire (as credit allows).

        The bytes are not copied: they must not change afterwards. If cancelled, it has either sent
        nothing or queued the whole message.

        Raises:
            InvalidInputError: it is over a limit; nothing was sent.
            EndOfCall: the side that answers has finished, so nobody reads the message.
            MedusaError: the failure of the call; BrokenError when the connection broke.
        """
        size, body_size = memoryview(message).nbytes, memoryview(body).nbytes
        if size > MAX_STRUCT_BYTES or body_size > MAX_BODY_BYTES:
            raise InvalidInputError(_too_long(self.method, size, body_size))
        await self._send(_LENGTHS.pack(size, body_size), message, body)

    async def relay(self, source: Duplex) -> None:
        """Send all that another call still receives, to its end, then finish.

        The bytes go on as they come, parts of messages too: they are neither decoded nor put
        together nor copied, and a message's length is checked where it ends.

        Raises:
            MedusaError: the failure of either call.
        """
        with suppress(EndOfCall):
            while True:
                await self._send(*await source.receive_parts())
        await self.finish()

    async def _send(self, *buffers: Buffer) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while self.stream.queued > AHEAD_BYTES and not self.stream.over:
            await self._senders.park()
        self._check_open()
        self._multiplexer.send(self.stream, *buffers)
        self._wake_writer()

    async def receive(self, kind: type[T], limit: int | None = None) -> tuple[T, bytes]:
        """The next message; see `receive_raw`. A message of another type raises DecodeError as
        well."""
        message, body = await self.receive_raw(limit)
        what = f"{self.method}: {kind.__name__}"
        return decode(message, kind, limit=MAX_STRUCT_BYTES, what=what), body

    async def receive_raw(self, limit: int | None = None) -> tuple[bytes, bytes]:
        """The next message, not decoded. If cancelled, it has taken nothing.

        Args:
            limit: most bytes of struct and body together; None: the limits of any message.

        Raises:
            EndOfCall: the other side has finished.
            DecodeError: the message is over a limit, or cut short; the call is reset.
            MedusaError: the failure of the call; BrokenError when the connection broke.
        """
        if self._lengths is None:
            await self._available(_LENGTHS.size)
            head = self._multiplexer.inbox.take(self.stream, _LENGTHS.size)
            self._lengths = _LENGTHS.unpack(head)
        size, body_size = self._lengths
        if size > MAX_STRUCT_BYTES or body_size > MAX_BODY_BYTES:
            raise self._refuse(_too_long(self.method, size, body_size))
        if limit is not None and size + body_size > limit:
            raise self._refuse(
                f"{self.method}: a request of {size + body_size} bytes; at most {limit} are allowed"
            )
        await self._available(size + body_size)
        if size > LONG_STRUCT:
            await self._keep_pace(size)
        self._lengths = None
        message = self._multiplexer.inbox.take(self.stream, size)
        body = self._multiplexer.inbox.take(self.stream, body_size)
        self._multiplexer.inbox.hand_over(self.stream, size + body_size)
        self._wake_writer()
        return message, body

    async def receive_parts(self) -> list[Buffer]:
        """The bytes that have arrived, at least one, whatever messages they are of.

        Raises: as `receive_raw`.
        """
        assert self._lengths is None, "a message is received"
        await self._available(1)
        size = self.stream.unread
        parts = self._multiplexer.inbox.take_parts(self.stream, size)
        self._multiplexer.inbox.hand_over(self.stream, size)
        self._wake_writer()
        return parts

    async def _keep_pace(self, size: int) -> None:
        """Wait for the participant's turn to decode a long message. All its connections may have
        one ready at the same time: they are decoded one after the other, within its share of
        time."""
        pace = self._multiplexer.pace
        await keep(pace)
        pace.spend(size * DECODED_S, trio.current_time())

    async def finish(self) -> None:
        """Send no more. On the side that answers this ends the call in both directions."""
        await trio.lowlevel.checkpoint()
        self.finish_now()

    def finish_now(self) -> None:
        """`finish`, without a checkpoint."""
        self._multiplexer.finish(self.stream)
        self._wake_writer()

    def fail(self, error: MedusaError) -> None:
        """End the call with an error, which the other side raises."""
        self._multiplexer.reset(self.stream, error.code, str(error))
        self._wake_writer()
        self.notify()

    def close(self) -> None:
        """Leave the call, and notify the other side, unless the call is over."""
        self.fail(ClosedError(f"{self.method}: the other side left the call"))
        self._multiplexer.inbox.discard(self.stream)

    def abandon(self) -> None:
        """Read no more after the handler's end, while its sent bytes are still under way."""
        self._multiplexer.inbox.discard(self.stream)

    def notify(self) -> None:
        """The stream changed: wake all waiting tasks."""
        self._receivers.unpark_all()
        if self.stream.over or self.stream.lacks_credit:
            self._senders.unpark_all()
        if self.stream.failure is not None:
            self.scope.cancel()

    def notify_sent(self) -> None:
        """The queued bytes are written, or few are left."""
        self._senders.unpark_all()

    async def _available(self, size: int) -> None:
        """Wait until that many bytes have arrived."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._multiplexer.inbox.want(self.stream, size):
            if self.stream.ended:
                self._check_failure()
                if self.stream.unread or self._lengths is not None:
                    raise self._refuse(f"{self.method}: the call ended inside a message")
                raise EndOfCall(f"{self.method}: the other side has finished")
            # reading may have made room for more credit, which the writer announces
            self._wake_writer()
            await self._receivers.park()

    def _refuse(self, text: str) -> DecodeError:
        error = DecodeError(text)
        self.fail(error)
        self._multiplexer.inbox.discard(self.stream)
        return error

    def _check_open(self) -> None:
        self._check_failure()
        if self.stream.over:
            raise EndOfCall(f"{self.method}: the other side has finished")

    def _check_failure(self) -> None:
        failure = self.stream.failure
        if failure is not None:
            raise MedusaError.from_wire(failure.code, failure.message)


Reply: TypeAlias = Struct | tuple[Struct, Buffer]
UnaryHandler: TypeAlias = Callable[[Caller, T, bytes], Awaitable[Reply]]
StreamingHandler: TypeAlias = Callable[[Caller, T, Duplex], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Method:
    """A method that a peer serves: its messages, its permitted callers, and the limit of its
    request.

    Attributes:
        handler: the function that a package registered; a unary handler's return type is the
            answer's.
        answer: serves one call.
        clients, peers, own, limit, often_refused: see `Service.unary`.
        takes, sends: the messages of a streaming call, from the caller after the request, and from
            the answering peer.
    """

    request_type: type[Struct]
    handler: Callable[..., Any]
    answer: Callable[[Caller, Any, bytes, Duplex], Awaitable[None]]
    clients: bool
    peers: bool
    own: bool
    limit: int
    often_refused: bool = False
    takes: tuple[type[Struct], ...] = ()
    sends: tuple[type[Struct], ...] = ()


class Service:
    """The methods that a peer serves. All packages register theirs before the peer answers.

    Args:
        scopes: by method: the scopes of which a client's token must have one; a method that is
            missing here needs all scopes.
    """

    def __init__(self, scopes: Mapping[str, frozenset[Scope]] | None = None) -> None:
        self._methods: dict[str, Method] = {}
        self._scopes = scopes or {}

    @property
    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return self._methods

    def unary(
        self,
        method: str,
        request_type: type[T],
        handler: UnaryHandler[T],
        *,
        clients: bool = False,
        peers: bool = True,
        own: bool = False,
        limit: int = REQUEST_BYTES,
        often_refused: bool = False,
    ) -> None:
        """Answer `method` with the return value of `handler(caller, request, body)`.

        Args:
            clients, peers: whether clients, and peers, may call it. own: of peers, only those of
                this peer's participant may. A caller that may not is refused before its request is
                received.
            limit: most bytes of a request and its body.
            often_refused: an honest caller finds out its rights only by calling: a refusal is a
                line of the log, and no event.
        """

        async def answer(caller: Caller, request: T, body: bytes, duplex: Duplex) -> None:
            reply = await handler(caller, request, body)
            message, reply_body = reply if isinstance(reply, tuple) else (reply, b"")
            await duplex.send(message, reply_body)

        self._add(
            method,
            Method(request_type, handler, answer, clients, peers, own, limit, often_refused),
        )

    def streaming(
        self,
        method: str,
        request_type: type[T],
        handler: StreamingHandler[T],
        *,
        clients: bool = False,
        peers: bool = True,
        own: bool = False,
        limit: int = REQUEST_BYTES,
        takes: tuple[type[Struct], ...] = (),
        sends: tuple[type[Struct], ...] = (),
    ) -> None:
        """Answer `method` by `handler(caller, request, duplex)`, whose return finishes the call.
        Other arguments as of `unary`; `takes` and `sends` as of `Method`, for `make protocol`.

        The handler is cancelled when the caller leaves or the connection breaks. It may raise
        EndOfCall: the caller has finished and so has the handler.
        """

        async def answer(caller: Caller, request: T, body: bytes, duplex: Duplex) -> None:
            await handler(caller, request, duplex)

        self._add(
            method,
            Method(
                request_type,
                handler,
                answer,
                clients,
                peers,
                own,
                limit,
                takes=takes,
                sends=sends,
            ),
        )

    def _add(self, name: str, method: Method) -> None:
        assert name not in self._methods, f"{name} is served already"
        assert len(name) <= MAX_METHOD
        self._methods[name] = method

    async def serve(self, caller: Caller, duplex: Duplex, events: Events) -> None:
        """Answer one call to its end. No exception of a handler leaves its call."""
        cause = duplex.cause or events.new_cause()
        with bound(cause=cause, method=duplex.method[:MAX_METHOD]):
            try:
                with duplex.scope:
                    await self._dispatch(caller, duplex, events)
                duplex.finish_now()
            except EndOfCall:
                duplex.finish_now()
            except Exception as error:  # noqa: BLE001 - a boundary: only the caller's call ends
                method = self._methods.get(duplex.method)
                level: Level = "debug" if method and method.often_refused else "warning"
                told = _error_for(caller, duplex.method[:MAX_METHOD], error, events, refusal=level)
                duplex.fail(told)
            duplex.abandon()

    async def _dispatch(self, caller: Caller, duplex: Duplex, events: Events) -> None:
        method = self._methods.get(duplex.method)
        if method is None:
            raise NotFoundError(f"no method {duplex.method[:MAX_METHOD]!r} is served here")
        if not (method.clients if caller.peer_id is None else method.peers):
            kind = "clients" if caller.peer_id is None else "peers"
            raise NotAuthorisedError(f"{duplex.method} is not for {kind}")
        if method.own and not caller.own:
            raise NotAuthorisedError(
                f"{duplex.method} is for this peer's own participant, not for {caller.participant}"
            )
        if caller.peer_id is None:
            enough = self._scopes.get(duplex.method)
            check_scope(duplex.method, enough, caller.token, caller.scopes)
        try:
            request, body = await duplex.receive(method.request_type, method.limit)
        except EndOfCall:
            raise DecodeError(f"{duplex.method}: the call has no request") from None
        if caller.peer_id is None and self._scopes.get(duplex.method, EVERY_SCOPE) <= CHANGES:
            about = " ".join(map(str, _named(request).values()))
            what = f"{duplex.method} {about}"[:MAX_TOLD].rstrip()
            events.note("info", f"got {what} from client {caller.token}")
        with bound(**_named(request)):
            await method.answer(caller, request, body, duplex)


def _named(request: Struct) -> Fields:
    """The log fields for the object that a request names."""
    told = {name: getattr(request, name, None) for name in ("stream", "query", "task")}
    return cast("Fields", {name: value for name, value in told.items() if isinstance(value, str)})


def _too_long(method: str, size: int, body_size: int) -> str:
    return (
        f"{method}: a message of {size} + {body_size} bytes;"
        f" at most {MAX_STRUCT_BYTES} + {MAX_BODY_BYTES} are allowed"
    )


def _error_for(
    caller: Caller, method: str, error: Exception, events: Events, *, refusal: Level
) -> MedusaError:
    """The error that the caller gets for an exception of a handler: the first error of a group;
    for a bug, the id under which the log has the rest. refusal: the level of the event for a
    refusal."""
    leaves = _leaves(error)
    first = leaves[0]
    if not all(isinstance(leaf, MedusaError) for leaf in leaves):
        why = events.why(events.fault(f"failed at {method}", error))
        return InternalError(f"{method} failed inside the peer; {why}")
    assert isinstance(first, MedusaError)
    who = caller.participant if caller.peer_id is not None else f"client {caller.token}"
    if isinstance(first, InternalError) and not first.remote:
        why = events.why(events.fault(f"failed at {method}", error))
        return MedusaError.from_wire(first.code, f"{first}; {why}")
    if isinstance(first, NotAuthorisedError) and not first.remote:
        events.note(refusal, f"refused {who}: {method}: {first}")
    else:
        events.note("debug", f"ended {method} of {who}: {first.code}: {first}")
    return first


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
