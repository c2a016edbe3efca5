"""Peers as processes are started, awaited, stopped and killed, whatever happens meanwhile. A
stand-in for `medusa-peer run` keeps the contract of that command and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio
from engine_peers import until

from medusa.overlay.errors import DeadlineError, UnavailableError
from medusa.testnet.kit import peers
from medusa.testnet.kit.peers import (
    Federation,
    Peer,
    open_federation,
    participant_name,
    run_command,
)
from medusa.tools.home.folder import Home

STAND_IN = """#!{python}
import os, pathlib, signal, subprocess, sys
sys.path.insert(0, {root!r})
command, *rest = sys.argv[1:]
if command == "run":
    options = dict(zip(rest[::2], rest[1::2]))
    from medusa.tools.home.folder import Home, Running
    home = Home(pathlib.Path(options["--home"]))
    mode = (home.folder / "mode").read_text() if (home.folder / "mode").exists() else ""
    print("mode", mode or "normal", flush=True)
    if mode == "broken":
        sys.exit("cannot start: the port is taken")
    if mode == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if mode == "parent":
        subprocess.Popen(["sleep", "600"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with home.lock():
        if mode != "silent":
            port = int(options["--listen"].rpartition(":")[2]) or 4242
            home.write_run(Running(os.getpid(), "p", "00", ("127.0.0.1", port), ("127.0.0.1", 1)))
        while True:
            signal.pause() if mode != "deaf" else signal.sigwait([signal.SIGUSR1])
else:
    sys.exit("what is " + command)
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "medusa-peer"
    root = str(Path(__file__).parents[2])
    script.write_text(STAND_IN.format(python=sys.executable, root=root))
    script.chmod(0o755)
    monkeypatch.setattr(peers, "_installed", lambda program: str(script))
    monkeypatch.setattr(peers, "STOP_S", 1.0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_running(pid: int) -> bool:
    """Whether the process runs: an orphaned and killed one does not, even if init has yet to reap
    it."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def _broken_peer(federation: Federation, mode: str) -> Peer:
    peer = await federation._make("mit.edu")
    (peer.home.folder / "mode").write_text(mode)
    await peer.start()
    return peer


async def test_found_and_admit() -> None:
    said: list[str] = []
    async with open_federation() as federation:
        federation.reports.add(said.append)
        await federation.found("mit.edu")
        utah = await federation.admit("utah.edu")
        await utah.ready()
        assert [peer.participant for peer in federation.peers] == ["mit.edu", "utah.edu"]
        assert all(peer.alive for peer in federation.peers)
        pids = [peer.pid for peer in federation.peers]
    assert said == ["mit.edu starts", "utah.edu is admitted"]
    assert not any(is_alive(pid) for pid in pids)
    assert not federation.folder.exists()


async def test_an_exception_leaves_nothing() -> None:
    with pytest.raises(RuntimeError, match="mine"):  # noqa: PT012 - the block is the point
        async with open_federation() as federation:
            peer = await federation.found("mit.edu")
            raise RuntimeError("mine")
    assert not is_alive(peer.pid)
    assert not federation.folder.exists()


async def test_cancellation_leaves_nothing() -> None:
    """Ctrl-C cancels the scenario so."""
    with trio.CancelScope() as scope:
        async with open_federation() as federation:
            peer = await federation.found("mit.edu")
            scope.cancel()
            await trio.sleep_forever()
    assert not is_alive(peer.pid)


async def test_sigterm_refused_is_sigkill() -> None:
    async with open_federation() as federation:
        peer = await _broken_peer(federation, "deaf")
        await peer.ready()
        assert await peer.stop() == -9


async def test_sigterm_is_enough() -> None:
    async with open_federation() as federation:
        peer = await federation.found("mit.edu")
        assert await peer.stop() == 0


async def test_the_child_processes_of_a_peer_end_with_it() -> None:
    async with open_federation() as federation:
        peer = await _broken_peer(federation, "parent")
        await peer.ready()
        (child,) = peer.children("sleep")
        await peer.kill_9()
    await until(lambda: not is_running(child), "the kernel ends it")


async def test_restart_listens_where_it_did() -> None:
    async with open_federation() as federation:
        peer = await federation.found("mit.edu")
        first = peer.running
        await peer.kill_9()
        assert not peer.alive
        second = await peer.restart()
        assert first is not None
        assert second.overlay == first.overlay
        assert second.pid != first.pid


async def test_a_peer_that_dies_says_why() -> None:
    async with open_federation() as federation:
        peer = await _broken_peer(federation, "broken")
        with pytest.raises(UnavailableError, match="the port is taken"):
            await peer.ready()
        assert "mit.edu (ended)" in federation.failures()


async def test_a_peer_that_never_answers() -> None:
    async with open_federation() as federation:
        peer = await _broken_peer(federation, "silent")
        with pytest.raises(
            DeadlineError, match=r"until the peer of mit\.edu answers: nothing moved"
        ):
            await peer.ready(still_s=0.3)


async def test_keep_leaves_homes_and_logs(tmp_path: Path) -> None:
    async with open_federation(keep=True) as federation:
        peer = await federation.found("mit.edu")
    assert peer.home.config.exists()
    assert peer.tail() == "mode normal"


async def test_the_error_of_a_failed_command_has_its_output() -> None:
    with pytest.raises(UnavailableError, match=r"`medusa-peer dance` ended with 1: what is dance"):
        await run_command("dance")


def test_names_do_not_run_out() -> None:
    assert len({participant_name(index) for index in range(40)}) == 40


def test_tail_of_no_log(tmp_path: Path) -> None:
    assert not Peer("mit.edu", Home(tmp_path), tmp_path / "none").tail()
