"""The messages that one member sends at once do not delay the others: the tests count turns of the
event loop, not time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.lowlevel
import trio.testing
from deadline import DEADLINE_S
from msgspec import Struct

from medusa.overlay.connection import FRAMES_AT_ONCE, Connection
from medusa.overlay.encoding import encode
from medusa.overlay.errors import DecodeError, NotFoundError
from medusa.overlay.events import Events
from medusa.overlay.exchange import TAKEN_AT_ONCE, Exchange, Exchanger, Push
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.memory import Memory
from medusa.overlay.multiplex import Multiplexer
from medusa.overlay.pace import BURST_S, DECODED_S, SHARE
from medusa.overlay.peers import PeerTable
from medusa.overlay.rpc import REQUEST_BYTES, Caller, Duplex, Service

NOW = 1_700_000_000.0
CALLS = 400


class Number(Struct):
    n: int


class Turns:
    """Counts the turns of the event loop while it runs."""

    def __init__(self) -> None:
        self.now = 0

    async def run(self) -> None:
        while True:
            self.now += 1
            await trio.lowlevel.checkpoint()


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        yield turns
        nursery.cancel_scope.cancel()


class Served:
    """A service that notes in which turn it answered each call."""

    def __init__(self, turns: Turns) -> None:
        self.service = Service()
        self.service.unary("note", Number, self.note)
        self.service.unary("long", Number, self.note, limit=2 * REQUEST_BYTES)
        self.answered: Counter[int] = Counter()
        self._turns = turns

    async def note(self, _caller: Caller, request: Number, _body: bytes) -> Number:
        self.answered[self._turns.now] += 1
        return request


@asynccontextmanager
async def listening(
    served: Served,
) -> AsyncIterator[tuple[trio.testing.MemorySendStream, Connection]]:
    """Give a stream whose sent bytes are one read of the connection."""
    near, far = trio.testing.memory_stream_pair()
    connection = Connection(
        far, Caller("evil.edu", b"e" * 20), dialled=False, service=served.service, events=Events()
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield near.send_stream, connection
        nursery.cancel_scope.cancel()


def calls(method: str, count: int) -> bytes:
    """Return whole calls of that method, as the wire carries them."""
    sender, sent = Multiplexer(dialled=True), b""
    for number in range(count):
        stream = sender.open(method, 1)
        message = encode(Number(number))
        sender.send(stream, len(message).to_bytes(4, "big") + bytes(4), message)
        sender.finish(stream)
        buffers, _ = sender.pull(2**20)
        sent += b"".join(buffers)
    return sent


async def test_a_read_full_of_calls_is_worked_on_in_many_turns(turns: Turns) -> None:
    served = Served(turns)
    async with listening(served) as (wire, _):
        await wire.send_all(calls("note", CALLS))
        with trio.fail_after(DEADLINE_S):
            while served.answered.total() < CALLS:
                await trio.lowlevel.checkpoint()
        assert max(served.answered.values()) <= FRAMES_AT_ONCE


async def test_a_read_full_of_refusals_as_well(turns: Turns) -> None:
    """Refusals cost as much as calls, and no handler runs that could wait."""
    async with listening(Served(turns)) as (wire, connection):
        handled = Counter[int]()
        start = connection._start

        def note(stream: object, nursery: object) -> None:
            handled[turns.now] += 1
            start(stream, nursery)  # type: ignore[arg-type]

        connection._start = note  # type: ignore[assignment, method-assign]
        await wire.send_all(calls("nothing", CALLS))
        with trio.fail_after(DEADLINE_S):
            while handled.total() < CALLS:
                await trio.lowlevel.checkpoint()
        assert max(handled.values()) <= FRAMES_AT_ONCE


async def test_a_request_beyond_what_its_method_takes_is_refused_before_it_is_there(
    turns: Turns,
) -> None:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        ends = [
            Connection(
                stream,
                Caller("mit.edu", b"m" * 20),
                dialled=stream is near,
                service=Served(turns).service,
                events=Events(),
            )
            for stream in (near, far)
        ]
        for end in ends:
            nursery.start_soon(end.run)
        body = bytes(REQUEST_BYTES)
        with pytest.raises(DecodeError, match=r"note: a request of 131076 bytes; at most 131072"):
            await ends[0].call("note", Number(1), Number, body=body)
        assert (await ends[0].call("long", Number(1), Number, body=body)).n == 1
        with pytest.raises(NotFoundError):
            await ends[0].call("nothing", Number(1), Number, body=bytes(2**20))
        # only the lengths are sent: the peer refuses the call by the lengths
        async with _opened(ends[0], "note") as duplex:
            head = (2**19).to_bytes(4, "big") + bytes(4)
            duplex._multiplexer.send(duplex.stream, head)
            duplex._wake_writer()
            with (
                trio.fail_after(DEADLINE_S),
                pytest.raises(DecodeError, match="a request of 524288 bytes"),
            ):
                await duplex.receive(Number)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _opened(connection: Connection, method: str) -> AsyncIterator[Duplex]:
    duplex = connection._add(connection._multiplexer.open(method, 1))
    try:
        yield duplex
    finally:
        duplex.close()


async def test_signatures_are_checked_a_few_a_turn_and_each_participant_waits_for_itself(
    turns: Turns,
) -> None:
    root = Root.create("mit.edu", NOW)
    membership = Membership.found(root, NOW)
    peers = PeerTable(Identity.issue(root, NOW), membership)
    exchanger = Exchanger(Exchange(membership, peers), peers, events=Events(), learned=lambda: None)
    admission = membership.admit(root, Root.create("new.edu", NOW).certificate, NOW)
    numbers = itertools.count()

    def forged(count: int) -> Push:
        """Return different statements that nobody has signed."""
        made = [admission[:-4] + next(numbers).to_bytes(4, "big") for _ in range(count)]
        return Push(tuple(made), ())

    done: list[tuple[str, int]] = []
    async with trio.open_nursery() as nursery:

        async def push(participant: str, said: Push) -> None:
            assert (await exchanger._on_push(Caller(participant, b"p" * 20), said, b"")).new == 0
            done.append((participant, turns.now))

        for _ in range(4):
            nursery.start_soon(push, "evil.edu", forged(16 * TAKEN_AT_ONCE))
        await trio.lowlevel.checkpoint()
        nursery.start_soon(push, "utah.edu", forged(TAKEN_AT_ONCE))
    assert done[0][0] == "utah.edu"
    ends = [turn for participant, turn in done if participant == "evil.edu"]
    assert all(after - before >= 16 for before, after in itertools.pairwise(ends))


class Text(Struct):
    text: str


async def test_long_messages_that_are_all_here_are_decoded_at_a_pace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A participant fills its connections with such messages, and sends the last byte of each at
    once."""
    service, decoded, size, count = Service(), list[float](), 100_000, 500

    async def note(_caller: Caller, _request: Text, _body: bytes) -> Number:
        decoded.append(trio.current_time())
        return Number(1)

    service.unary("note", Text, note)
    share = Memory(2**30).share("evil.edu")
    async with trio.open_nursery() as nursery:
        for _ in range(count // 50):
            near, far = trio.testing.memory_stream_pair()
            connections = [
                Connection(
                    stream,
                    Caller(name, b"p" * 20),
                    dialled=stream is near,
                    service=service,
                    events=Events(),
                    memory=held,
                )
                for stream, name, held in ((near, "mit.edu", None), (far, "evil.edu", share))
            ]
            for connection in connections:
                nursery.start_soon(connection.run)
            for _ in range(50):
                text = Text("x" * size)
                nursery.start_soon(connections[0].call, "note", text, Number)
        with trio.fail_after(60):
            while len(decoded) < count:  # noqa: ASYNC110
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    spent_s = size * count * DECODED_S
    assert decoded[-1] - decoded[0] > spent_s / SHARE - BURST_S
    # moments of the virtual clock: work without a pause takes none of its time
    moments = Counter(decoded)
    assert max(moments.values()) * size * DECODED_S < 2 * BURST_S * SHARE
