"""Whole overlays over real sockets: peers of several participants join, meet, and are revoked."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from owner import owner_clients
from watched import Watched

from medusa.overlay.addresses import Address
from medusa.overlay.datagrams import Channel
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    RefusedError,
    UntrustedError,
)
from medusa.overlay.events import wall_clock
from medusa.overlay.exchange import EXCHANGE, PUSH, Answer, Offer, Push, Pushed
from medusa.overlay.gossip.config import Preset
from medusa.overlay.identity import Identity, Root
from medusa.overlay.invite import decode_invite, encode_invite
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import load_membership, save_membership
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.node.node import Overlay, open_overlay
from medusa.overlay.rpc import Service
from medusa.overlay.transport import open_client, open_client_listener

NOW = wall_clock()
MIT, UTAH, BROWN, EVIL = (
    Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "brown.edu", "evil.org")
)


class Home:
    """One peer's folder, and its overlay run from there."""

    def __init__(self, folder: Path, root: Root, membership: Membership) -> None:
        self.folder = folder
        folder.mkdir()
        self.identity = Identity.issue(root, NOW)
        self.membership = membership
        self.events = Watched()
        save_membership(folder, membership, NOW)

    @asynccontextmanager
    async def run(
        self,
        bootstrap: tuple[Address, ...] = (),
        listen: Address = ("127.0.0.1", 0),
        preset: Preset = Preset.LOCAL,
    ) -> AsyncIterator[Overlay]:
        config = OverlayConfig(listen, bootstrap=bootstrap, preset=preset)
        service = Service()
        async with open_overlay(
            self.identity, self.membership, self.folder, config, service, events=self.events
        ) as overlay:
            yield overlay


@pytest.fixture
def founder(tmp_path: Path) -> Home:
    return Home(tmp_path / "mit", MIT, Membership.found(MIT, NOW, "demo"))


def guest(founder: Home, overlay: Overlay, root: Root) -> tuple[Home, tuple[Address, ...]]:
    """Give a guest that the running founder invited, and that has joined in a home of its own."""
    overlay.learn([founder.membership.admit(MIT, root.certificate, NOW)])
    token = encode_invite(founder.membership, root.participant, [overlay.address])
    invite = decode_invite(token)
    membership = invite.membership(root.participant)
    return Home(founder.folder.parent / root.participant, root, membership), invite.addresses


async def test_tcp_and_udp_share_a_port(founder: Home) -> None:
    async with founder.run() as overlay:
        assert overlay.transport.address == overlay.datagrams.address == overlay.address
        assert overlay.address[1] != 0


async def test_guests_join_and_everyone_learns_everyone(founder: Home) -> None:
    async with founder.run() as one:
        utah, by = guest(founder, one, UTAH)
        async with utah.run(by) as two:
            brown, by = guest(founder, one, BROWN)
            async with brown.run(by) as three:
                overlays, homes = (one, two, three), (founder, utah, brown)
                for home, overlay in zip(homes, overlays, strict=True):
                    await home.events.until(lambda overlay=overlay: len(overlay.peers.all()) == 3)
                    assert overlay.membership.participants() == ("brown.edu", "mit.edu", "utah.edu")
                    for other in overlays:
                        assert overlay.peers.addresses_of(other.identity.peer_id) == (
                            other.address,
                        )
                # guests without prior contact communicate by RPC and by datagram
                connection = await two.connect(three.identity.peer_id)
                assert connection.remote == three.identity.name
                got = trio.Event()
                senders: list[bytes] = []

                def on_hello(sender: bytes, source: Address, payload: bytes) -> None:
                    senders.append(sender)
                    got.set()

                three.datagrams.on(Channel.DHT, on_hello)
                two.datagrams.send(Channel.DHT, three.address, b"hello")
                with trio.fail_after(DEADLINE_S):
                    await got.wait()
                assert senders == [two.identity.peer_id]


async def test_news_does_not_wait_for_the_interval(founder: Home) -> None:
    """Exchanges are half a minute apart, and yet all peers have an admission at once."""
    async with founder.run(preset=Preset.WAN) as one:
        utah, by = guest(founder, one, UTAH)
        async with utah.run(by, preset=Preset.WAN) as two:
            await founder.events.until(lambda: len(one.peers.all()) == 2)
            started = trio.current_time()
            one.learn([founder.membership.admit(MIT, BROWN.certificate, NOW)])
            await utah.events.until(lambda: "brown.edu" in two.membership.participants())
            assert trio.current_time() - started < 0.5 * Preset.WAN.interval_s


async def test_a_revoked_guest_is_out_at_once(founder: Home) -> None:
    async with founder.run() as one:
        utah, by = guest(founder, one, UTAH)
        async with utah.run(by) as two:
            await founder.events.until(lambda: len(one.peers.all()) == 2)
            connection = await one.connect(two.identity.peer_id)
            statement = Membership(one.membership.charter, one.membership.statements()).revoke(
                MIT, "utah.edu", now=NOW
            )
            assert [change.error for change in one.learn([statement])] == [None]
            with trio.fail_after(DEADLINE_S):
                await connection.closed.wait()
            with pytest.raises(UntrustedError, match="has been revoked"):
                await two.transport.dial(one.address)
            with pytest.raises(MedusaError):
                await one.connect(two.identity.peer_id)


async def test_a_revoked_peer_that_no_member_has_refused_yet_does_not_leave(founder: Home) -> None:
    async with founder.run(preset=Preset.WAN) as one:
        utah, by = guest(founder, one, UTAH)
        async with utah.run(by, preset=Preset.WAN) as two:
            await utah.events.until(lambda: len(two.peers.all()) == 2)
            connection = await two.connect(one.identity.peer_id)
            statement = Membership(one.membership.charter, one.membership.statements()).revoke(
                MIT, "utah.edu", now=NOW
            )
            one.learn([statement])
            with trio.fail_after(DEADLINE_S):
                await connection.closed.wait()
            two.transport.refusals.reasons.clear()
            theirs = Membership(two.membership.charter, two.membership.statements())
            leaving = theirs.revoke(UTAH, "utah.edu", now=NOW)
            with pytest.raises(RefusedError, match=r"mit\.edu refuses this peer: .*been revoked"):
                await two.learn_and_notify([leaving])
            assert "utah.edu" in two.membership.participants(), "nothing is changed"


async def test_a_stranger_gets_nowhere(founder: Home, tmp_path: Path) -> None:
    async with founder.run() as one:
        # the stranger believes that it was admitted, since it admitted itself
        pretended = Membership(founder.membership.charter)
        strange = Identity.issue(EVIL, NOW)
        with pytest.raises(UntrustedError, match=r"evil\.org is not admitted"):
            async with open_overlay(
                strange, pretended, tmp_path, OverlayConfig(), Service(), events=Watched()
            ):
                pass
        # a peer without the guest's admission refuses the guest, and gives the reason
        other = Membership(founder.membership.charter)
        other.admit(MIT, UTAH.certificate, NOW)
        early = Home(tmp_path / "early", UTAH, other)
        async with early.run((one.address,)):
            await early.events.saw("cannot join by 127.0.0.1")
            assert len(one.peers.all()) == 1
            # once the peer has the admission, the guest enters without help
            one.learn(other.statements())
            await founder.events.until(lambda: len(one.peers.all()) == 2)


async def test_peers_exchange_and_clients_may_not(founder: Home) -> None:
    async with founder.run() as one:
        utah, by = guest(founder, one, UTAH)
        async with utah.run(by) as two:
            connection = await two.transport.dial(one.address)
            with pytest.raises(MedusaError):
                await connection.call(EXCHANGE, Pushed(1), Pushed)
            answer = await connection.call(EXCHANGE, Offer((b"x",), ()), Answer)
            assert answer.wanted_statements == (b"x",)
        token = bytes(32)
        async with (
            open_client_listener(
                founder.identity, owner_clients(token), one.service, ("127.0.0.1", 0), one.events
            ) as at,
            open_client(at, "mit.edu", MIT.certificate, token) as client,
        ):
            for request in (Offer((), ()), Push((), ())):
                method = EXCHANGE if isinstance(request, Offer) else PUSH
                with pytest.raises(NotAuthorisedError):
                    await client.call(method, request, Answer)


async def test_learned_statements_survive_a_restart(founder: Home) -> None:
    async with founder.run() as one:
        utah, by = guest(founder, one, UTAH)
        async with utah.run(by) as two:
            await utah.events.until(lambda: len(two.peers.all()) == 2)
            await founder.events.until(lambda: len(one.peers.all()) == 2)
            founder_at = one.address
            # a third participant is admitted: the guest learns and stores it
            one.learn([founder.membership.admit(MIT, BROWN.certificate, NOW)])
            await utah.events.until(lambda: "brown.edu" in two.membership.participants())
    assert "utah.edu" in load_membership(founder.folder).participants()
    # both restart; the guest has no bootstrap address now and the founder has its old port
    founder.membership = load_membership(founder.folder)
    founder.events = Watched()
    utah.events = Watched()
    async with founder.run(listen=founder_at) as one, utah.run() as two:
        await founder.events.until(
            lambda: one.peers.addresses_of(utah.identity.peer_id) == (two.address,)
        )


async def test_a_command_adds_to_the_file_of_a_running_peer(founder: Home) -> None:
    async with founder.run() as one:
        command = load_membership(founder.folder)
        command.admit(MIT, UTAH.certificate, NOW)
        save_membership(founder.folder, command, NOW)
        # the next learned statement adds the file's statements
        one.learn([founder.membership.admit(MIT, BROWN.certificate, NOW)])
        one.learn([Membership(one.membership.charter).admit(MIT, EVIL.certificate, NOW)])
        await founder.events.until(lambda: "utah.edu" in one.membership.participants())


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
async def test_a_port_in_use(founder: Home, kind: socket.SocketKind) -> None:
    with socket.socket(type=kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConflictError, match=f"127.0.0.1:{port}.* in use") as caught:
            async with founder.run(listen=("127.0.0.1", port)):
                pass
        assert "\n" not in str(caught.value)


async def test_a_port_free_on_tcp_but_not_on_udp_is_not_the_end(
    founder: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from medusa.overlay.node import node

    attempts: list[Address] = []
    real = node.open_datagrams

    @asynccontextmanager
    async def first_taken(
        identity: Identity, peers: object, listen: Address, *rest: object
    ) -> AsyncIterator[object]:
        attempts.append(listen)
        if len(attempts) == 1:
            raise ConflictError("taken")
        async with real(identity, peers, listen, *rest) as datagrams:  # type: ignore[arg-type]
            yield datagrams

    monkeypatch.setattr(node, "open_datagrams", first_taken)
    async with founder.run() as overlay:
        assert overlay.address == attempts[1] == overlay.datagrams.address


async def test_addresses_to_announce(founder: Home) -> None:
    for config, expected in [
        (OverlayConfig(advertise=("192.0.2.7", 99)), ("192.0.2.7", 99)),
        (OverlayConfig(advertise=("192.0.2.7", 0)), ("192.0.2.7", None)),
        (OverlayConfig(listen=("0.0.0.0", 0)), (None, None)),
    ]:
        async with open_overlay(
            founder.identity, founder.membership, founder.folder, config, Service()
        ) as overlay:
            host, port = overlay.address
            assert host not in {"0.0.0.0", ""}
            assert host == (expected[0] or host)
            assert port == (expected[1] or overlay.transport.address[1])
    with pytest.raises(InvalidInputError, match=r"overlay\.advertise"):
        async with open_overlay(
            founder.identity,
            founder.membership,
            founder.folder,
            OverlayConfig(advertise=("nobody.invalid", 1)),
            Service(),
        ):
            pass


async def test_an_expired_peer_does_not_start(founder: Home) -> None:
    with pytest.raises(UntrustedError, match="expired"):
        async with open_overlay(
            founder.identity,
            founder.membership,
            founder.folder,
            OverlayConfig(),
            Service(),
            wall=lambda: NOW + 366 * 86400,
        ):
            pass
