"""Members send what takes memory: bombs, unfinished messages, calls that nobody answers."""

from __future__ import annotations

import itertools
from contextlib import suppress

import hostile_arrow
import pyarrow as pa
import pytest
import trio
from engine_peers import rows, schema_of
from hostile_member import Wire
from hostile_siege import STREAM, Siege

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.objects.view import MAX_SPAN_US
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import MAX_BATCH_BYTES, Post, PostEvent, Subscribe
from medusa.overlay import frames
from medusa.overlay.multiplex import MAX_STREAMS
from medusa.overlay.rpc import MAX_BODY_BYTES, MAX_STRUCT_BYTES
from medusa.tools.client.async_client import open_medusa

WIDE = Schema(
    "medusa://mit.edu/wide",
    (Field("t", FieldType.LONG), *(Field(f"v{n}", FieldType.LONG) for n in range(63))),
    time="t",
)
"""64 columns of eight bytes: the factor by which the size of one buffer is multiplied."""


async def public_stream(siege: Siege, path: str, schema: Schema, slack_us: int = 0) -> str:
    """Give a stream of mit.edu that every peer may read and post to."""
    name = f"medusa://mit.edu/{path}"
    async with open_medusa(siege.mit.home.folder) as client:
        await client.create_schema(schema)
        await client.create_stream(
            StreamDefinition(name, schema.name, readers=("*",), writers=("*",), slack_us=slack_us)
        )
    return name


async def post_again_and_again(wire: Wire, stream: str, body: bytes, seconds: float) -> None:
    """Post one body in calls of their own, since a refused post ends its call."""
    number = 0
    with trio.move_on_after(seconds):
        while not wire.over:
            number += 1
            call = await wire.call("post_event", PostEvent(stream, f"p{number}"))
            await wire.say(call, Post(1), body)


@pytest.mark.parametrize("kind", ["zstd", "lz4", "overlapping", "padded", "batches"])
async def test_bodies_that_decode_to_more_than_they_are(
    siege: Siege, seconds: float, kind: str
) -> None:
    stream = await public_stream(siege, "wide", WIDE, slack_us=MAX_SPAN_US)
    schema = WIDE.payload
    few = pa.table({field.name: [1] for field in schema}, schema=schema)
    body = {
        "zstd": lambda: hostile_arrow.bomb(schema, 2**20, "zstd"),
        "lz4": lambda: hostile_arrow.bomb(schema, 2**20, "lz4"),
        "overlapping": lambda: hostile_arrow.overlapping(schema, 2**20),
        "padded": lambda: hostile_arrow.padded(few, MAX_BATCH_BYTES - 2**16),
        "batches": lambda: hostile_arrow.many_batches(schema, 1000),
    }[kind]()
    async with siege.watched(seconds) as watch, siege.evil.peer().wire(siege.address) as wire:
        await post_again_and_again(wire, stream, body, seconds)
    print(watch)
    watch.check()


async def test_posts_that_wait_for_a_boundary_on_many_streams(siege: Siege, seconds: float) -> None:
    """Each stream may hold `engine.pending_bytes`, all of them together no more than the peer
    has."""
    schema = schema_of("mit.edu")
    streams = [
        await public_stream(siege, f"slack{number}", schema, slack_us=MAX_SPAN_US)
        for number in range(20)
    ]
    body = bytes(encode(rows([(t, t) for t in range(250_000)])))
    assert len(body) < MAX_BATCH_BYTES
    async with siege.watched(seconds) as watch, siege.evil.peer().wire(siege.address) as wire:
        with trio.move_on_after(seconds):
            for number in range(1, 100):
                for stream in streams:
                    call = await wire.call("post_event", PostEvent(stream, f"p{number}"))
                    await wire.say(call, Post(1), body)
    print(watch)
    watch.check()


async def test_messages_that_are_announced_and_never_end(siege: Siege, seconds: float) -> None:
    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:

        async def announce(task_status: trio.TaskStatus[None]) -> None:
            async with siege.evil.peer().wire(siege.address) as wire:
                for _ in range(MAX_STREAMS - 1):
                    claimed = (MAX_STRUCT_BYTES).to_bytes(4) + MAX_BODY_BYTES.to_bytes(4)
                    await wire.announce("subscribe", claimed + bytes(2**20))
                task_status.started()
                await trio.sleep_forever()

        for _ in range(4):
            nursery.start_soon(announce, trio.TASK_STATUS_IGNORED)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()


async def test_errors_without_a_reader(siege: Siege, seconds: float) -> None:
    """The member calls methods that do not exist, as fast as it can, and reads no answer."""
    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:

        async def call() -> None:
            while True:
                async with siege.evil.peer().wire(siege.address) as wire:
                    wire.reads = trio.Event()
                    with suppress(trio.BrokenResourceError), trio.move_on_after(1.0):
                        while not wire.over:  # until the peer ends the connection, or it is stuck
                            await wire.call("no_such_method" * 8, Subscribe(STREAM))

        for _ in range(20):
            nursery.start_soon(call)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()


async def test_calls_opened_and_reset_and_pings_without_end(siege: Siege, seconds: float) -> None:
    async with siege.watched(seconds) as watch:
        with trio.move_on_after(seconds):
            while True:
                async with siege.evil.peer().wire(siege.address) as wire:
                    while not wire.over:
                        for _ in range(200):
                            await wire.call("subscribe", Subscribe(STREAM))
                            await wire.write(*[frames.encode(frames.Kind.PING, 0)] * 10)
                            await wire.reset()
    print(watch)
    watch.check()


async def test_as_many_connections_as_are_accepted(siege: Siege, seconds: float) -> None:
    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:

        async def connect() -> None:
            async with siege.evil.peer().wire(siege.address) as wire:
                await wire.announce("subscribe", bytes(8))
                await trio.sleep_forever()

        for _ in range(200):
            nursery.start_soon(connect)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()


async def test_bytes_sent_one_by_one(siege: Siege, seconds: float) -> None:
    """Each byte is a frame of its own, on many connections at a time."""
    piece = (frames.encode_header(1, 1) + b"x") * 10_000
    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:

        async def send() -> None:
            while True:
                async with siege.evil.peer().wire(siege.address) as wire:
                    await wire.announce("subscribe", bytes(4) + (2**20).to_bytes(4))
                    with suppress(trio.BrokenResourceError):
                        while not wire.over:
                            await wire.write(piece)

        for _ in range(20):
            nursery.start_soon(send)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()


async def test_tiny_posts_as_fast_as_they_can_be_sent(siege: Siege, seconds: float) -> None:
    """A producer that may post sends them on twenty connections."""
    stream = await public_stream(siege, "tiny", schema_of("mit.edu"))
    body = bytes(encode(rows([(1, 1)])))
    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:

        async def post(name: str) -> None:
            async with siege.evil.peer().wire(siege.address) as wire:
                call = await wire.call("post_event", PostEvent(stream, name))
                with suppress(trio.BrokenResourceError):
                    for number in itertools.count(1):
                        await wire.say(call, Post(number), body)

        for number in range(20):
            nursery.start_soon(post, f"p{number}")
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()
