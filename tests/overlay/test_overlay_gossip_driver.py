"""Gossip between whole overlays on loopback: crash, leave, restart, revocation, digests."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S

from medusa.overlay.addresses import Address
from medusa.overlay.connection import Connection, KeepAlive
from medusa.overlay.datagrams import Channel
from medusa.overlay.errors import BrokenError, DamagedError, InvalidInputError, MedusaError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.gossip.config import GossipConfig, Preset
from medusa.overlay.gossip.events import Health
from medusa.overlay.gossip.incarnation import FILE, load_incarnation, next_incarnation
from medusa.overlay.gossip.messages import PING_METHOD, Here, Knock
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import save_membership
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.node.node import DATA, Overlay, open_overlay
from medusa.overlay.rpc import Caller, Service
from medusa.overlay.transport import REPORT_FAILURES
from medusa.overlay.troubles import Reason

NOW = wall_clock()
OWNERS = tuple(Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "brown.edu", "ibm.com"))
ALIVE, DEAD, LEFT = Health.ALIVE, Health.DEAD, Health.LEFT

"""Time limits in seconds for a busy machine; a stricter limit stands where a test needs it."""


class KilledError(Exception):
    """Ends a peer without a message."""


class Peer:
    def __init__(self, folder: Path, root: Root, membership: Membership) -> None:
        self.folder = folder
        folder.mkdir()
        self.identity = Identity.issue(root, NOW)
        self.membership = membership
        save_membership(folder, membership, NOW)
        self.overlay: Overlay
        self.stop = trio.Event()
        self.kill = trio.Event()
        self.ended = trio.Event()

    @property
    def id(self) -> bytes:
        return self.identity.peer_id

    async def run(
        self, bootstrap: tuple[Address, ...], *, task_status: trio.TaskStatus[None]
    ) -> None:
        self.stop, self.kill, self.ended = trio.Event(), trio.Event(), trio.Event()
        config = OverlayConfig(bootstrap=bootstrap, preset=Preset.LOCAL)
        try:
            async with (
                open_overlay(
                    self.identity, self.membership, self.folder, config, Service()
                ) as self.overlay,
                trio.open_nursery() as nursery,
            ):
                task_status.started()
                nursery.start_soon(self._die)
                await self.stop.wait()
                nursery.cancel_scope.cancel()
        except* KilledError:
            pass
        finally:
            self.ended.set()

    async def _die(self) -> None:
        await self.kill.wait()
        raise KilledError


@asynccontextmanager
async def federation(
    folder: Path, size: int, *, siblings: bool = False
) -> AsyncIterator[tuple[list[Peer], trio.Nursery]]:
    """Give that many peers that know each other; each has an owner of its own, or one owner has
    all."""
    founder = Membership.found(OWNERS[0], NOW)
    for owner in OWNERS[1:]:
        founder.admit(OWNERS[0], owner.certificate, NOW)
    owners = OWNERS[:1] * size if siblings else OWNERS[:size]
    peers = [
        Peer(folder / str(n), owner, Membership(founder.charter, founder.statements()))
        for n, owner in enumerate(owners)
    ]
    async with trio.open_nursery() as nursery:
        bootstrap: tuple[Address, ...] = ()
        for peer in peers:
            await nursery.start(peer.run, bootstrap)
            bootstrap = (peers[0].overlay.address,)
        for peer in peers:
            await until(lambda peer=peer: sum(peer.overlay.gossip.counts().values()) == size - 1)
        yield peers, nursery
        for peer in peers:
            peer.stop.set()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - of what several peers believe
            await trio.sleep(0.01)


async def believed(peers: list[Peer], of: Peer, health: Health) -> None:
    for peer in peers:
        if peer is not of:
            await until(lambda peer=peer: peer.overlay.gossip.health(of.id) is health)


async def test_a_killed_peer_is_dead_for_all_in_no_time(tmp_path: Path) -> None:
    async with federation(tmp_path, 4) as (peers, _):
        one, victim = peers[0], peers[3]
        changes: list[tuple[bytes, Health]] = []
        one.overlay.gossip.changed.add(lambda *change: changes.append(change))
        connection = await one.overlay.connect(victim.id)
        victim.kill.set()
        await connection.closed.wait()
        broke = trio.current_time()
        await believed(peers[:3], victim, DEAD)
        config = GossipConfig.of(Preset.LOCAL)
        # on an idle machine this takes the 0.3 s of the config; it must never take the second after
        # which a peer that is only silent is dead
        assert trio.current_time() - broke < 4 * (config.probe_timeout_s + config.gone_s)
        assert changes[-1] == (victim.id, DEAD)
        assert {peer for peer, _ in changes} == {victim.id}


async def test_a_sibling_that_does_not_answer_is_a_trouble_until_it_is_back(tmp_path: Path) -> None:
    async with federation(tmp_path, 3, siblings=True) as (peers, nursery):
        one, two, three = peers
        troubles = one.overlay.troubles
        assert troubles.now() == ()
        two.kill.set()
        await believed([one, three], two, DEAD)
        (found,) = troubles.now()
        assert found.reason is Reason.SIBLING_AWAY
        assert found.thing == f"our peer {two.id.hex()}"
        assert found.what.startswith("at 127.0.0.1:")
        await two.ended.wait()
        await nursery.start(two.run, (one.overlay.address,))
        await until(lambda: troubles.now() == ())
        two.stop.set()  # the peer stops in order: it announces its end
        await believed([one, three], two, LEFT)
        assert troubles.now() == ()


async def test_a_sibling_whose_datagrams_alone_arrive_is_a_trouble(tmp_path: Path) -> None:
    async with federation(tmp_path, 2, siblings=True) as (peers, _):
        one, two = peers
        for peer in peers:  # no datagram passes between the two peers
            peer.overlay.transport._address_of = lambda _: [("127.0.0.1", 1)]
        one.overlay.transport.drop(two.id)
        await until(lambda: not two.overlay.transport.connections())
        link = one.overlay.transport._links.to(two.id)
        while link.backoff.failures < REPORT_FAILURES:  # the peer itself dials as well
            assert one.overlay.troubles.now() == ()
            link.retry_at = 0.0
            with pytest.raises(MedusaError):
                await one.overlay.connect(two.id)
        (found,) = one.overlay.troubles.now()
        assert found.reason is Reason.SIBLING_AWAY
        assert "127.0.0.1:1" in found.what


async def test_a_silent_peer_is_dead_and_its_connection_dropped(tmp_path: Path) -> None:
    """Its port accepts connections and its connections stay open, but it sends nothing any more."""
    async with federation(tmp_path, 3) as (peers, _):
        one, victim = peers[0], peers[2]
        connection = await one.overlay.connect(victim.id)
        gossip = victim.overlay.gossip
        gossip.close()
        victim.overlay.service._methods.clear()  # nor does the peer answer calls
        await believed(peers[:2], victim, DEAD)
        await connection.closed.wait()
        # dialling is still possible; otherwise the peer could never return
        await one.overlay.connect(victim.id)


async def test_a_peer_that_stops_has_left_and_is_alive_again_after_a_restart(
    tmp_path: Path,
) -> None:
    async with federation(tmp_path, 3) as (peers, nursery):
        seen: list[Health] = []
        for peer in peers[:2]:
            peer.overlay.gossip.changed.add(lambda _, health: seen.append(health))
        before = peers[2].overlay.gossip.incarnation
        peers[2].stop.set()
        await peers[2].ended.wait()
        await believed(peers[:2], peers[2], LEFT)
        await nursery.start(peers[2].run, (peers[0].overlay.address,))
        await believed(peers, peers[2], ALIVE)
        assert peers[2].overlay.gossip.incarnation > before
        assert set(seen) == {LEFT, ALIVE}
        await until(lambda: peers[2].overlay.gossip.counts()[ALIVE] == 2)


async def test_a_killed_peer_that_restarts_is_alive_again(tmp_path: Path) -> None:
    async with federation(tmp_path, 3) as (peers, nursery):
        peers[2].kill.set()
        await peers[2].ended.wait()
        await believed(peers[:2], peers[2], DEAD)
        await nursery.start(peers[2].run, (peers[0].overlay.address,))
        await believed(peers, peers[2], ALIVE)


async def test_digests_reach_all_peers_and_newer_ones_replace_them(tmp_path: Path) -> None:
    async with federation(tmp_path, 3) as (peers, _):
        said: list[tuple[bytes, bytes]] = []
        peers[0].overlay.gossip.digest_changed.add(
            lambda peer, content: said.append((peer, content))
        )
        for version in (b"first", b"second"):
            for peer in peers:
                peer.overlay.gossip.publish(peer.identity.participant.encode() + version)
            expected = {p.id: p.identity.participant.encode() + version for p in peers}
            for peer in peers:
                await until(
                    lambda peer=peer, expected=expected: peer.overlay.gossip.digests == expected
                )
        of_two = [content for peer, content in said if peer == peers[1].id]
        name = peers[1].identity.participant.encode()
        assert of_two == [name + b"first", name + b"second"]
        with pytest.raises(InvalidInputError, match="at most 512"):
            peers[0].overlay.gossip.publish(bytes(513))


async def test_a_revoked_peer_has_left(tmp_path: Path) -> None:
    async with federation(tmp_path, 3) as (peers, _):
        other = Membership(peers[0].membership.charter, peers[0].membership.statements())
        statement = other.revoke(OWNERS[0], "brown.edu", now=NOW)
        peers[0].overlay.learn([statement])
        await believed(peers[:2], peers[2], LEFT)
        await until(lambda: sum(peers[0].overlay.gossip.counts().values()) == 1)


async def test_rubbish_is_refused_and_counted(tmp_path: Path) -> None:
    async with federation(tmp_path, 2) as (peers, _):
        one, two = (peer.overlay for peer in peers)
        before = two.datagrams.counters.rejected
        one.datagrams.send(Channel.GOSSIP, two.address, b"rubbish")
        await until(lambda: two.datagrams.counters.rejected == before + 1)
        assert two.gossip.health(one.identity.peer_id) is ALIVE
        assert dataclasses.asdict(two.gossip.counters)["forged"] == 0


class StuckStream(trio.abc.Stream):
    """A stream that transports no bytes."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.sleep_forever()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_connection_that_does_not_forward_is_evidence(autojump_clock: object) -> None:
    doubts: list[float] = []
    connection = Connection(
        StuckStream(),
        Caller("mit.edu", None),
        dialled=True,
        service=Service(),
        events=Events(),
        keep_alive=KeepAlive(ping_s=10.0, dead_after_s=30.0, stall_s=1.0),
    )
    connection.doubted.add(lambda: doubts.append(trio.current_time() - started))
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await trio.sleep(9.0)
        assert doubts == []  # there is nothing to write yet
        await trio.sleep(4.0)
        assert 10.0 < doubts[0] <= 12.1  # the keep-alive cannot be sent
        await connection.closed.wait()
        assert doubts[-1] == pytest.approx(trio.current_time() - started)


async def test_calls_over_a_connection_given_up_fail_as_if_it_broke(tmp_path: Path) -> None:
    async with federation(tmp_path, 2) as (peers, _):
        one, two = (peer.overlay for peer in peers)
        connection = await one.connect(two.identity.peer_id)
        one.transport.give_up(two.identity.peer_id, "it is dead")
        with pytest.raises(BrokenError, match="it is dead"):
            await connection.call(PING_METHOD, Knock(), Here)


def test_incarnations_never_repeat(tmp_path: Path) -> None:
    first = next_incarnation(tmp_path, 1000)
    assert first == 1000
    again = next_incarnation(tmp_path, 10)  # the clock was set back
    assert again > first + 999  # the incarnations held in reserve may have been used
    assert next_incarnation(tmp_path, 10**9) == 10**9
    assert load_incarnation(tmp_path) > 10**9


def test_incarnations_of_a_clock_that_was_far_ahead_are_not_continued(tmp_path: Path) -> None:
    """The others did not believe these incarnations, and would not believe the next ones."""
    now = 1_800_000_000 * 10**6
    ahead = next_incarnation(tmp_path, now + 100 * 86_400 * 10**6)
    assert next_incarnation(tmp_path, now) == now
    assert load_incarnation(tmp_path) < ahead
    a_little = next_incarnation(tmp_path, now + 300 * 10**6)
    assert next_incarnation(tmp_path, now) > a_little


@pytest.mark.parametrize("text", ["", "x", "-1", "1" * 30, "9" * 100, "²"])
def test_a_damaged_file_of_incarnations_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(DamagedError, match=f"{FILE} is damaged"):
        next_incarnation(tmp_path, 1)


async def test_the_incarnation_is_kept_with_the_peer_table(tmp_path: Path) -> None:
    async with federation(tmp_path, 1) as (peers, _):
        gossip = peers[0].overlay.gossip
        assert load_incarnation(peers[0].folder / DATA) > gossip.incarnation
