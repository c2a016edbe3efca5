"""Which directions an order cuts, and that every peer receives it, also a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from medusa.overlay.errors import DeadlineError, InvalidInputError, UnavailableError
from medusa.testnet.cutting import Cut, switchboard
from medusa.testnet.cutting import switchboard as loopback
from medusa.testnet.cutting.links import Links
from medusa.testnet.cutting.sockets import Reach
from medusa.testnet.cutting.switchboard import Switchboard, obeying, open_loopback, open_switchboard
from medusa.testnet.kit.peers import Launch, Peer
from medusa.tools.home.folder import Home

OWN = "127.77.9.1"


class RecordedWires:
    """Wires that record their orders."""

    def __init__(self) -> None:
        self.lost: list[frozenset[Cut]] = []

    async def launch(self, peer: str) -> Launch:
        return Launch(f"10.0.0.1:{len(peer)}")

    async def lose(self, cuts: Collection[Cut]) -> None:
        await trio.lowlevel.checkpoint()
        self.lost.append(frozenset(cuts))


def a_peer(name: str) -> Peer:
    return Peer(f"{name}.edu", Home(Path("/fed", name)), Path("/fed", f"{name}.log"))


async def links_of(*peers: Peer) -> tuple[Links, RecordedWires]:
    wires = RecordedWires()
    links = Links(wires)
    for peer in peers:
        await links.launch(peer.name)
    return links, wires


A, B, C, D = map(a_peer, "abcd")


def cuts(*ways: str) -> frozenset[Cut]:
    return frozenset(Cut(*way) for way in ways)


async def test_a_cut_is_of_both_directions_or_of_one() -> None:
    links, wires = await links_of(A, B, C)
    await links.cut(A, B)
    await links.cut(B, C, both=False)
    await links.heal()
    assert wires.lost == [cuts("ab", "ba"), cuts("ab", "ba", "bc"), cuts()]
    assert links.cuts == cuts()


async def test_a_split_is_of_every_pair_across_and_of_nothing_else() -> None:
    links, wires = await links_of(A, B, C, D)
    await links.cut(C, D)
    await links.split([[A], [B, C]])
    assert wires.lost[-1] == cuts("ab", "ba", "ac", "ca")
    await links.split([[A], [B], [D]])
    assert wires.lost[-1] == cuts("ab", "ba", "ad", "da", "bd", "db")


async def test_cuts_at_the_same_time_are_all_made() -> None:
    links, wires = await links_of(A, B, C)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(links.cut, A, B)
        nursery.start_soon(partial(links.cut, B, C, both=False))
    assert wires.lost[-1] == cuts("ab", "ba", "bc")


async def test_a_peer_that_was_started_otherwise_cannot_be_cut_off() -> None:
    links, wires = await links_of(A)
    with pytest.raises(InvalidInputError, match="b: not started over these links"):
        await links.cut(A, B)
    assert not wires.lost
    assert not links.cuts


# -- sending them orders


@asynccontextmanager
async def heard_by(board: Switchboard, host: str) -> AsyncIterator[trio.socket.SocketType]:
    """Open a peer's line to the switchboard, before its first order."""
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_SEQPACKET) as line:
        await line.connect(str(board.path))
        await line.send(host.encode())
        yield line


async def take_order(line: trio.socket.SocketType) -> tuple[int, Reach]:
    order = msgspec.json.decode(await line.recv(10_000), type=switchboard._Order)
    return order.number, order.reach


async def is_reached(address: tuple[str, int]) -> bool:
    """Whether a socket of trio's reaches the address: on the loopback within microseconds."""
    with trio.move_on_after(0.05), trio.socket.socket() as dialled:
        await dialled.connect(address)
        return True
    return False


async def test_a_peer_gets_orders_before_it_starts_and_while_it_runs() -> None:
    with trio.socket.socket() as listening:
        await listening.bind(("127.77.9.2", 0))
        listening.listen()
        there = listening.getsockname()
        cut_off = Reach(unreached=frozenset([there[0]]))
        async with open_switchboard() as board:
            await board.notify({OWN: cut_off})
            async with obeying(board.path, OWN):
                assert not await is_reached(there)
                await board.notify({})
                assert await is_reached(there)
                await board.notify({OWN: cut_off})
                assert not await is_reached(there)


async def test_a_command_to_the_board_waits_until_the_peer_obeys() -> None:
    async with open_switchboard() as board, heard_by(board, OWN) as line:
        number, reach = await take_order(line)
        assert reach == Reach()
        await line.send(b"%d" % number)
        told = trio.Event()

        async def notify() -> None:
            await board.notify({OWN: Reach(frozenset(["x"]))})
            told.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(notify)
            number, reach = await take_order(line)
            assert reach.unheard == {"x"}
            await trio.testing.wait_all_tasks_blocked()
            assert not told.is_set()
            await line.send(b"%d" % number)


async def test_a_dead_peer_is_not_awaited_and_its_next_process_gets_the_order() -> None:
    async with open_switchboard() as board:
        async with heard_by(board, OWN) as line:
            number, _ = await take_order(line)
            await line.send(b"%d" % number)
        await board.notify({OWN: Reach(frozenset(["x"]))})
        async with heard_by(board, OWN) as line:
            assert (await take_order(line))[1].unheard == {"x"}


async def test_a_peer_that_does_not_answer_is_named() -> None:
    async with open_switchboard() as board, heard_by(board, OWN) as line:
        late, _ = await take_order(line)
        await line.send(b"%d" % late)
        with pytest.raises(DeadlineError, match=rf"{OWN}.* is the process stopped\?"):
            await board.notify({}, obeyed_s=0.1)
        late, _ = await take_order(line)
        await line.send(b"%d" % late)  # the late order must not count for the next one

        async with trio.open_nursery() as nursery:
            nursery.start_soon(board.notify, {})
            number, _ = await take_order(line)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            await line.send(b"%d" % number)


async def test_no_switchboard(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no switchboard at .*gone"):
        async with obeying(tmp_path / "gone", OWN):
            pass


async def test_a_folder_in_which_there_can_be_no_switchboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(UnavailableError, match="set TMPDIR"):
        async with open_switchboard():
            pass


async def test_a_machine_without_such_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "HOST", "192.0.2.{1}")
    async with open_loopback() as wires:
        with pytest.raises(UnavailableError, match=r"cannot have 192\.0\.2\.1: .*loopback"):
            await wires.launch("mit.edu")
