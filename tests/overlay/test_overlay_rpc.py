"""Calls over a connection: types, errors, limits, deadlines, cancellation, back-pressure."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from struct import pack

import msgspec
import pytest
import trio
import trio.testing
from deadline import DEADLINE_S
from msgspec import Struct
from trio.testing import wait_all_tasks_blocked

from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.connection import Connection, KeepAlive
from medusa.overlay.errors import (
    BrokenError,
    ClosedError,
    ConflictError,
    DeadlineError,
    DecodeError,
    InternalError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.events import Events
from medusa.overlay.frames import HEADER, Kind
from medusa.overlay.log import bound, checked_cause
from medusa.overlay.rpc import MAX_BODY_BYTES, MAX_STRUCT_BYTES, Caller, Duplex, EndOfCall, Service
from medusa.overlay.streams import WINDOW_BYTES


class Number(Struct):
    n: int


class Word(Struct):
    text: str


PEER = Caller("utah.edu", b"u" * 20)


class Served:
    """A service with one method of each behaviour; it records its calls."""

    def __init__(self) -> None:
        self.service = Service()
        self.events = Events()
        self.cancelled = trio.Event()
        self.started = trio.Event()
        self.sent = 0
        self.service.unary("double", Number, self.double, clients=True, limit=MAX_BODY_BYTES)
        self.service.unary("ours", Number, self.double, own=True)
        self.service.unary("typed", Number, self.typed)
        self.service.unary("untyped", Number, self.untyped)
        self.service.unary("group", Number, self.group)
        self.service.unary("long", Number, self.long)
        self.service.streaming("count", Number, self.count)
        self.service.streaming("echo", Number, self.echo)
        self.service.streaming("flood", Number, self.flood)
        self.service.streaming("early", Number, self.early)

    async def double(self, caller: Caller, request: Number, body: bytes) -> tuple[Number, bytes]:
        return Number(2 * request.n), body * 2

    async def typed(self, caller: Caller, request: Number, body: bytes) -> Number:
        raise ConflictError(f"{caller.participant} has {request.n}")

    async def untyped(self, caller: Caller, request: Number, body: bytes) -> Number:
        raise ZeroDivisionError("secret")

    async def group(self, caller: Caller, request: Number, body: bytes) -> Number:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.typed, caller, request, body)
        raise AssertionError

    async def long(self, caller: Caller, request: Number, body: bytes) -> Number:
        self.started.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()
        raise AssertionError

    async def count(self, caller: Caller, request: Number, duplex: Duplex) -> None:
        for n in range(request.n):
            await duplex.send(Number(n), bytes(n))

    async def echo(self, caller: Caller, request: Number, duplex: Duplex) -> None:
        while True:
            message, body = await duplex.receive_raw()
            await duplex.send_raw(message, body)

    async def flood(self, caller: Caller, request: Number, duplex: Duplex) -> None:
        try:
            while True:
                await duplex.send(Number(0), bytes(request.n))
                self.sent += request.n
        finally:
            self.cancelled.set()

    async def early(self, caller: Caller, request: Number, duplex: Duplex) -> None:
        await duplex.send(Number(1))


@pytest.fixture
def served() -> Served:
    return Served()


@asynccontextmanager
async def connected(
    served: Served, caller: Caller = PEER
) -> AsyncIterator[tuple[Connection, Connection]]:
    """Give a caller and the served side, connected in memory."""
    left, right = trio.testing.memory_stream_pair()
    here = Connection(
        left, Caller("mit.edu", b"m" * 20), dialled=True, service=Service(), events=Events()
    )
    there = Connection(
        right,
        caller,
        dialled=False,
        service=served.service,
        events=served.events,
        keep_alive=KeepAlive(1e6, 1e7),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.run)
        nursery.start_soon(there.run)
        yield here, there
        nursery.cancel_scope.cancel()


async def test_unary_call_with_body(served: Served) -> None:
    async with connected(served) as (here, _):
        answer = await here.call_with_body("double", Number(21), Number, body=b"ab")
        assert answer == (Number(42), b"abab")
        assert (await here.call("double", Number(1), Number)).n == 2
        big = bytes(MAX_BODY_BYTES // 2)
        _, body = await here.call_with_body("double", Number(1), Number, body=big)
        assert len(body) == MAX_BODY_BYTES


@asynccontextmanager
async def relayed(served: Served) -> AsyncIterator[tuple[Connection, Connection]]:
    """Give a caller, and a connection of the peer that relays its calls to the served side."""
    async with connected(served) as (far, _):
        passing = Served()

        async def pass_on(caller: Caller, request: Number, duplex: Duplex) -> None:
            async with far.open("echo", request) as further:

                async def requests() -> None:
                    await further.relay(duplex)
                    await trio.sleep_forever()

                await until_one_ends(requests, partial(duplex.relay, further))

        passing.service.streaming("relayed", Number, pass_on)
        async with connected(passing) as (here, _):
            yield here, far


async def test_a_relay_passes_on_messages_both_ways_to_their_end(served: Served) -> None:
    bodies = [b"", b"x", bytes(range(256)) * 1000, bytes(5 * WINDOW_BYTES // 2), b"last"]
    async with relayed(served) as (here, _), here.open("relayed", Number(0)) as duplex:
        for n, body in enumerate(bodies):
            await duplex.send(Number(n), body)
            assert await duplex.receive(Number) == (Number(n), body)
        await duplex.finish()
        with pytest.raises(EndOfCall):
            await duplex.receive(Number)


async def test_a_relay_passes_on_a_message_before_it_is_complete(served: Served) -> None:
    async with relayed(served) as (here, far), here.open("relayed", Number(0)) as duplex:
        await duplex._send((8).to_bytes(4, "big") + bytes(4) + b"half")
        await wait_all_tasks_blocked()
        (further,) = far._multiplexer.streams
        assert further.sent == 8 + len(msgspec.msgpack.encode(Number(0))) + 8 + len(b"half")


async def test_half_a_message_through_a_relay_gets_an_error(served: Served) -> None:
    async with relayed(served) as (here, _), here.open("relayed", Number(0)) as duplex:
        await duplex._send((8).to_bytes(4, "big") + bytes(4) + b"half")
        await duplex.finish()
        with pytest.raises(DecodeError, match="inside a message"):
            await duplex.receive(Number)


async def test_typed_errors_arrive_and_the_connection_lives_on(served: Served) -> None:
    async with connected(served) as (here, _):
        for method in ("typed", "group"):
            with pytest.raises(ConflictError, match=r"utah.edu has 7"):
                await here.call(method, Number(7), Number)
        with pytest.raises(NotFoundError, match="nothing"):
            await here.call("nothing", Number(7), Number)
        with pytest.raises(DecodeError, match="double: Number"):
            await here.call("double", Word("x"), Number)
        with pytest.raises(DecodeError, match="double: Word"):
            await here.call("double", Number(1), Word)
        assert (await here.call("double", Number(1), Number)).n == 2


async def test_untyped_error_is_internal_and_noted_without_its_text(served: Served) -> None:
    async with connected(served) as (here, _):
        with pytest.raises(InternalError) as caught:
            await here.call("untyped", Number(7), Number)
        assert "secret" not in str(caught.value)
        fault = served.events.recent()[-1]
        assert "secret" in fault.text
        assert f"`grep {fault.cause} logs/medusa.log`" in str(caught.value)
        assert (await here.call("double", Number(1), Number)).n == 2


async def test_a_cause_follows_a_call_and_one_is_made_where_there_is_none(served: Served) -> None:
    async with connected(served) as (here, _):
        for cause in ("abc123", ""):
            with bound(cause=cause), pytest.raises(InternalError) as caught:
                await here.call("untyped", Number(7), Number)
            fault = served.events.recent()[-1]
            assert fault.cause == (cause or fault.cause)
            assert checked_cause(fault.cause) == fault.cause
            assert fault.cause in str(caught.value)


async def test_a_cause_that_is_no_id_is_replaced(served: Served) -> None:
    async with connected(served) as (here, _):
        for cause in ("x" * 4000, "a b\n"):
            duplex = here._add(here._multiplexer.open("untyped", 1, cause))
            await duplex.send(Number(7))
            with pytest.raises(InternalError) as caught:
                await duplex.receive(Number)
            assert checked_cause(served.events.recent()[-1].cause)
            assert cause not in str(caught.value)


async def test_an_error_of_another_peer_is_passed_on_and_is_no_fault_here(served: Served) -> None:
    def relay(error: MedusaError) -> None:
        async def fail(caller: Caller, request: Number, body: bytes) -> Number:
            raise error

        served.service.unary(f"relay{len(served.service._methods)}", Number, fail)

    relay(MedusaError.from_wire("internal", "post failed inside the peer; why: `grep ab12`"))
    relay(InternalError("Spark failed"))
    relay(NotAuthorisedError("s is not yours"))
    methods = list(served.service._methods)[-3:]
    async with connected(served) as (here, _):
        with pytest.raises(InternalError, match=r"`grep ab12`$"):
            await here.call(methods[0], Number(7), Number)
        assert served.events.recent() == ()
        with pytest.raises(InternalError, match=r"^Spark failed; why: `grep [0-9a-f]{10} logs"):
            await here.call(methods[1], Number(7), Number)
        with pytest.raises(NotAuthorisedError):
            await here.call(methods[2], Number(7), Number)
    assert [(event.level, event.text) for event in served.events.recent()] == [
        ("error", f"failed at {methods[1]}: InternalError('Spark failed')"),
        ("warning", f"refused {PEER.participant}: {methods[2]}: s is not yours"),
    ]


async def test_a_refusal_that_honest_callers_often_get_is_no_event(served: Served) -> None:
    async def refuse(caller: Caller, request: Number, body: bytes) -> Number:
        raise NotAuthorisedError("not for you")

    served.service.unary("guarded", Number, refuse)
    served.service.unary("asked", Number, refuse, often_refused=True)
    async with connected(served) as (here, _):
        for method in ("asked", "guarded"):
            with pytest.raises(NotAuthorisedError, match="not for you"):
                await here.call(method, Number(1), Number)
    assert [(event.level, event.text) for event in served.events.recent()] == [
        ("warning", f"refused {PEER.participant}: guarded: not for you")
    ]


async def test_clients_may_call_only_what_is_for_clients(served: Served) -> None:
    async with connected(served, Caller("utah.edu", None)) as (client, _):
        assert (await client.call("double", Number(1), Number)).n == 2
        with pytest.raises(NotAuthorisedError, match="typed is not for clients"):
            await client.call("typed", Number(1), Number)


async def test_a_forbidden_call_is_refused_before_its_request_is_received(served: Served) -> None:
    ours = Caller("mit.edu", b"o" * 20, own=True)
    async with connected(served, ours) as (here, _):
        assert (await here.call("ours", Number(1), Number)).n == 2
        with pytest.raises(DecodeError):
            await here.call("ours", Word("x"), Number)
    async with connected(served) as (here, _):
        with (
            trio.fail_after(DEADLINE_S),
            pytest.raises(NotAuthorisedError, match=r"not for utah\.edu"),
        ):
            # the call is open, and no byte of its request is sent
            await here._add(here._multiplexer.open("ours", 1)).receive(Number)
        with pytest.raises(NotAuthorisedError, match=r"for this peer's own participant"):
            await here.call("ours", Word("x"), Number)


async def test_deadline_cancels_the_handler(served: Served, autojump_clock: object) -> None:
    async with connected(served) as (here, _):
        with pytest.raises(DeadlineError, match="long"):
            await here.call("long", Number(1), Number, timeout_s=DEADLINE_S)
        await served.cancelled.wait()
        assert (await here.call("double", Number(1), Number)).n == 2


async def test_a_cancelled_caller_cancels_the_handler(served: Served) -> None:
    async with connected(served) as (here, there), trio.open_nursery() as nursery:
        nursery.start_soon(here.call, "long", Number(1), Number)
        await served.started.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await served.cancelled.wait()
            assert (await here.call("double", Number(1), Number)).n == 2
            assert not there._calls


async def test_streaming_both_ways(served: Served) -> None:
    async with connected(served) as (here, _):
        async with here.open("count", Number(3)) as duplex:
            got = [await duplex.receive(Number) for _ in range(3)]
            assert got == [(Number(n), bytes(n)) for n in range(3)]
            with pytest.raises(EndOfCall):
                await duplex.receive(Number)
        async with here.open("echo", Number(0)) as duplex:
            for n in range(3):
                await duplex.send(Number(n), b"b" * n)
                assert await duplex.receive(Number) == (Number(n), b"b" * n)
            await duplex.finish()
            with pytest.raises(EndOfCall):
                await duplex.receive(Number)


async def test_sending_to_a_finished_call_says_so(served: Served) -> None:
    async with connected(served) as (here, _), here.open("early", Number(0)) as duplex:
        assert (await duplex.receive(Number))[0].n == 1
        with pytest.raises(EndOfCall):
            await duplex.receive(Number)
        with pytest.raises(EndOfCall):
            await duplex.send(Number(1))


async def test_a_slow_reader_stops_the_writer_and_no_other_call(
    served: Served, autojump_clock: object
) -> None:
    size = 2**18
    async with connected(served) as (here, _):
        async with here.open("flood", Number(size)) as duplex:
            await trio.sleep(100)  # for ever: no bytes move any more
            stopped_at = served.sent
            assert WINDOW_BYTES <= stopped_at <= WINDOW_BYTES + 3 * size
            assert (await here.call("double", Number(1), Number)).n == 2
            for _ in range(WINDOW_BYTES // size):
                await duplex.receive_raw()
            await trio.sleep(100)
            assert served.sent >= stopped_at + WINDOW_BYTES - size
            assert not served.cancelled.is_set()
        await served.cancelled.wait()


async def test_a_cancelled_receive_takes_nothing(served: Served, autojump_clock: object) -> None:
    async with connected(served) as (here, _), here.open("echo", Number(0)) as duplex:
        with trio.move_on_after(1):
            await duplex.receive(Number)
        await duplex.send(Number(5), b"x")
        assert await duplex.receive(Number) == (Number(5), b"x")


async def test_messages_over_a_limit_are_not_sent(served: Served) -> None:
    async with connected(served) as (here, _):
        with pytest.raises(InvalidInputError, match="16777217"):
            await here.call("double", Number(1), Number, body=bytes(MAX_BODY_BYTES + 1))
        with pytest.raises(InvalidInputError):
            await here.call("double", Word("x" * MAX_STRUCT_BYTES), Number)
        assert (await here.call("double", Number(1), Number)).n == 2


@pytest.mark.parametrize("claim", [(2**31, 0), (8, MAX_BODY_BYTES + 1), (MAX_STRUCT_BYTES + 1, 0)])
async def test_a_claim_over_a_limit_is_refused_before_it_is_read(
    served: Served, claim: tuple[int, int]
) -> None:
    async with connected(served) as (here, _):
        stream = here._multiplexer.open("double", 1)
        duplex = here._add(stream)
        here._multiplexer.send(stream, pack("!II", *claim))
        here._wake_writer()
        with pytest.raises(DecodeError, match="at most"):
            await duplex.receive_raw()
        assert (await here.call("double", Number(1), Number)).n == 2


async def test_a_call_without_request_or_cut_inside_one(served: Served) -> None:
    async with connected(served) as (here, _):
        for start, text in ((b"", "no request"), (pack("!II", 10, 0) + b"x", "inside a message")):
            stream = here._multiplexer.open("double", 1)
            duplex = here._add(stream)
            here._multiplexer.send(stream, start)
            duplex.finish_now()
            with pytest.raises(DecodeError, match=text):
                await duplex.receive_raw()


async def test_a_broken_connection_breaks_calls_and_cancels_handlers(served: Served) -> None:
    async with connected(served) as (here, there):
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(BrokenError, match=r"mit.edu peer 6d6d"):
                    await here.call("long", Number(1), Number)

            nursery.start_soon(call)
            await served.started.wait()
            await trio.aclose_forcefully(there._stream)
        await served.cancelled.wait()
        await here.closed.wait()
        with pytest.raises(BrokenError):
            await here.call("double", Number(1), Number)


async def test_our_own_close_is_closed_not_broken(served: Served) -> None:
    async with connected(served) as (here, _):
        here.close()
        with pytest.raises(ClosedError):
            await here.call("double", Number(1), Number)


@pytest.mark.parametrize(
    "noise", [b"\xff" * 100, HEADER.pack(Kind.DATA, 1, 2**31), b"GET / HTTP/1.1\r\n\r\n"]
)
async def test_noise_ends_its_connection_only(served: Served, noise: bytes) -> None:
    async with connected(served) as (here, there):
        await here._stream.send_all(noise)
        await there.closed.wait()
        assert "broke the protocol" in served.events.recent()[-1].text


async def test_silence_is_noticed(autojump_clock: object) -> None:
    began = trio.current_time()
    left, _silent = trio.testing.memory_stream_pair()
    connection = Connection(
        left, PEER, dialled=True, service=Service(), events=Events(), keep_alive=KeepAlive(10, 30)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        with pytest.raises(BrokenError, match="silent"):
            await connection.call("x", Number(1), Number, timeout_s=1000)
        assert 30 <= trio.current_time() - began <= 50


async def test_pings_keep_an_idle_connection(served: Served, autojump_clock: object) -> None:
    async with connected(served) as (here, _):
        await trio.sleep(1000)
        assert not here.closed.is_set()
        here.probe()
        await trio.sleep(100)
        assert (await here.call("double", Number(1), Number)).n == 2
