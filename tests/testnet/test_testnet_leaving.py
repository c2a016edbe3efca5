"""Real peers are refused, leave and renew, by commands: the tests check what a person sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S

from medusa.overlay.errors import UnavailableError
from medusa.testnet.kit.peers import Federation, Peer, open_federation, run_command
from medusa.tools.client.blocking import MedusaClient


async def _refused(*arguments: str) -> str:
    with pytest.raises(UnavailableError) as caught:
        await run_command(*arguments)
    return str(caught.value)


async def _members(peer: Peer) -> dict[str, str]:
    roll = json.loads(await run_command("members", "--json", "--home", str(peer.home.folder)))
    return {row["participant"]: row["standing"] for row in roll["members"]}


async def _until(peer: Peer, standing: dict[str, str]) -> None:
    with trio.fail_after(DEADLINE_S):
        while await _members(peer) != standing:  # noqa: ASYNC110 - of other processes
            await trio.sleep(0.2)


@pytest.mark.process
async def test_peers_enter_leave_and_are_refused() -> None:
    async with open_federation() as federation:
        mit = await federation.found("mit.edu")
        utah = await federation.admit("utah.edu")
        await utah.ready()
        sibling = await federation.admit_sibling(utah)
        await _until(mit, {"mit.edu": "founder", "utah.edu": "member"})

        # one peer leaves: its participant's root, which is in another home, signs
        at = ("--home", str(sibling.home.folder))
        assert "--root" in await _refused("leave", "--yes", *at)
        told = await run_command("leave", "--yes", "--root", str(utah.home.folder), "--json", *at)
        assert "mit.edu" in json.loads(told)["told"] or "utah.edu" in json.loads(told)["told"]
        assert not sibling.home.is_locked()
        assert "of utah.edu has left" in await _refused("run", *at)
        told = await _refused("leave", "--yes", "--root", str(utah.home.folder), *at)
        assert "this peer is out of the federation already: peer" in told
        assert "has left" in told
        assert (await _members(mit))["utah.edu"] == "member"

        # the certificate of a running peer is renewed
        with MedusaClient(utah.home.folder) as client:
            before = client.status(federation=False)
            home = ("--home", str(utah.home.folder))
            until = json.loads(await run_command("renew", "--json", *home))["until"]
            assert until > before.at + 300 * 86_400
            assert client.status(federation=False).peers[0].troubles == ()

        await _newcomer_is_refused(federation, mit)

        # the whole participant leaves
        told = await run_command("leave", "--participant", "--yes", *home)
        assert "utah.edu has left, and its peer has stopped; told: mit.edu" in told
        await _until(mit, {"mit.edu": "founder", "utah.edu": "left", "brown.edu": "revoked"})
        assert "utah.edu has left on" in await _refused("run", *home)
        told = await _refused("leave", "--participant", "--yes", *home)
        assert "this peer is out of the federation already: utah.edu has left on" in told


async def _newcomer_is_refused(federation: Federation, mit: Peer) -> None:
    """Revoke the newcomer after it received its token and before it enters: it receives the
    reason."""
    folder = federation.folder / "brown"
    place, at = ("--home", str(folder)), ("--home", str(mit.home.folder))
    await run_command("init", "--participant", "brown.edu", *place)
    root = str(Path(folder) / "root.crt")
    token = (await run_command("invite", "brown.edu", "--root", root, *at)).split()[-1]
    await run_command("revoke", "brown.edu", "--yes", *at)
    said = await _refused("join", token, *place)
    assert "mit.edu refuses this peer: brown.edu has been revoked by mit.edu on" in said
    assert "its name stays taken" in await _refused("invite", "brown.edu", "--root", root, *at)
