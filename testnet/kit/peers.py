"""Real peers on this machine: processes of the `medusa-peer` command, in homes of their own.

Each listens on a free loopback port, unless the opener of the federation gives another way to start
them (`medusa.testnet.cutting` does). Leaving `open_federation`, also by an error or Ctrl-C, leaves
no process behind, and no folder unless it is to be kept.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import psutil
import trio

from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import DeadlineError, InvalidInputError, MedusaError, UnavailableError
from medusa.overlay.listeners import Listeners
from medusa.testnet.kit.patience import STILL_S, while_moving
from medusa.testnet.kit.ports import port_to_keep
from medusa.tools.client.async_client import open_medusa
from medusa.tools.commands.peer.admission import invite
from medusa.tools.commands.peer.joining import join
from medusa.tools.home.addresses import format_address
from medusa.tools.home.folder import Home, Running
from medusa.tools.home.founding import make_peer, make_sibling

PARTICIPANTS: Final = (
    "mit.edu",
    "utah.edu",
    "brown.edu",
    "brandeis.edu",
    "cornell.edu",
    "rice.edu",
    "wisc.edu",
    "uw.edu",
)

CONFIG: Final = '[overlay]\npreset = "local"\n'
"""News spreads as fast as possible with all peers on one machine."""
STOP_S: Final = 60.0
"""Seconds of the machine's time: a peer that is told to stop and logs nothing for so long is
killed. It only writes its last data."""
POLL_S: Final = 0.1
TAIL_LINES: Final = 20


def participant_name(index: int) -> str:
    """The participant of the index-th peer."""
    return PARTICIPANTS[index] if index < len(PARTICIPANTS) else f"lab{index}.example.edu"


@dataclass(frozen=True)
class Launch:
    """How the daemon of one peer is started.

    Attributes:
        listen: the first address to listen on; "": a loopback port that it can keep.
        prefix: a command that runs the program that follows it (`ip netns exec NAME`).
        program: takes the arguments of `medusa-peer`, in its place.
        config: additions to the federation's medusa.toml.
    """

    listen: str = ""
    prefix: tuple[str, ...] = ()
    program: tuple[str, ...] | None = None
    config: str = ""


class Launcher(Protocol):
    """Decides how the peers of a federation are started."""

    async def launch(self, peer: str) -> Launch:
        """How to start the peer of that name; called before its first start.

        Raises:
            UnavailableError: this machine cannot run one more peer.
        """


@dataclass
class Peer:
    """One peer: its home stays, its process comes and goes.

    Attributes:
        log: the output of all its processes, one after the other.
        launch: how its processes are started.
        listen: its address: at the first start the address of `launch`, then the address that it
            got, so that a restarted peer is found.
    """

    participant: str
    home: Home
    log: Path
    launch: Launch = Launch()
    listen: str = field(init=False)
    process: trio.Process | None = None
    running: Running | None = None

    def __post_init__(self) -> None:
        self.listen = self.launch.listen or f"127.0.0.1:{port_to_keep()}"

    @property
    def name(self) -> str:
        """The peer's own name: a participant may have several peers."""
        return self.home.folder.name

    @property
    def id(self) -> str:
        """Its peer id (hex), from its running daemon."""
        assert self.running is not None
        return self.running.peer

    @property
    def pid(self) -> int:
        assert self.process is not None, f"the peer of {self.participant} was not started"
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The end of its log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    async def start(self) -> None:
        """Start its daemon; `ready` waits until it answers."""
        arguments = ["run", "--home", str(self.home.folder), "--listen", self.listen]
        program = self.launch.program or (_installed("medusa-peer"),)
        with self.log.open("ab") as log:
            # its own process group, because Ctrl-C at the terminal is for us, not for the peers
            self.process = await trio.lowlevel.open_process(
                [*self.launch.prefix, *program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running = None

    async def ready(self, still_s: float = STILL_S) -> Running:
        """Wait until its daemon has written its addresses.

        Raises:
            UnavailableError: the daemon ended; the message has the last line of its log.
                DeadlineError: the daemon has not written its addresses, nor logged anything, for
                that time.
        """
        what = f"until the peer of {self.participant} answers"
        async with while_moving(what, partial(self.tail, 1), still_s):
            while not self._says_where():
                if not self.alive:
                    code = self.process.returncode if self.process is not None else None
                    raise UnavailableError(
                        f"the peer of {self.participant} ended with {code}: {self.tail(1)}"
                    )
                await trio.sleep(POLL_S)
        assert self.running is not None
        return self.running

    def _says_where(self) -> bool:
        """Whether its daemon has written its addresses."""
        with contextlib.suppress(MedusaError):
            running = self.home.running()
            # after a kill -9 the last daemon's run.json is still there
            if running.pid == self.pid:
                self.running = running
                self.listen = format_address(running.overlay)
                return True
        return False

    async def stop(self) -> int:
        """SIGTERM, then SIGKILL to all its processes; returns its exit code."""
        assert self.process is not None, f"the peer of {self.participant} was not started"
        if self.alive:
            self.process.terminate()
            with contextlib.suppress(DeadlineError):
                async with while_moving("until it stops", partial(self.tail, 1), STOP_S):
                    await self.process.wait()
        await self.kill_9()
        assert self.process.returncode is not None
        return self.process.returncode

    async def kill_9(self) -> None:
        """Crash it: SIGKILL to it and to all processes in its group."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def restart(self) -> Running:
        """Start the peer again in the same home at the same address, and wait until it answers."""
        if self.alive:
            await self.stop()
        await self.start()
        return await self.ready()

    def children(self, name: str = "java") -> tuple[int, ...]:
        """Process ids of its descendants with that program name (its JVM)."""
        below = psutil.Process(self.pid).children(recursive=True)
        return tuple(child.pid for child in below if child.name() == name)


@dataclass
class Federation:
    """A federation of peers, one for each participant, the first of which founded it.

    Attributes:
        config: medusa.toml of the peers made from now on. configs: other texts of medusa.toml for
            the peers of some participants, by participant.
        links: decides how peers are started, if not as `Launch`'s defaults.
        reports: called with starting peers and admitted participants.
    """

    folder: Path
    peers: list[Peer] = field(default_factory=list)
    config: str = CONFIG
    configs: Mapping[str, str] = field(default_factory=dict)
    links: Launcher | None = None
    reports: Listeners[[str]] = field(default_factory=Listeners)

    async def found(self, participant: str, *, name: str = "testnet") -> Peer:
        """Make the first participant's peer and start it."""
        peer = await self._make(participant, name)
        await peer.start()
        self.reports.notify(f"{participant} starts")
        await peer.ready()
        return peer

    async def admit(self, participant: str) -> Peer:
        """Make a further participant's peer, admitted by the founder, and start it."""
        peer = await self._make(participant)
        sponsor, root = self.peers[0], peer.home.root_certificate
        invited = await trio.to_thread.run_sync(invite, sponsor.home, participant, root)
        assert invited.token is not None, "the founder alone admits"
        await trio.to_thread.run_sync(join, peer.home, invited.token)
        self.reports.notify(f"{participant} is admitted")
        await peer.start()
        return peer

    async def _make(self, participant: str, found: str | None = None) -> Peer:
        home = Home(self.folder / participant)
        await trio.to_thread.run_sync(make_peer, home, participant, found)
        return await self.add(participant, home)

    async def admit_sibling(self, of: Peer, name: str = "") -> Peer:
        """Make another peer of the participant of a running one, start it, and wait for it.

        Args:
            name: the name of the peer; by default the name of its participant with a number.
        """
        home = Home(self.folder / (name or f"{of.participant}-{len(self.peers)}"))
        await trio.to_thread.run_sync(make_sibling, home, of.home)
        peer = await self.add(of.participant, home)
        await peer.start()
        await peer.ready()
        return peer

    async def add(self, participant: str, home: Home) -> Peer:
        """Add a peer whose home is in our folder; it is not started."""
        name = home.folder.name
        launch = Launch() if self.links is None else await self.links.launch(name)
        peer = Peer(participant, home, self.folder / f"{name}.log", launch)
        config = self.configs.get(participant, self.config)
        peer.home.config.write_text(config + launch.config)
        self.peers.append(peer)
        return peer

    async def together(self) -> None:
        """Wait until each peer sees all others running.

        Raises:
            DeadlineError: the peers do not find each other.
        """
        seen: Counter[str] = Counter()

        async def until_sees_all(peer: Peer) -> None:
            async with open_medusa(peer.home.folder) as client:
                while seen[peer.name] < len(self.peers):
                    peers = (await client.status()).peers
                    seen[peer.name] = sum(each.state == "running" for each in peers)
                    await trio.sleep(POLL_S)

        def stands() -> str:
            return ", ".join(f"{name} sees {count}" for name, count in sorted(seen.items()))

        what = "until the peers find each other"
        async with while_moving(what, stands), trio.open_nursery() as nursery:
            for peer in self.peers:
                nursery.start_soon(until_sees_all, peer)

    async def stop(self) -> None:
        """Stop every peer, all at once; kill those that do not end."""
        async with trio.open_nursery() as nursery:
            for peer in self.peers:
                if peer.process is not None:
                    nursery.start_soon(peer.stop)

    def failures(self) -> str:
        """The ends of the logs of the peers that died, or of all when none did."""
        dead = [peer for peer in self.peers if peer.process is not None and not peer.alive]
        shown = dead or self.peers
        return "\n".join(
            f"--- {peer.participant}{' (ended)' if peer in dead else ''}\n{peer.tail()}"
            for peer in shown
            if peer.tail()
        )


@asynccontextmanager
async def open_federation(
    *, keep: bool = False, links: Launcher | None = None
) -> AsyncIterator[Federation]:
    """Open a federation without peers, in a new folder.

    Args:
        keep: keep the folder (homes, logs).
        links: decides how its peers are started, `medusa.testnet.cutting.links` for example.

    Raises:
        MedusaError: the block failed; a note has the ends of the peers' logs.
    """
    folder = Path(tempfile.mkdtemp(prefix="medusa-testnet-"))
    federation = Federation(folder, links=links)
    try:
        with one_error():
            yield federation
    except InvalidInputError:  # a wrong argument of this program, not a fault of the peers
        raise
    except MedusaError as error:
        error.add_note(federation.failures())
        raise
    finally:
        # shielded: a cancelled or interrupted scenario must still end its peers
        with trio.CancelScope(shield=True):
            try:
                await federation.stop()
            finally:
                if not keep:
                    shutil.rmtree(federation.folder, ignore_errors=True)


async def run_command(
    *arguments: str, program: str = "medusa-peer", log: Path | None = None
) -> str:
    """Run one of our commands to its end; returns its standard output.

    Args:
        log: gets its standard error, because warnings are useful.

    Raises:
        UnavailableError: the command failed; the message has its output. DeadlineError: the command
            did not end.
    """
    shown = " ".join((program, *arguments[:2]))
    async with while_moving(f"until `{shown}` ends"):
        done = await trio.run_process(
            [_installed(program), *arguments], capture_stdout=True, capture_stderr=True, check=False
        )
    said = done.stderr.decode(errors="replace").strip()
    if said and log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{shown}: {said}\n")
    if done.returncode:
        raise UnavailableError(f"`{shown}` ended with {done.returncode}: {said}")
    return done.stdout.decode()


def _installed(program: str) -> str:
    """The command of this environment, or the one on PATH."""
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise UnavailableError(f"{program} is not installed: run `make setup`")
    return found
