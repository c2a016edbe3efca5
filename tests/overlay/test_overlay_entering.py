"""A newcomer meets the members: it enters for good, or receives the reason of its refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from watched import Watched

from medusa.overlay.addresses import Address
from medusa.overlay.certificates import der
from medusa.overlay.entering import meet
from medusa.overlay.errors import UntrustedError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.gossip.config import Preset
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.node.node import Overlay, open_overlay
from medusa.overlay.rpc import Service
from medusa.overlay.troubles import Reason

NOW = wall_clock()
DAY = 86_400.0
MIT, UTAH, SECOND = (Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "utah.edu"))
UTAH_PEER = Identity.issue(UTAH, NOW)


@asynccontextmanager
async def running(
    folder: Path,
    identity: Identity,
    membership: Membership,
    bootstrap: tuple[Address, ...] = (),
    events: Events | None = None,
) -> AsyncIterator[Overlay]:
    folder.mkdir()  # noqa: ASYNC240 - of a moment
    config = OverlayConfig(bootstrap=bootstrap, preset=Preset.LOCAL)
    async with open_overlay(
        identity, membership, folder, config, Service(), events=events
    ) as overlay:
        yield overlay


def invited() -> tuple[Membership, Membership]:
    """Return the founder's membership, and the content of utah.edu's token."""
    founder = Membership.found(MIT, NOW, "demo")
    founder.admit(MIT, UTAH.certificate, NOW, NOW + DAY)
    return founder, Membership(founder.charter, founder.chain_of("utah.edu"))


async def test_a_newcomer_met_in_time_has_entered_for_good(tmp_path: Path) -> None:
    founder, told = invited()
    async with running(tmp_path / "mit", Identity.issue(MIT, NOW), founder) as mit:
        meeting = await meet(UTAH_PEER, told, [mit.address, ("127.0.0.1", 1)])
    assert (meeting.met, meeting.refused) == ({"mit.edu"}, [])
    assert list(meeting.silent) == [("127.0.0.1", 1)]
    for view in (founder, told):
        view.authenticate(der(UTAH_PEER.certificate), NOW + 300 * DAY)


async def test_a_peer_that_runs_enters_as_well(tmp_path: Path) -> None:
    founder, told = invited()
    events = Watched()
    async with (
        running(tmp_path / "mit", Identity.issue(MIT, NOW), founder) as mit,
        running(tmp_path / "utah", UTAH_PEER, told, (mit.address,), events),
    ):
        await events.saw("let in utah.edu, met by mit.edu")
        told.authenticate(der(UTAH_PEER.certificate), NOW + 300 * DAY)


async def test_a_refused_peer_receives_the_reason(tmp_path: Path) -> None:
    founder, told = invited()
    founder.withdraw(MIT, "utah.edu", NOW)
    founder.admit(MIT, UTAH.certificate, NOW)
    founder.revoke(MIT, "utah.edu", now=NOW)
    async with running(tmp_path / "mit", Identity.issue(MIT, NOW), founder) as mit:
        meeting = await meet(UTAH_PEER, told, [mit.address])
    assert not meeting.met
    assert not meeting.silent
    (reason,) = meeting.refused
    assert "mit.edu refuses this peer: utah.edu has been revoked by mit.edu on " in reason


async def test_a_newcomer_learns_that_another_root_has_its_name(tmp_path: Path) -> None:
    _, told = invited()
    founder = Membership(told.charter)
    founder.admit(MIT, SECOND.certificate, NOW)
    async with running(tmp_path / "mit", Identity.issue(MIT, NOW), founder) as mit:
        meeting = await meet(UTAH_PEER, told, [mit.address])
    (reason,) = meeting.refused
    assert "mit.edu refuses this peer: it refuses our certificate" in reason
    assert "another root has our name" in reason


async def test_a_running_peer_that_others_refuse_says_so_for_as_long_as_it_lasts(
    tmp_path: Path,
) -> None:
    founder, told = invited()
    told.merge([_entry(founder, told)], NOW)
    known = Membership(founder.charter, told.statements())
    known.revoke(MIT, "utah.edu", now=NOW)
    events = Watched()
    async with (
        running(tmp_path / "mit", Identity.issue(MIT, NOW), known) as mit,
        running(tmp_path / "utah", UTAH_PEER, told, (mit.address,), events) as utah,
    ):
        await events.saw("mit.edu refuses this peer: utah.edu has been revoked")
        assert "revoked by mit.edu" in utah.transport.refusals.reasons["mit.edu"]


def _entry(founder: Membership, told: Membership) -> bytes:
    entry = founder.welcome(Identity.issue(MIT, NOW), "utah.edu", NOW)
    assert entry is not None
    assert not told.tally.has_entered(told.holder("utah.edu"))
    return entry


async def test_an_invitation_that_ended_lets_no_peer_in(tmp_path: Path) -> None:
    founder, told = invited()
    later = NOW + 2 * DAY
    folder = tmp_path / "mit"
    folder.mkdir()
    peer = Identity.issue(MIT, NOW)
    config = OverlayConfig(preset=Preset.LOCAL)
    async with open_overlay(peer, founder, folder, config, Service(), wall=lambda: later) as mit:
        meeting = await meet(UTAH_PEER, told, [mit.address])  # the newcomer's clock is behind
    (reason,) = meeting.refused
    assert "utah.edu did not enter before its invitation ended on" in reason
    with pytest.raises(UntrustedError, match="it needs another"):
        told.authenticate(der(UTAH_PEER.certificate), later)


async def test_a_leaving_peer_notifies_its_connections_and_is_refused_from_then_on(
    tmp_path: Path,
) -> None:
    founder, told = invited()
    events = Watched()
    async with (
        running(tmp_path / "mit", Identity.issue(MIT, NOW), founder) as mit,
        running(tmp_path / "utah", UTAH_PEER, told, (mit.address,), events) as utah,
    ):
        await events.saw("let in utah.edu")
        await utah.transport.dial(mit.address)
        goodbye = Membership(told.charter, told.statements()).revoke(UTAH, "utah.edu", now=NOW)
        assert await utah.learn_and_notify([goodbye]) == ("mit.edu",)
        assert founder.participants() == ("mit.edu",)
        with pytest.raises(UntrustedError, match=r"mit\.edu refuses this peer: utah\.edu has left"):
            await utah.transport.dial(mit.address)
        first = utah.troubles.now()[0]
        assert first.reason is Reason.REFUSED
        assert first.sentence.startswith("the others refuse this peer: utah.edu has left on")
