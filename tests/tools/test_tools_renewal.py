"""Certificates of peers are renewed by the peer, by hand and off line; the peer warns before they
end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from owner import owner_clients
from tools_prompt import entered
from watched import Watched

from medusa.overlay.certificates import PEER_DAYS, der
from medusa.overlay.clients import open_client, open_client_listener
from medusa.overlay.errors import DecodeError, UntrustedError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.gossip.config import Preset
from medusa.overlay.identity import Identity, Root, certificate_pem, make_request, read_request
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import load_membership
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.node.node import WARN_S, Overlay, open_overlay
from medusa.overlay.rpc import Service
from medusa.overlay.troubles import Reason
from medusa.tools.commands.peer.peer_command import peer
from medusa.tools.daemon.renewal import RENEW_S, Renewal, renew, renew_at_start
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer, make_sibling

NOW = wall_clock()
DAY = 86_400.0
YEAR = PEER_DAYS * DAY


@asynccontextmanager
async def running(
    home: Home,
    wall: Callable[[], float] = wall_clock,
    events: Events | None = None,
    by: tuple[tuple[str, int], ...] = (),
) -> AsyncIterator[Overlay]:
    async with open_overlay(
        Identity.load(home.folder),
        load_membership(home.folder),
        home.folder,
        OverlayConfig(bootstrap=by, preset=Preset.LOCAL),
        Service(),
        events=events,
        wall=wall,
    ) as overlay:
        yield overlay


def made(folder: Path, name: str = "one") -> Home:
    home = Home(folder / name)
    make_peer(home, "mit.edu", "lab")
    return home


def ends(home: Home) -> float:
    return Identity.load(home.folder).expires


async def test_a_peer_renews_its_own_certificate_long_before_it_ends(tmp_path: Path) -> None:
    home = made(tmp_path)
    later = NOW + YEAR - RENEW_S + DAY
    async with running(home, lambda: later) as overlay:
        before = overlay.identity
        monkey = overlay.clock
        monkey.receive("utah.edu", later)  # another participant's clock confirms ours
        Renewal(home, overlay).look()
        assert overlay.identity.peer_id == before.peer_id
        assert overlay.identity.expires == pytest.approx(later + YEAR, abs=2)
        assert ends(home) == overlay.identity.expires
        assert overlay.troubles.now() == ()
        record = overlay.peers.get(before.peer_id)
        assert record is not None
        assert record.expires == overlay.identity.expires


async def test_a_clock_that_no_peer_confirms_renews_nothing(tmp_path: Path) -> None:
    home = made(tmp_path)
    async with running(home, lambda: NOW + YEAR - DAY) as overlay:
        before = overlay.identity.expires
        Renewal(home, overlay).look()
        assert overlay.identity.expires == before


async def test_without_the_root_a_person_is_warned_for_a_month(tmp_path: Path) -> None:
    home = made(tmp_path)
    home.root_key.rename(tmp_path / "kept off line")
    for left, is_warned in ((WARN_S + DAY, False), (WARN_S - DAY, True)):
        events = Events()
        async with running(home, lambda at=NOW + YEAR - left: at, events) as overlay:
            Renewal(home, overlay).look()
            said = [event.text for event in events.recent() if event.level == "warning"]
            assert ["`medusa-peer renew`" in text for text in said] == [True] * is_warned
            found = overlay.troubles.now()
            assert [each.reason for each in found] == [Reason.CERTIFICATE_ENDS] * is_warned
            assert all("in 29 days; `medusa-peer renew`" in each.sentence for each in found)


async def test_connections_stand_and_new_ones_show_the_new_certificate(tmp_path: Path) -> None:
    home, second = made(tmp_path), Home(tmp_path / "two")
    make_sibling(second, home)
    events = Watched()
    async with running(home) as one, running(second, events=events, by=(one.address,)) as two:
        connection = await two.transport.dial(one.address)
        await events.saw(f"found peer {one.identity.name} at")
        async with open_client_listener(
            one.identity,
            owner_clients(b"secret" * 8),
            one.service,
            ("127.0.0.1", 0),
            one.events,
            renewed=one.renewed,
        ) as client_address:
            renew(home, home, NOW + 30)
            Renewal(home, one).look()
            fresh = one.identity.certificate
            await events.saw("found a certificate of peer")
            assert not connection.closed.is_set()
            assert (await two.connect(one.identity.peer_id)) is connection
            connection.close()
            async with open_client(
                client_address, "mit.edu", one.identity.root_certificate, b"secret" * 8
            ) as client:
                assert client.remote == one.identity.name
        record = two.peers.get(one.identity.peer_id)
        assert record is not None
        assert der(record.certificate) == der(fresh)
        shown = await _shown_at(one, two)
        assert shown == der(fresh)


async def _shown_at(one: Overlay, two: Overlay) -> bytes:
    from medusa.overlay.tls import PEER_PROTOCOL, PeerContexts, shake_hands

    stream = await trio.open_tcp_stream(*one.address)
    context = PeerContexts(two.identity).context(two.membership.roots(), server_side=False)
    tls = await shake_hands(stream, context, PEER_PROTOCOL, server_side=False)
    await trio.aclose_forcefully(stream)
    return tls.certificate


async def test_another_peers_certificate_is_not_taken(tmp_path: Path) -> None:
    home, second = made(tmp_path), Home(tmp_path / "two")
    make_sibling(second, home)
    events = Events()
    async with running(home, events=events) as one:
        before = one.identity
        home.peer_certificate.write_bytes(second.peer_certificate.read_bytes())
        Renewal(home, one).look()
        assert one.identity == before
        assert any("could not take" in event.text for event in events.recent())


def test_a_peer_that_starts_with_an_ended_certificate_renews_it(tmp_path: Path) -> None:
    home = made(tmp_path)
    later = NOW + YEAR + DAY
    membership = load_membership(home.folder)
    with pytest.raises(UntrustedError, match=r"expired on .*: `medusa-peer renew` renews it"):
        membership.authenticate(der(Identity.load(home.folder).certificate), later)
    renew_at_start(home, later)
    membership.authenticate(der(Identity.load(home.folder).certificate), later)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return partial(entered, capfd, peer)


def test_renewing_by_hand_and_off_line(tmp_path: Path, run: Run) -> None:
    home, second = made(tmp_path), Home(tmp_path / "two")
    make_sibling(second, home)
    at = ("--home", str(second.folder))
    code, _, err = run("renew", *at)
    assert code == 1
    assert "say where it is with --root HOME" in err
    short = Identity.issue(
        Root.load(home.folder), NOW - 300 * DAY, Identity.load(second.folder).private_key
    )
    second.peer_certificate.write_bytes(certificate_pem(short.certificate))
    assert ends(second) < NOW + 100 * DAY
    assert run("renew", "--root", str(home.folder), *at)[0] == 0
    assert ends(second) > NOW + 300 * DAY
    # the root is kept elsewhere
    second.peer_certificate.write_bytes(certificate_pem(short.certificate))
    asked = tmp_path / "two.csr"
    code, out, _ = run("renew", "--request", str(asked), *at)
    assert (code, "medusa-peer sign" in out) == (0, True)
    assert b"PRIVATE" not in asked.read_bytes()
    code, out, err = run("sign", str(asked), "--home", str(home.folder), "--json")
    assert (code, err) == (0, "")
    signed = json.loads(out)["certificate"]
    assert signed == str(tmp_path / "two.crt")
    assert run("renew", "--install", signed, *at)[0] == 0
    assert ends(second) > NOW + 300 * DAY


def test_certificates_not_signed_or_not_installed_are_refused(tmp_path: Path, run: Run) -> None:
    home, second = made(tmp_path), Home(tmp_path / "two")
    make_sibling(second, home)
    stranger = Home(tmp_path / "utah")
    make_peer(stranger, "utah.edu", None)

    def refused(told: str, *arguments: str) -> None:
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert told in err

    asked = tmp_path / "utah.csr"
    run("renew", "--request", str(asked), "--home", str(stranger.folder))
    refused(
        "of utah.edu, and the root is mit.edu's", "sign", str(asked), "--home", str(home.folder)
    )
    refused(
        f"{home.config}: certificate request: not well formed",
        "sign",
        str(home.config),
        "--home",
        str(home.folder),
    )
    refused("root key is not in this home", "sign", str(asked), "--home", str(second.folder))
    nowhere, empty = tmp_path / "nowhere", tmp_path / "empty"
    empty.mkdir()
    refused(f"{nowhere}: no such folder: say where", "sign", str(asked), "--root", str(nowhere))
    refused(f"{empty}: this folder holds no root.key", "sign", str(asked), "--root", str(empty))
    at = ("--home", str(second.folder))
    wanted = f"peer {Identity.load(second.folder).peer_id.hex()[:8]} of mit.edu"
    refused(
        f"the certificate of a peer of utah.edu; wanted is the certificate of {wanted}",
        *("renew", "--install", str(stranger.peer_certificate), *at),
    )
    for owner, its_home in (("utah.edu", stranger), ("mit.edu", home)):
        refused(
            f"the root certificate of {owner}; wanted is the certificate of {wanted}",
            *("renew", "--install", str(its_home.root_certificate), *at),
        )
    refused(
        f"a request for a certificate; first, where the root's key is: medusa-peer sign {asked}",
        *("renew", "--install", str(asked), *at),
    )
    refused(f"{home.config}: is no certificate in PEM", "renew", "--install", str(home.config), *at)
    refused(
        "certifies another key",
        *("renew", "--install", str(home.peer_certificate), "--home", str(second.folder)),
    )
    old = Identity.issue(
        Root.load(home.folder), NOW - 300 * DAY, Identity.load(second.folder).private_key
    )
    (tmp_path / "old.crt").write_bytes(certificate_pem(old.certificate))
    refused(
        "before the one that is here",
        *("renew", "--install", str(tmp_path / "old.crt"), "--home", str(second.folder)),
    )
    peer_id = Identity.load(second.folder).peer_id.hex()
    run("revoke", "mit.edu", "--peer", peer_id, "--yes", "--home", str(home.folder))
    run("renew", "--request", str(tmp_path / "two.csr"), "--home", str(second.folder))
    refused("was revoked", "sign", str(tmp_path / "two.csr"), "--home", str(home.folder))


ROOT = Root.create("mit.edu", NOW)
REQUEST = make_request(Identity.issue(ROOT, NOW))


@given(st.binary(max_size=200), st.integers(0, len(REQUEST) - 1), st.integers(1, 255))
def test_any_bytes_are_a_request_or_one_error(junk: bytes, at: int, flip: int) -> None:
    assert read_request(REQUEST)[0].participant == "mit.edu"
    damaged = REQUEST[:at] + bytes([REQUEST[at] ^ flip]) + REQUEST[at + 1 :]
    for data in (junk, damaged, REQUEST + junk, b"\n".join([REQUEST, junk]) * 100):
        try:
            name, _ = read_request(data)
        except DecodeError:
            continue
        assert name.participant == "mit.edu"


def test_a_membership_keeps_members_whose_certificates_are_renewed() -> None:
    membership = Membership.found(ROOT, NOW)
    identity = Identity.issue(ROOT, NOW)
    again = Identity.issue(ROOT, NOW + YEAR - DAY, identity.private_key)
    assert again.peer_id == identity.peer_id
    assert membership.authenticate(der(again.certificate), NOW + 2 * YEAR - 2 * DAY)
