"""A peer whose participant was revoked shows its people the reason, wherever they look."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, make_stream, received, rows, until
from tools_prompt import Prompt

from medusa.overlay.errors import RefusedError
from medusa.tools.commands import command_line
from medusa.tools.commands.peer import admission
from medusa.tools.commands.peer.peer_command import peer
from medusa.tools.home.folder import Home


async def test_people_read_the_reason_and_their_subscriptions_end(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, utah = await cluster.settle("mit.edu"), await cluster.settle("utah.edu")
    evil = await cluster.settle("evil.org")
    await cluster.acquainted(mit, utah, evil)
    async with mit.client() as client:
        stream = await make_stream(client, mit, "events")
        await client.post_event(stream, rows([(1, 1), (2, 2)]))
    at_evil = Prompt(evil.home.folder, capfd)
    async with evil.client() as client:
        subscription = client.subscribe(stream)
        await received(subscription, 1)
        await trio.to_thread.run_sync(admission.revoke, mit.home, "evil.org", None)
        with trio.fail_after(DEADLINE_S), pytest.raises(RefusedError) as refused:
            async for _ in subscription:
                pass
    reason = "evil.org has been revoked by mit.edu on "
    assert f"refuses this peer: {reason}" in str(refused.value)
    assert "next try" not in str(refused.value)
    overlay = evil.up.engine.overlay
    await until(lambda: len(overlay.transport.refusals.reasons) == 2)

    lists = (("list",), ("stream", "list"), ("query", "list"), ("peer", "list"))
    for looked in (*lists, ("stream", "show", stream)):  # the peer shows what it remembers
        code, _, err = await at_evil.outcome(*looked)
        assert code == 0
        assert f"medusa: mit.edu refuses this peer: {reason}" in err, looked
    status = await at_evil("status")
    assert f"mit.edu refuses this peer: {reason}" in status.partition("trouble")[2]
    with trio.fail_after(DEADLINE_S):
        for looked in (("subscribe", stream), ("lookup", stream)):
            assert f"refuses this peer: {reason}" in await at_evil.refused(*looked)
    capfd.readouterr()
    assert await trio.to_thread.run_sync(_run, evil.home.folder, "members") == 0
    assert f"medusa: mit.edu refuses this peer: {reason}" in capfd.readouterr().err

    monkeypatch.setattr("medusa.tools.commands.peer.leaving._stop", lambda *_: None)
    assert await trio.to_thread.run_sync(_run, evil.home.folder, "leave", "--yes") == 1
    told = capfd.readouterr()
    assert "has left" not in told.out
    assert "this peer is out of the federation already: " in told.err
    assert f"mit.edu refuses this peer: {reason}" in told.err


async def test_a_participant_that_does_not_know_its_revocation_does_not_leave(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, evil = await cluster.settle("mit.edu"), await cluster.settle("evil.org")
    await cluster.acquainted(mit, evil)
    overlay = evil.up.engine.overlay
    await until(lambda: _standing(evil.home) == "member")
    await trio.to_thread.run_sync(admission.revoke, mit.home, "evil.org", None)
    await until(lambda: not overlay.transport.connections())
    overlay.transport.refusals.reasons.clear()
    monkeypatch.setattr("medusa.tools.commands.peer.leaving._stop", lambda *_: None)
    leave = ("leave", "--participant", "--yes")
    assert await trio.to_thread.run_sync(_run, evil.home.folder, *leave) == 1
    told = capfd.readouterr()
    assert told.out == ""
    reason = "mit.edu refuses this peer: evil.org has been revoked by mit.edu on "
    assert f"out of the federation already: {reason}" in told.err
    assert _standing(evil.home) == "member", "nothing is changed"


def _standing(home: Home) -> str:
    (row,) = [row for row in admission.members(home).members if row.participant == "evil.org"]
    return row.standing


def _run(home: Path, *arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        command_line.run(peer, (*arguments, "--home", str(home)))
    assert isinstance(left.value.code, int)
    return left.value.code
