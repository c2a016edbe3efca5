"""One simulation from its seed to its outcome."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import trio

from testnet.simulation.determinism import deterministic
from testnet.simulation.disk import Disk
from testnet.simulation.federation import Federation
from testnet.simulation.trace import Trace
from testnet.simulation.world import Ground, World
from testnet.virtual.clock import VirtualTime
from testnet.virtual.network import Network

MEMORY_DISK: Final = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it
"""If it exists, homes are in memory: the cost of a real disk is no part of a simulation."""

PREFIX: Final = "medusa-simulation-"

YOUNG_S: Final = 60.0
"""Seconds for which a folder without a lock is not removed: its owner may be about to lock it."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder, removed after the block. It is locked; the lock ends with its owner, however that
    ends."""
    within = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=within))
    try:
        with _opened(folder) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(within: Path = MEMORY_DISK) -> list[Path]:
    """Remove the folders of simulations whose process is gone; returns them."""
    swept = []
    for folder in sorted(within.glob(f"{PREFIX}*")):
        with suppress(OSError), _opened(folder) as descriptor:
            status = os.fstat(descriptor)
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < YOUNG_S:
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
    return swept


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


LIMIT_S: Final = 3600.0
"""Virtual seconds after which a scenario counts as hanging."""


class StalledError(Exception):
    """No event will ever come, or events come without time passing."""


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation.

    Attributes:
        digest: of every packet that arrived and every line of the trace: equal for equal seeds.
        trace: the events. packets: number of arrived packets.
        virtual_s, cpu_s: duration in the simulation's time, and CPU seconds.
        error: raised by the scenario or a peer; None: there was none.
    """

    seed: int
    digest: str
    trace: tuple[str, ...]
    packets: int
    virtual_s: float
    cpu_s: float
    error: BaseException | None


def run_simulation(
    main: Callable[[World], Awaitable[None]],
    seed: int,
    federation: Federation,
    *,
    limit_s: float = LIMIT_S,
) -> Outcome:
    """Run `main` on a newly built federation; when it returns, all peers are stopped."""
    started = time.process_time()
    virtual = VirtualTime()
    network = Network(virtual, Random(f"{seed} network"))
    disk = Disk(Random(f"{seed} disk"))
    error: BaseException | None = None

    async def scenario(folder: Path, trace: Trace) -> None:
        network.enable()
        async with trio.open_nursery() as nursery:
            virtual.stalls.add(lambda: nursery.cancel_scope.cancel("stalled"))
            ground = Ground(folder, virtual, disk, network, trace)
            with trio.fail_after(limit_s):
                await main(World(seed, federation, ground, nursery))
            nursery.cancel_scope.cancel()

    with scratch_folder() as folder:
        trace = Trace(lambda: virtual.elapsed, network.digest_text, str(folder))
        try:
            with deterministic(seed, virtual, disk), trace.hearing_peers():
                trio.run(scenario, folder, trace, clock=virtual.clock, strict_exception_groups=True)
        except Exception as raised:  # noqa: BLE001 - the error is the simulation's result
            error = _only(raised)
            trace.add("error", repr(error))
    if error is None and virtual.stalled:
        error = StalledError(virtual.stalled)
    return Outcome(
        seed,
        network.digest,
        tuple(trace.lines),
        network.packets,
        virtual.elapsed,
        time.process_time() - started,
        error,
    )


def _only(error: BaseException) -> BaseException:
    """The error itself, if a group has only that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
