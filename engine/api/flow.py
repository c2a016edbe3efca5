"""Calls that carry tuples: post_event and subscribe, served here or relayed to the stream's peer.

A relay passes bytes on as they come and keeps nothing: credit on both of its calls makes the slow
end slow the fast one. When the far call breaks, the client's call breaks. The client then
continues: it repeats the post (same sequence), or subscribes again (last boundary).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec
import trio

from medusa.engine.objects.definitions import StreamEntry, may_write
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.finding import Copies
from medusa.engine.replication.following.origin import SUBSCRIBE
from medusa.engine.replication.leaders import changing
from medusa.engine.replication.leaders.changing import take_posts
from medusa.engine.replication.leaders.leaders import Leaders
from medusa.engine.replication.records.term import Term
from medusa.engine.streams.log.retention import too_old
from medusa.engine.streams.messages import (
    Acknowledge,
    Post,
    Posted,
    PostEvent,
    ReceiveEvents,
    Subscribe,
    Tuples,
)
from medusa.engine.streams.reading.delivery import Delivery
from medusa.engine.streams.reading.feed import Feed, cursor_for, message_of
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.store.store import REPLICATED, StreamStore
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.engine.streams.store.subscriptions import Subscriptions, reader_in_words
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.connection import Connection
from medusa.overlay.errors import (
    BrokenError,
    ClosedError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    NotRetainedError,
    StoppedError,
    UnavailableError,
)
from medusa.overlay.names import ObjectName
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller, Duplex, EndOfCall
from medusa.overlay.streams import Buffer

MAX_PULL_S: Final = 30.0
"""The longest that a pull waits for tuples, seconds: an abandoned call ends."""

MAX_LABEL: Final = 128
"""Characters of a producer's or subscriber's own name, which the peer keeps for each."""


COMPUTED_BESIDE: Final = frozenset({Role.ASSIGNED, Role.STANDBY})
"""Roles of a stream that this peer computes for, or beside, its producer; the producer may have
more of the stream."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowCalls:
    """The handlers, over the parts through which tuples flow; `register` puts them on the peer's
    service."""

    overlay: Overlay
    store: StreamStore
    subscriptions: Subscriptions
    delivery: Delivery
    readers: Readers
    directory: Directory
    copies: Copies
    leaders: Leaders

    def register(self) -> None:
        service = self.overlay.service
        service.streaming(
            "post_event", PostEvent, self.post_event, clients=True, takes=(Post,), sends=(Posted,)
        )
        service.streaming(
            SUBSCRIBE,
            Subscribe,
            self.subscribe,
            clients=True,
            takes=(Acknowledge,),
            sends=(Tuples,),
        )
        service.unary("receive_events", ReceiveEvents, self.receive_events, clients=True)

    async def post_event(self, caller: Caller, request: PostEvent, duplex: Duplex) -> None:
        _check_label("producer", request.producer)
        entry = await self._entry(caller, request.stream)
        self._check_writer(caller, entry)
        store = self.store
        if entry.stream.k_safety:
            await self._post_replicated(caller, request, duplex)
            return
        state = store.serving(request.stream)
        if state is None:
            leader = await self._producer(caller, request.stream)
            await _pass_on(duplex, leader, "post_event", request)
            return
        if state.role is not Role.SOURCE:
            raise InvalidInputError(f"{state.name} takes no posts: it is a {state.role} stream")
        writer = _writer(caller, request)
        while True:
            try:
                post, body = await duplex.receive(Post)
            except EndOfCall:
                return
            await duplex.send(await store.intake.post(state, PostRequest(writer, post, body)))

    async def _post_replicated(self, caller: Caller, request: PostEvent, duplex: Duplex) -> None:
        leaders = self.leaders
        voter = leaders.get(request.stream)
        if voter is not None and voter.is_leader:
            await take_posts(voter, self.store, _writer(caller, request), duplex)
        elif caller.peer_id is not None:
            raise UnavailableError(f"{request.stream}: this peer is not its leader now; ask again")
        else:
            connection = await leaders.connect(request.stream)
            await _pass_on(duplex, connection, "post_event", request)

    async def subscribe(self, caller: Caller, request: Subscribe, duplex: Duplex) -> None:
        if request.subscriber:
            _check_label("subscriber", request.subscriber)
        await self._check_reader(caller, request.stream)
        with self.delivery.subscription(caller):
            await self._subscribe(caller, request, duplex)

    async def _subscribe(self, caller: Caller, request: Subscribe, duplex: Duplex) -> None:
        state = self.store.serving(request.stream)
        if state is None and caller.peer_id is not None:
            state = self.copies.rendition(request.stream)
        if state is None or (caller.peer_id is None and _begins_later(state, request.after)):
            await self._relay(caller, request, duplex)
            return
        if _begins_later(state, request.after):  # this may change: the owner may be away
            raise NotFoundError(
                f"{state.name}: this peer produces it from {state.log.start} on; its owner has more"
            )
        if request.after == BEGINNING:
            await state.log.damage.fetch_all()
        # the end may come while a lease is written to disk
        ends = self._interruptions(state, caller)
        self._check_current(caller, state, request)
        after = _literal(state, request.after, caller)
        if after < state.log.start:
            why = self.subscriptions.why(state.name, request.subscriber, caller.participant)
            raise too_old(state.name, state.log.start, after, why)
        if request.subscriber and after == END:
            self.subscriptions.check_known(state.name, request.subscriber, caller.participant)
        keep = after if request.keep is None else min(after, request.keep)
        keep = max(keep, state.log.start)  # a hold on dropped tuples would keep all later ones
        holding = self.subscriptions.hold(state, request.subscriber, caller.participant, keep)

        async def released(_: int, upto: int) -> None:
            await state.released(upto)
            await self._note_end(caller, state, upto, request.subscriber)

        async def until_released() -> None:
            await reader.released.wait()
            raise NotRetainedError(f"{state.name}: you are waited for no longer: {reader.why}")

        cursor = cursor_for(state, after, request.tentative, whole=caller.peer_id is not None)
        shares = self.delivery.shares(caller)
        async with holding as reader:
            feed = Feed(cursor, END, released, reader.acknowledge, reader.boundary, shares)
            with _over_for_now(state.name):
                await feed.serve(duplex, until_released, *ends)

    async def receive_events(
        self, caller: Caller, request: ReceiveEvents, _: bytes
    ) -> tuple[Tuples, Buffer]:
        """Answer one pull: tuples after the caller's boundary, as far as one message holds them."""
        await self._check_reader(caller, request.stream)
        with self.delivery.subscription(caller):
            return await self._pull(caller, request)

    async def _pull(self, caller: Caller, request: ReceiveEvents) -> tuple[Tuples, Buffer]:
        timeout_s = min(max(0.0, request.timeout_s), MAX_PULL_S)
        state = self.store.serving(request.stream)
        if state is None or (caller.peer_id is None and _begins_later(state, request.after)):
            producer = await self._producer(caller, request.stream, oldest=True)
            with _over_for_now(request.stream):
                return await producer.call_with_body(
                    "receive_events", request, Tuples, timeout_s=timeout_s + MAX_PULL_S
                )
        if _begins_later(state, request.after):
            raise UnavailableError(f"{state.name}: who has its past cannot be reached now")
        if request.after == BEGINNING:
            await state.log.damage.fetch_all()
        after = _literal(state, request.after, caller)
        if after < state.log.start:
            raise too_old(state.name, state.log.start, after)
        with _over_for_now(request.stream):
            with trio.move_on_after(timeout_s):
                while state.log.boundary <= after < END:
                    await state.log.wait_beyond(after)
                    after = _literal(state, after, caller)
            self.readers.check(state.entry.stream, caller.participant)
            if state.log.boundary > after:
                part = await state.log.reader.part(after)
                if part.upto is None:
                    raise InvalidInputError(
                        "more tuples of one stime than one answer holds: subscribe instead"
                    )
                with trio.move_on_after(timeout_s) as releasing:
                    await state.released(part.upto)
                if not releasing.cancelled_caught:
                    # beyond the caller's time: a caller that does not wait gets the end, too
                    await self._note_end(caller, state, part.upto)
                    return message_of(part), part.body()
        return Tuples(after, None, 0), b""

    async def _note_end(
        self, caller: Caller, state: StreamState, boundary: int, subscriber: str = ""
    ) -> None:
        if boundary == END:
            who = reader_in_words(subscriber, caller.participant)
            voter = self.leaders.get(state.name) if state.variant == REPLICATED else None
            if voter is not None:
                await changing.note_end_reader(voter, who)
            else:
                await self.store.ends_read.note(state, who)

    async def _relay(self, caller: Caller, request: Subscribe, near: Duplex) -> None:
        """Relay from the present producer; older tuples, from the one with most history."""
        number = self.directory.number(request.stream)
        request = msgspec.structs.replace(request, term_number=max(number, request.term_number))
        if request.after > BEGINNING:
            with suppress(NotRetainedError, NotFoundError):
                connection = await self._producer(caller, request.stream)
                await _pass_on(near, connection, SUBSCRIBE, request)
                return
        connection = await self._producer(caller, request.stream, oldest=True)
        try:
            await _pass_on(near, connection, SUBSCRIBE, request)
        # the stream is changing producers: the catalog soon knows the new one
        except NotFoundError as error:
            raise BrokenError(str(error)) from None

    async def _producer(self, caller: Caller, stream: str, *, oldest: bool = False) -> Connection:
        self._check_relays(caller, stream)
        return await self.directory.connect(stream, oldest=oldest)

    def _check_relays(self, caller: Caller, stream: str) -> None:
        """Check that the caller is one of this peer's own clients: it relays for no others. If it
        relayed calls of peers, two peers with outdated records would pass a call to each other in a
        circle.

        Raises:
            UnavailableError, NotFoundError: the peer must ask the producer itself.
        """
        if caller.peer_id is None:
            return
        if self.copies.may_come_to_produce(stream):
            raise UnavailableError(f"{stream} is not produced by this peer yet")
        raise NotFoundError(f"{stream} is not produced by this peer any more")

    async def _entry(self, caller: Caller, stream: str) -> StreamEntry:
        state = self.copies.rendition(stream) or self.store.get(stream)
        if state is not None:
            return state.entry
        voter = self.leaders.get(stream)
        if voter is not None:
            return voter.entries[stream]
        self._check_relays(caller, stream)
        return await self.directory.entry(stream)

    def _check_current(self, caller: Caller, state: StreamState, request: Subscribe) -> None:
        """Refuse a reader that knows a later term of the stream. Raises: NotFoundError."""
        directory = self.directory
        if request.term_number <= directory.number(request.stream) or caller.peer_id is None:
            return
        if caller.participant == ObjectName.parse(request.stream).participant:
            directory.believe(
                Term(request.stream, request.term_number)
            )  # a primary with an older term steps down when it learns this
        # the owner or primary of the query vouches for the copy, without a term
        if state.role in COMPUTED_BESIDE:
            return
        raise NotFoundError(f"{request.stream} is not produced by this peer any more")

    def _interruptions(
        self, state: StreamState, caller: Caller
    ) -> list[Callable[[], Awaitable[None]]]:
        """Functions that wait until a subscription that begins now must end, and then raise the
        reason: another peer computes the stream, or the caller may not read it any more."""
        moved_away, altered = state.moved_away.value, state.altered.value
        readers = self.readers

        async def until_moved() -> None:
            await state.moved_away.changed_from(moved_away)
            raise BrokenError(f"{state.name} is computed by another peer from now on: ask again")

        async def until_altered() -> None:
            await state.altered.changed_from(altered)
            while caller.peer_id is None:
                readers.check(state.entry.stream, caller.participant)
                await state.altered.changed()
            readers.check(state.entry.stream, caller.participant)
            # a peer looks up the new definition: its readers may read the streams made of it
            raise BrokenError(f"{state.name} is defined otherwise from now on: ask again")

        # our own clients read on here, whichever peer computes it; but a source's log stands still
        leaves = caller.peer_id is not None or state.variant == REPLICATED
        return [until_altered, *([until_moved] if leaves else [])]

    async def _check_reader(self, caller: Caller, stream: str) -> None:
        entry = await self._entry(caller, stream)
        self.readers.check(entry.stream, caller.participant)

    def _check_writer(self, caller: Caller, entry: StreamEntry) -> None:
        stream, may_post = entry.stream, may_write(entry.stream, caller.participant)
        refusal = NotAuthorisedError(
            f"{caller.participant} may not post to {stream.name}; {stream.owner} names its writers"
        )
        if not may_post and not self.readers.may_read(stream, caller.participant):
            raise refusal  # a caller that may not read it does not learn its kind either
        if stream.view is not None:
            raise InvalidInputError(f"{stream.name} is a view: post to {stream.view.stream}")
        if stream.query:
            raise StoppedError(
                f"{stream.name} is produced by {stream.query}: post to the streams that it reads"
            )
        if not may_post:
            raise refusal


def _writer(caller: Caller, request: PostEvent) -> Writer:
    """The producer of a call, with its participant: each participant numbers its own posts."""
    owner = ObjectName.parse(request.stream).participant
    return Writer(request.producer, "" if caller.participant == owner else caller.participant)


def _begins_later(state: StreamState, after: int) -> bool:
    """Whether only the owner, or primary, has the tuples from there on: we compute later ones."""
    return state.role in COMPUTED_BESIDE and after < state.log.start


def _literal(state: StreamState, after: int, caller: Caller) -> int:
    """The boundary that a caller means by `after`. BEGINNING means the oldest that is kept, if this
    is the stream's own log; while that log is empty the oldest is not known.

    A client gets all undamaged tuples, and the answer says where some are lost. A peer copies the
    stream and computes from it: it begins behind the last lost interval.
    """
    if after != BEGINNING or state.role in COMPUTED_BESIDE:
        return after
    return state.log.oldest_kept if caller.peer_id is None else state.log.oldest


async def _pass_on(
    near: Duplex, connection: Connection, method: str, request: PostEvent | Subscribe
) -> None:
    with _over_for_now(request.stream):
        async with connection.open(method, request) as far:

            async def requests() -> None:
                await far.relay(near)
                await trio.sleep_forever()  # answers to the subscriber still arrive

            async def answers() -> None:
                await near.relay(far)

            await until_one_ends(requests, answers)


@contextmanager
def _over_for_now(stream: str) -> Iterator[None]:
    """Turn errors of a log into errors for the caller.

    This peer closed the log or its connection, the caller did not: a `ClosedError` becomes a
    `BrokenError`, after which the caller tries again. A `NotRetainedError` names the stream.
    """
    try:
        yield
    except ClosedError as error:
        raise BrokenError(f"{stream}: {error}") from None
    except NotRetainedError as error:
        text = str(error)
        raise NotRetainedError(text if text.startswith(stream) else f"{stream}: {text}") from None


def _check_label(what: str, label: str) -> None:
    if not 0 < len(label) <= MAX_LABEL or not label.isprintable():
        raise InvalidInputError(f"a {what}'s name has 1 to {MAX_LABEL} printable characters")
