"""The simulated network behaves as a real one in all that programs can observe."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from medusa.testnet.virtual.clock import VirtualTime
from medusa.testnet.virtual.hosts import Process, inside
from medusa.testnet.virtual.links import LinkModel
from medusa.testnet.virtual.network import Network

ONE, TWO = "10.0.0.1", "10.0.0.2"
PORT = 7000
EVEN = LinkModel(delay_s=0.01, jitter_s=0.0)


class Net:
    """Two machines with a process each."""

    def __init__(self, seed: int = 0) -> None:
        self.time = VirtualTime()
        self.network = Network(self.time, random.Random(seed))
        self.network.links.default = EVEN
        self.one = Process(self.network.machine(ONE), "one")
        self.two = Process(self.network.machine(TWO), "two")

    def run(self, main: Callable[[Net], Awaitable[None]]) -> None:
        async def enabled() -> None:
            self.network.enable()
            await main(self)

        trio.run(enabled, clock=self.time.clock)

    async def listener(self) -> trio.SocketListener:
        with inside(self.two):
            return (await trio.open_tcp_listeners(PORT, host=TWO))[0]

    async def dial(self) -> trio.SocketStream:
        with inside(self.one):
            return await trio.open_tcp_stream(TWO, PORT)

    async def pair(self) -> tuple[trio.SocketStream, trio.SocketStream]:
        """Return both ends of a connection: the dialling one, the accepted one."""
        listener = await self.listener()
        dialled = await self.dial()
        with inside(self.two):
            return dialled, await listener.accept()


def on_a_net(test: Callable[[Net], Awaitable[None]]) -> Callable[[], None]:
    """Run the test between two machines, in their virtual time."""
    return lambda: Net().run(test)


async def read_all(stream: trio.SocketStream) -> bytes:
    found = b""
    async for data in stream:
        found += data
    return found


@on_a_net
async def test_a_stream_arrives_whole_and_in_order_however_much_is_lost(net: Net) -> None:
    near, far = await net.pair()
    net.network.links.default = LinkModel(0.01, 0.02, loss=0.3)
    sent = random.Random(1).randbytes(2_000_000)

    async def send() -> None:
        await near.send_all(sent)
        await near.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        assert await read_all(far) == sent
    await far.send_all(b"thanks")  # the other direction is still open
    await far.aclose()
    assert await read_all(near) == b"thanks"


@on_a_net
async def test_a_sender_waits_for_a_reader_that_does_not_read(net: Net) -> None:
    near, far = await net.pair()
    with trio.move_on_after(100) as limit:
        await near.send_all(bytes(10_000_000))
    assert limit.cancelled_caught
    read = len(await far.receive_some(10_000_000))
    assert 0 < read < 1_000_000


@on_a_net
async def test_a_round_trip_takes_two_delays(net: Net) -> None:
    near, far = await net.pair()
    start = trio.current_time()
    await near.send_all(b"?")
    assert await far.receive_some() == b"?"
    await far.send_all(b"!")
    assert await near.receive_some() == b"!"
    assert trio.current_time() - start == pytest.approx(0.02)


@on_a_net
async def test_without_a_listener_a_living_machine_refuses_and_a_dead_one_is_silent(
    net: Net,
) -> None:
    start = trio.current_time()
    with pytest.raises(OSError, match="all attempts") as refused:
        await net.dial()
    assert "ConnectionRefusedError" in repr(refused.value.__cause__)
    assert trio.current_time() - start < 1
    net.network.kill(net.two, power=True)
    with trio.move_on_after(60) as limit:
        await net.dial()
    assert limit.cancelled_caught


def test_a_killed_process_says_so_and_a_machine_without_power_does_not() -> None:
    async def main(net: Net, power: bool) -> None:
        near, _far = await net.pair()
        net.network.kill(net.two, power=power)
        with trio.move_on_after(60) as limit:
            assert await near.receive_some() == b""
        assert limit.cancelled_caught == power
        await near.send_all(b"are you there?")
        await trio.sleep(1)
        if power:
            net.network.machine(TWO).up = True  # the machine boots: does it know that connection?
            await near.send_all(b"are you there?")
        with pytest.raises(trio.BrokenResourceError):
            await read_all(near)

    for power in (False, True):
        Net().run(lambda net, power=power: main(net, power))  # type: ignore[misc]


@on_a_net
async def test_closing_with_data_unread_resets(net: Net) -> None:
    near, far = await net.pair()
    await near.send_all(b"never read")
    await trio.sleep(1)
    await far.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await read_all(near)


@on_a_net
async def test_closing_wakes_the_waiting_tasks_on_this_side(net: Net) -> None:
    near, _far = await net.pair()

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await near.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await near.aclose()


@on_a_net
async def test_a_cut_holds_back_and_a_healed_link_goes_on(net: Net) -> None:
    near, far = await net.pair()
    net.network.links.cut(ONE, TWO)
    await near.send_all(b"late")
    with trio.move_on_after(30) as limit:
        await far.receive_some()
    assert limit.cancelled_caught
    net.network.links.heal(ONE, TWO)
    assert await far.receive_some() == b"late"


@on_a_net
async def test_a_cut_one_way_lets_the_other_way_through_up_to_a_window(net: Net) -> None:
    near, far = await net.pair()
    net.network.links.cut(TWO, ONE, both=False)
    with trio.move_on_after(30) as limit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.send_all, bytes(2_000_000))
            read = 0
            while True:
                read += len(await far.receive_some())
    assert limit.cancelled_caught
    assert 0 < read < 2_000_000  # without acknowledgements there is no more room


@on_a_net
async def test_a_clog_delays_what_is_under_way(net: Net) -> None:
    near, far = await net.pair()
    start = trio.current_time()
    net.network.links.clog(ONE, TWO, net.time.now + 5.0)
    await near.send_all(b"late")
    await far.receive_some()
    assert 5.0 <= trio.current_time() - start < 5.1


async def datagrams(net: Net, count: int) -> tuple[list[int], list[float]]:
    """Return how many of the datagrams arrive within a minute, and their delays."""
    with inside(net.two):
        receiver = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM)
        await receiver.bind((TWO, PORT))
    with inside(net.one):
        sender = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM)
        await sender.bind((ONE, PORT))
    start = trio.current_time()
    for number in range(count):
        await sender.sendto(number.to_bytes(4, "big"), (TWO, PORT))
    found, took = [], []
    with trio.move_on_after(60):
        while True:
            data, source = await receiver.recvfrom(100)
            assert source == (ONE, PORT)
            found.append(int.from_bytes(data, "big"))
            took.append(trio.current_time() - start)
    return found, took


@on_a_net
async def test_datagrams_are_lost_doubled_and_reordered_as_the_model_says(net: Net) -> None:
    net.network.links.default = LinkModel(0.01, 0.0, loss=0.2, duplicate=0.1, reorder=0.3)
    found, took = await datagrams(net, 1000)
    assert len(set(found)) == pytest.approx(800, abs=60)
    assert len(found) - len(set(found)) == pytest.approx(80, abs=40)
    assert found != sorted(found)
    assert min(took) == pytest.approx(0.01)
    assert max(took) > 0.03


@on_a_net
async def test_datagrams_do_not_pass_a_cut(net: Net) -> None:
    net.network.links.cut(ONE, TWO, both=False)
    found, _ = await datagrams(net, 10)
    assert found == []


def test_the_digest_is_the_seeds() -> None:
    def digest(seed: int) -> str:
        net = Net(seed)

        async def main(net: Net) -> None:
            net.network.links.default = LinkModel(0.01, 0.01, loss=0.2)
            await datagrams(net, 100)

        net.run(main)
        return net.network.digest

    assert digest(1) == digest(1) != digest(2)


@on_a_net
async def test_a_dead_process_opens_nothing(net: Net) -> None:
    net.network.kill(net.one, power=False)
    with pytest.raises(OSError, match="all attempts"):
        await net.dial()
    with inside(net.one), pytest.raises(OSError, match="no process"):
        trio.socket.socket()


@on_a_net
async def test_a_run_in_which_nothing_can_happen_is_reported(net: Net) -> None:
    with trio.CancelScope() as scope:
        net.time.stalls.add(scope.cancel)
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert "nothing" in net.time.stalled
