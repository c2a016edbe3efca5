"""Runs a simulation from its seed to its outcome; with a manifest, checks the outcome against
it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import trio
from msgspec import Struct

from medusa.testnet.simulation.checkers import violations
from medusa.testnet.simulation.determinism import deterministic
from medusa.testnet.simulation.disk import Disk
from medusa.testnet.simulation.federation import Federation, Settings
from medusa.testnet.simulation.history import (
    Acknowledged,
    History,
    Overdue,
    Paid,
    Received,
    Tentative,
    Violation,
    found,
)
from medusa.testnet.simulation.manifest import Manifest
from medusa.testnet.simulation.scenario import Run
from medusa.testnet.simulation.simulated_bed import SimulatedBed
from medusa.testnet.simulation.world import Ground, PeerFailedError, Trace, World
from medusa.testnet.virtual.clock import VirtualTime
from medusa.testnet.virtual.links import LinkModel
from medusa.testnet.virtual.network import Network

MEMORY_DISK: Final = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it
"""The folder for homes, in memory, if this machine has it: the cost of a real disk is no part of a
simulation."""

PREFIX: Final = "medusa-simulation-"

YOUNG_S: Final = 60.0
"""Seconds for which a folder without a lock is not removed: its owner may be about to lock it."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed after the block. It is locked, until its owner ends in any way."""
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
    """No event will ever come, or events come without any passing of time."""


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation.

    Attributes:
        digest: the digest of every packet that arrived and every line of the trace: equal for equal
            seeds.
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
    """The only error in a group, instead of the group; any other error is returned as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


ATTEMPT_S: Final = 0.25
"""Seconds before a catalog request is repeated: simulated round trips take some 10 ms and no CPU
time, and a federation with losses mostly waits for this."""

RUN = "run"
"""The check that the run itself came to an end."""


class Result(Struct, frozen=True):
    """The result of one seed.

    Attributes:
        digest: the digest of all events: the same seed gives the same digest.
        virtual_s, cpu_s: duration in virtual time, and CPU time, seconds.
        rows: the number of acknowledged rows. epochs: the number of epochs that subscribers got.
            faults: the number of faults that were made.
        tentative: the number of tentative tuples that subscribers got.
        receipts: the number of receipts that both sides of a contract signed.
        trace: a line for each event.
    """

    seed: int
    violations: tuple[Violation, ...] = ()
    digest: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    rows: int = 0
    epochs: int = 0
    faults: int = 0
    tentative: int = 0
    receipts: int = 0
    trace: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.violations


def simulate(manifest: Manifest, seed: int) -> Result:
    """Run a manifest, and check its history."""
    history = History()

    async def main(world: World) -> None:
        own = manifest.settings
        world.jobs = replace(world.jobs, cpu_s=own.job_cpu_s, cpu_row_s=own.row_cpu_s)
        # without faults, because a peer that has met no other retries for long
        await world.start_all()
        calm = manifest.weather
        world.network.links.default = LinkModel(
            *calm.delay_s, loss=calm.loss, duplicate=calm.duplicate, reorder=calm.reorder
        )
        bed = SimulatedBed(world, history)
        with trio.move_on_after(2 * (manifest.workload_s + manifest.settle_s) + 300) as limit:
            await Run(bed, manifest, history)()
        if limit.cancelled_caught:
            history.add(Overdue(bed.now(), "the end of the run"))

    settings = {peer: settings_of(manifest, peer) for peer in manifest.peers}
    catalog = {"dht": {"attempt_s": ATTEMPT_S}}
    federation = Federation(manifest.participants, catalog, peer_settings=settings)
    outcome = run_simulation(main, seed, federation)
    wrong = violations(history, manifest)
    if outcome.error is not None:
        wrong.insert(0, _failure(outcome.error))
    acknowledged = {each.poster: each.upto for each in history.of(Acknowledged)}
    return Result(
        seed,
        tuple(wrong),
        outcome.digest,
        outcome.virtual_s,
        outcome.cpu_s,
        rows=sum(acknowledged.values()),
        epochs=sum(1 for _ in history.of(Received)),
        faults=len(manifest.faults),
        tentative=sum(each.rows for each in history.of(Tentative)),
        receipts=_receipts(history),
        trace=outcome.trace,
    )


def settings_of(manifest: Manifest, peer: str) -> Settings:
    """A peer's medusa.toml, by section."""
    own = manifest.settings
    return {
        "overlay": {"preset": own.preset.value},
        "engine": {
            "epoch_s": own.epoch_s,
            "lease_s": own.lease_s,
            "patience_s": own.patience_s,
            "capacity_cores": own.capacities.get(peer, own.capacity_cores),
        },
        "contracts": {
            "trade": own.trade,
            "settle_s": own.settle_s,
            "confirm_s": own.confirm_s,
            "stay_s": own.stay_s,
        },
    }


def _receipts(history: History) -> int:
    """The number of receipts; each is in two ledgers."""
    ledgers = [view.books.accounts for paid in history.of(Paid) for view in paid.state.peers]
    return sum(account.receipts for accounts in ledgers for account in accounts) // 2


def _failure(error: BaseException) -> Violation:
    """The error of a run, innermost first."""
    lines: list[str] = []

    def add(each: BaseException) -> None:
        if isinstance(each, BaseExceptionGroup):
            for inner in each.exceptions:
                add(inner)
        elif isinstance(each, PeerFailedError) and each.__cause__ is not None:
            lines.append(str(each).partition(":")[0])
            add(each.__cause__)
        else:
            lines.append(f"{type(each).__name__}: {each}{_place(each)}")

    add(error)
    return found(RUN, "the run failed", lines)


def _place(error: BaseException) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f" ({at.tb_frame.f_code.co_filename}:{at.tb_lineno})"
