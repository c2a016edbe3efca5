"""The killer against stand-ins for peers, on virtual time: its victims, and their return."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from medusa.overlay.errors import UnavailableError
from medusa.testnet.intrusion import kills
from medusa.testnet.intrusion.board import Board, Posting
from medusa.testnet.intrusion.kills import FAILOVER_S, Dice, Killer, Remains
from medusa.testnet.kit.answers import Received
from medusa.tools.home.folder import Home

pytestmark = pytest.mark.usefixtures("autojump_clock")


SEEDS = range(12)


@dataclass(eq=False)
class Peer:
    """A stand-in for `medusa.testnet.kit.peers.Peer`, with the same interface and without a
    process. starts_s: how long it takes to start, seconds."""

    participant: str
    home: Home
    starts_s: float = 1.0
    alive: bool = True
    up: bool = True
    died: list[float] = field(default_factory=list)
    born: list[float] = field(default_factory=list)
    _due: float = 0.0

    @property
    def name(self) -> str:
        return self.home.folder.name

    async def kill_9(self) -> None:
        await trio.lowlevel.checkpoint()
        assert self.alive, f"{self.name} is dead already"
        self.alive = self.up = False
        self.died.append(trio.current_time())

    async def start(self) -> None:
        await trio.lowlevel.checkpoint()
        assert not self.alive, f"{self.name} runs"
        self.alive = True
        self.born.append(trio.current_time())
        self._due = trio.current_time() + self.starts_s

    async def ready(self) -> None:
        await trio.sleep_until(self._due)
        if not self.alive:
            raise UnavailableError(f"{self.name} ended with -9")
        self.up = True


class Cluster:
    """Peers, and answers that come while `answering` is true."""

    def __init__(self, *names: str) -> None:
        self.peers = [Peer(name.partition("-")[0], Home(Path("/fed", name))) for name in names]
        self.board = Board(seconds=trio.current_time)
        self.board.posting = {"a.edu": Posting(0, 1)}

    def answering(self) -> bool:
        """Whether answers come from a query that needs all peers of its owner."""
        return all(peer.up for peer in self.peers)

    async def run(self, killer: Killer) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer)
            await killer(self, self.board)  # type: ignore[arg-type]
            nursery.cancel_scope.cancel()

    async def _answer(self) -> None:
        while True:
            await trio.sleep(0.5)
            if self.answering():
                self.board.history.add("busy", Received(trio.current_time(), 0, 1))


class Guarded(Cluster):
    """A query that continues 3 s after a failure, if one of its owner's two peers is up."""

    def answering(self) -> bool:
        owners = [peer for peer in self.peers if peer.participant == "o.edu"]
        last = max((at for peer in owners for at in peer.died), default=-3.0)
        assert any(peer.alive for peer in owners), "who was to take over was killed as well"
        return trio.current_time() >= last + 3.0


@pytest.fixture(autouse=True)
def nothing_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    async def left_by(home: Path) -> list[object]:  # a thread takes time that is not virtual
        await trio.lowlevel.checkpoint()
        return []

    monkeypatch.setattr(kills, "left_by", left_by)


@pytest.mark.parametrize("seed", SEEDS)
async def test_so_many_kills_and_all_up_at_the_end(seed: int) -> None:
    cluster, killer = Cluster("a.edu", "b.edu", "c.edu"), Killer(20, seed)
    await cluster.run(killer)
    toll = cluster.board.toll
    assert sum(len(peer.died) for peer in cluster.peers) == toll.kills == toll.planned == 20
    assert sum(len(peer.born) for peer in cluster.peers) == toll.restarts == 20
    assert all(peer.up for peer in cluster.peers)
    assert toll.down == {}
    assert not killer.faults
    assert all(peer.died for peer in cluster.peers), "nobody is spared for long"


async def test_the_killer_kills_no_peer_before_the_first_answer() -> None:
    class Late(Cluster):
        def answering(self) -> bool:
            return trio.current_time() > 100.0

    cluster = Late("a.edu", "b.edu")
    await cluster.run(Killer(5, 1))
    assert min(at for peer in cluster.peers for at in peer.died) > 100.0


async def test_all_kinds_of_strokes_are_drawn() -> None:
    at_once = again = 0
    for seed in SEEDS:
        cluster = Cluster("a.edu", "b.edu", "c.edu")
        await cluster.run(Killer(20, seed))
        died = [at for peer in cluster.peers for at in peer.died]
        at_once += len(died) - len(set(died))
        for peer in cluster.peers:
            again += sum(
                at < born + peer.starts_s for born in peer.born for at in peer.died if at > born
            )
    assert at_once
    assert again


def test_the_same_seed_the_same_dice() -> None:
    def drawn(seed: int) -> list[object]:
        dice = Dice(seed)
        return [(dice.stroke(), dice.fate(number)) for number in range(30)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    dice = Dice(7)
    assert dice.fate(3) == Dice(7).fate(3), "whatever was drawn before"


async def test_the_killer_does_not_wait_for_ever_for_an_answer() -> None:
    class Silent(Cluster):
        def answering(self) -> bool:
            return not any(peer.died for peer in self.peers)

    cluster = Silent("a.edu", "b.edu")
    await cluster.run(Killer(20, 1))
    assert cluster.board.toll.kills == 20


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_killer_kills_guarded_owners_one_at_a_time(seed: int) -> None:
    cluster, killer = Guarded("a.edu", "b.edu", "o.edu", "o.edu-3"), Killer(30, seed)
    await cluster.run(killer)
    assert not killer.faults
    owners = cluster.peers[2:]
    assert any(peer.died for peer in owners)
    for peer in owners:
        for died, born in zip(peer.died, peer.born, strict=True):
            assert born >= died + 3.0, "before the other had taken over"


async def test_a_standby_that_does_not_take_over_is_a_fault() -> None:
    class Failing(Guarded):
        def answering(self) -> bool:
            return all(peer.up for peer in self.peers)

    cluster, killer = Failing("o.edu", "o.edu-1"), Killer(1, 0)
    await cluster.run(killer)
    (fault,) = killer.faults
    assert fault.startswith(f"answers stood still for {FAILOVER_S:.0f} s without o.edu")
    assert all(peer.up for peer in cluster.peers)


async def test_once_all_is_posted_no_answer_is_waited_for() -> None:
    cluster, killer = Guarded("o.edu", "o.edu-1"), Killer(5, 0)
    cluster.board.posting["a.edu"].rows = 1
    await cluster.run(killer)
    assert trio.current_time() < 5 * FAILOVER_S
    assert not killer.faults


async def test_a_process_that_outlives_its_peer_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watch(left: object) -> Remains:
        await trio.lowlevel.checkpoint()
        return Remains(45.0, ("java (17)",))

    monkeypatch.setattr(kills, "watch", watch)
    cluster, killer = Cluster("a.edu"), Killer(1, 0)
    await cluster.run(killer)
    assert killer.faults == ["a.edu was dead, and java (17) went on"]
    assert killer.remains.longest_s == 45.0


async def test_a_peer_that_does_not_come_up_is_an_error() -> None:
    class Broken(Peer):
        async def ready(self) -> None:
            await trio.lowlevel.checkpoint()
            raise UnavailableError("ended with 1: the journal is damaged")

    cluster = Cluster()
    cluster.peers = [Broken("a.edu", Home(Path("/fed/a.edu")))]
    with pytest.raises(BaseExceptionGroup) as raised:
        await cluster.run(Killer(1, 0))
    assert raised.group_contains(UnavailableError, match="journal")
