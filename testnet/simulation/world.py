"""A federation of production peers under simulation: started, stopped, killed and asked; its trace.

A peer is a task in the context of its own process on its own machine. A kill acts on the world and
not on the task: at that moment its sockets are gone, and the folder for its next life is copied.
Further actions of the task while it is cancelled have no effect on others.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from medusa.engine.reference.executor import Costs, open_reference
from medusa.overlay.errors import UnavailableError
from medusa.overlay.identity import Identity, parse_peer_id
from medusa.overlay.log import LOGGER
from medusa.testnet.simulation.disk import Disk
from medusa.testnet.simulation.federation import Federation, build, config_of
from medusa.testnet.virtual.clock import VirtualTime
from medusa.testnet.virtual.hosts import Process, inside, running_process
from medusa.testnet.virtual.network import Network
from medusa.tools.client.async_client import PATIENCE_S, AsyncMedusaClient, open_medusa
from medusa.tools.daemon.peer import Peer, open_peer
from medusa.tools.home.folder import Home


class Trace:
    """Lines in the order in which they happened.

    Args:
        elapsed: the virtual time, seconds since the start.
        heard: called with each line.
        folder: removed from texts, because it differs in every run.
    """

    def __init__(
        self, elapsed: Callable[[], float], heard: Callable[[str], None], folder: str
    ) -> None:
        self.lines: list[str] = []
        self._elapsed = elapsed
        self._heard = heard
        self._folder = folder

    def add(self, kind: str, text: str, peer: str = "") -> None:
        """Add a line with the present time."""
        text = text.replace(self._folder, "")
        line = f"{self._elapsed():12.6f}  {peer:<16} {kind:<8} {text}"
        self.lines.append(line)
        self._heard(line)

    @contextmanager
    def hearing_peers(self) -> Iterator[None]:
        """Add a line for every event that a living peer notes."""
        handler, level = _TraceHandler(self), LOGGER.level
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        try:
            yield
        finally:
            LOGGER.setLevel(level)
            LOGGER.removeHandler(handler)


class _TraceHandler(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        process = running_process()
        if process is not None and process.alive:
            self._trace.add(record.levelname.lower(), record.getMessage(), process.name)


DEADLINE_S: Final = 120.0
"""Virtual seconds after which a peer that does not start, stop or meet the others counts as
failed."""

LOOK_S: Final = 0.05
"""Virtual seconds between two looks at conditions without notification."""

DISK_S: Final = 0.002
"""Mean duration of a worker thread's job, virtual seconds: some writes to a disk."""

JOB_S: Final = 0.02
"""Mean duration of an epoch's job, virtual seconds."""


AMID_S: Final = 5.0
"""Virtual seconds to wait until a peer writes something."""

MOST_OPERATIONS: Final = 12
"""Operations on files of which one is chosen: some commits of epochs."""


class PeerFailedError(Exception):
    """A peer ended by an error of its own."""


class _Life:
    """One run of a peer, from its start to its end."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.fsync = False
        self.peer: Peer | None = None
        self.failure: BaseException | None = None
        self.told = trio.Event()
        self.settled = trio.Event()
        self.over = trio.Event()
        self.gone = trio.Event()
        self.scope = trio.CancelScope()


class SimulatedPeer:
    """One peer of the federation, whether or not it runs.

    Attributes:
        name: "mit.edu/0". host: its IP. id: hex. folder: the folder of its present life.
        lives: number of its starts.
    """

    def __init__(self, name: str, host: str, folder: Path) -> None:
        self.name = name
        self.participant = name.rpartition("/")[0]
        self.host = host
        self.lives = 0
        self.life: _Life | None = None
        self.folder = folder
        self._link = folder.parent / "home"
        self._point_to(folder)
        self.id = Identity.load(self.home.folder).peer_id.hex()

    @property
    def home(self) -> Home:
        """The peer's home, at the same path in all its lives."""
        return Home(self._link)

    @property
    def peer(self) -> Peer | None:
        """The peer's composition, while it runs."""
        return None if self.life is None else self.life.peer

    @property
    def up(self) -> bool:
        return self.peer is not None

    def leave_behind(self, disk: Disk, *, power: bool) -> None:
        """Keep the present disk for its next life; tasks of the old life write elsewhere from now
        on."""
        copy = self.folder.with_name(str(int(self.folder.name) + 1))
        disk.snapshot(self.folder, copy, power=power)
        self._point_to(copy)

    def _point_to(self, folder: Path) -> None:
        aside = self._link.with_name("home.next")
        aside.symlink_to(folder.name)
        aside.replace(self._link)
        self.folder = folder


@dataclass(frozen=True)
class Ground:
    """The basis of a world. folder: the folder of all homes. trace: takes events."""

    folder: Path
    time: VirtualTime
    disk: Disk
    network: Network
    trace: Trace


class World:
    """The world that a scenario acts on.

    Attributes:
        rng: the random generator for the scenario's own choices. seed: the seed of all random
            choices.
        network: the weather, by `SimulatedPeer.host`.
        peers: all, by name, running or not.
        trace: the events so far.
        jobs: the costs of a peer's tasks, from its next start on.
    """

    def __init__(
        self, seed: int, federation: Federation, ground: Ground, nursery: trio.Nursery
    ) -> None:
        self.seed = seed
        self.rng = random.Random(f"{seed} scenario")
        self.network = ground.network
        self.trace = ground.trace
        self._time = ground.time
        self._disk = ground.disk
        self._federation = federation
        self._nursery = nursery
        self._clients = 0
        self.jobs = Costs(job_s=JOB_S, rng=random.Random(f"{seed} jobs"))
        hosts = federation.hosts
        self.peers = {
            name: SimulatedPeer(name, hosts[name], home)
            for name, home in build(federation, ground.folder).items()
        }
        ground.disk.sync_all(ground.folder)

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._time.elapsed

    def note(self, kind: str, text: str, peer: str = "") -> None:
        """Add a line to the trace."""
        self.trace.add(kind, text, peer)

    # -- lives

    async def start(self, name: str) -> None:
        """Run a peer that does not run; returns once it answers.

        Raises:
            MedusaError: it cannot start, or was killed meanwhile.
        """
        place = self.peers[name]
        assert place.life is None, f"{name} runs already"
        machine = self.network.machine(place.host)
        machine.up = True
        place.lives += 1
        life = place.life = _Life(Process(machine, name, disk_s=DISK_S), place.folder)
        self.note("start", f"life {place.lives}", name)
        with inside(life.process):
            self._nursery.start_soon(self._live, place, life, name=f"{name} {place.lives}")
        with trio.fail_after(DEADLINE_S):
            await life.settled.wait()
        if life.failure is not None:
            raise life.failure
        if life.peer is None:
            raise UnavailableError(f"{name} was killed while it started")

    async def start_all(self) -> None:
        """Run every peer, and wait until all know one another."""
        for name in self.peers:
            await self.start(name)
        await self.acquainted()

    async def acquainted(self) -> None:
        """Wait until the peers that run know one another's addresses."""

        def met() -> bool:
            running = [place for place in self.peers.values() if place.peer is not None]
            return all(
                place.peer.engine.overlay.peers.get(parse_peer_id(other.id)) is not None
                for place in running
                for other in running
                if other is not place and place.peer is not None
            )

        await self.until(met, "the peers know one another")

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Wait for a condition without notification.

        Raises:
            trio.TooSlowError: the condition has not come true.
        """
        with trio.move_on_after(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - the condition has no notification
                await trio.sleep(LOOK_S)
            return
        raise trio.TooSlowError(f"not within {DEADLINE_S:g} s: {what or condition}")

    async def stop(self, name: str) -> None:
        """End a peer in order, as on SIGTERM."""
        place = self.peers[name]
        life = place.life
        assert life is not None, f"{name} does not run"
        self.note("stop", "", name)
        life.told.set()
        with trio.fail_after(DEADLINE_S):
            await life.over.wait()
        if place.life is life:
            place.life = None

    async def crash(self, name: str, *, power: bool = False) -> None:
        """Kill a peer as by kill -9.

        Args:
            power: its machine as well: it answers nothing until it is started again. With
                `engine.fsync`, unsynced data may be lost; without it a peer promises nothing for
                that case, and here its disk keeps all.
        """
        place = self.peers[name]
        life = place.life
        assert life is not None, f"{name} does not run"
        self._kill(place, life, power)
        await trio.lowlevel.checkpoint()

    async def crash_amid_writing(self, name: str, *, power: bool = False) -> None:
        """As `crash`, at a moment when it renames, syncs, truncates or removes a file; after a
        while without one, at any moment."""
        place = self.peers[name]
        life = place.life
        assert life is not None, f"{name} does not run"
        number = self.rng.randint(1, MOST_OPERATIONS)
        kill = partial(self._kill, place, life, power)
        self._disk.before_operation(life.process, number, kill)
        with trio.move_on_after(AMID_S):
            await life.gone.wait()
        self._disk.forget(life.process)
        if place.life is life:
            kill()

    def _kill(self, place: SimulatedPeer, life: _Life, power: bool) -> None:
        self.note("power" if power else "kill", "", place.name)
        self.network.kill(life.process, power=power)
        place.leave_behind(self._disk, power=power and life.fsync)
        place.life = life.peer = None
        life.scope.cancel()
        life.settled.set()
        life.gone.set()

    async def restart(self, name: str) -> None:
        """Run a peer again, after a crash or a stop; one that runs is stopped first."""
        if self.peers[name].life is not None:
            await self.stop(name)
        await self.start(name)

    def set_clock(self, name: str, *, offset_s: float = 0.0, drift: float = 0.0) -> None:
        """Set the wall clock of a peer's machine to that offset, gaining so much a second."""
        clock = self.network.machine(self.peers[name].host).clock
        clock.set(self.now(), offset_s=offset_s, drift=drift)
        self.note("clock", f"{offset_s:+g} s, drifting {drift:+g}", name)

    async def _live(self, place: SimulatedPeer, life: _Life) -> None:
        execution = partial(open_reference, self.jobs)
        try:
            with life.scope:
                config = config_of(self._federation, place.name, Home(life.folder))
                life.fsync = config.engine.fsync
                async with open_peer(Home(life.folder), config, execution) as peer:
                    life.peer = peer
                    life.settled.set()
                    await life.told.wait()
        except Exception as error:
            if life.process.alive:  # errors of a killed peer's task are ignored
                life.failure = error
                self.note("failed", repr(error), place.name)
                if life.settled.is_set():
                    raise PeerFailedError(f"{place.name}: {error!r}") from error
        finally:
            life.peer = None
            life.settled.set()
            life.over.set()
            life.gone.set()
            if place.life is life:
                place.life = None

    # -- clients

    @asynccontextmanager
    async def client(
        self, name: str, *, producer: str | None = None, patience_s: float = PATIENCE_S
    ) -> AsyncIterator[AsyncMedusaClient]:
        """A client of that peer, on a machine of its own."""
        self._clients += 1
        number = self._clients
        machine = self.network.machine(f"10.1.{number // 250}.{number % 250 + 1}")
        process = Process(machine, f"client {number}")
        home = self.peers[name].home.folder
        with inside(process):
            async with open_medusa(home, producer=producer, patience_s=patience_s) as client:
                yield client
