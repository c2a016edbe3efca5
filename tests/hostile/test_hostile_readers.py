"""Members subscribe and do not read, or read more than their share."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from deadline import DEADLINE_S
from hostile_member import Wire
from hostile_siege import STREAM, Siege

from medusa.engine.streams.messages import Acknowledge, ReceiveEvents, Subscribe
from medusa.engine.streams.reading.delivery import MAX_OF_PARTICIPANT
from medusa.overlay.rpc import MAX_BODY_BYTES


@pytest.mark.parametrize("reads_socket", [True, False])
async def test_subscribers_that_never_read(
    siege: Siege, seconds: float, *, reads_socket: bool
) -> None:
    """300 subscriptions share one connection; the member reads the socket, or not even that."""
    large = await siege.large()
    async with siege.watched(seconds) as watch, siege.evil.peer().wire(siege.address) as wire:
        if not reads_socket:
            wire.reads = trio.Event()
        for _ in range(300):
            await wire.call("subscribe", Subscribe(large))
        await trio.sleep(seconds)
    print(watch)
    watch.check()


async def test_subscribers_that_read_by_the_byte(siege: Siege, seconds: float) -> None:
    """Each receives a byte of credit at a time, so that it seems to make progress."""
    large = await siege.large()
    async with siege.watched(seconds) as watch, siege.evil.peer().wire(siege.address) as wire:
        streams = [await wire.call("subscribe", Subscribe(large)) for _ in range(250)]
        with trio.move_on_after(seconds):
            while True:
                for stream in streams:
                    if stream not in wire.ended:
                        await wire.credit(stream, 2 * 2**20 + wire.received[stream] + 1)
                await trio.sleep(0.01)
    print(watch)
    watch.check()


async def test_more_subscriptions_than_a_participant_may_have(siege: Siege, seconds: float) -> None:
    """Ten peers have a thousand subscriptions each, and read all of them: honest delivery is not
    delayed."""
    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:
        wires: list[Wire] = []

        async def subscribe(task_status: trio.TaskStatus[None]) -> None:
            async with siege.evil.peer().wire(siege.address) as wire:
                wires.append(wire)
                for _ in range(1_000):
                    await wire.call("subscribe", Subscribe(STREAM, after=2**60))
                task_status.started()
                await trio.sleep_forever()

        for _ in range(10):
            await nursery.start(subscribe)
        await trio.sleep(seconds)
        # the peer handles the calls of one participant at that participant's pace
        with trio.fail_after(DEADLINE_S):
            while sum(1_000 - len(wire.ended) for wire in wires) > MAX_OF_PARTICIPANT:  # noqa: ASYNC110
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()
    assert watch.is_brief or watch.slowest_delivery_s < 3.0


async def test_as_many_as_may_be_are_served_and_honest_delivery_goes_on(
    siege: Siege, seconds: float
) -> None:
    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:

        async def read(task_status: trio.TaskStatus[None]) -> None:
            async with siege.evil.peer().wire(siege.address) as wire:
                calls = [await wire.call("subscribe", Subscribe(STREAM)) for _ in range(250)]
                task_status.started()
                while True:
                    for stream in calls:
                        await wire.credit(stream, wire.received[stream] + 2**21)
                        await wire.say(stream, Acknowledge(0))
                    await trio.sleep(0.2)

        for _ in range(4):
            await nursery.start(read)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()
    assert watch.is_brief or watch.slowest_delivery_s < 3.0


async def test_pulls_that_wait_with_all_that_a_message_may_have(
    siege: Siege, seconds: float
) -> None:
    """Requests carry a useless body of 16 MiB, and each waits for half a minute."""
    async with siege.watched(seconds) as watch, siege.evil.peer().wire(siege.address) as wire:
        body = bytes(MAX_BODY_BYTES)
        with trio.move_on_after(seconds):
            while not wire.over:
                request = ReceiveEvents(STREAM, after=2**60, timeout_s=30.0)
                stream = await wire.call("receive_events", request, body[: 2 * 2**20])
                await trio.lowlevel.checkpoint()
                assert stream
    print(watch)
    watch.check()
