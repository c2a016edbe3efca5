"""One simulation from its seed to its outcome."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import trio

from testnet.simulation.clock import VirtualTime
from testnet.simulation.determinism import deterministic
from testnet.simulation.disk import Disk
from testnet.simulation.federation import Federation
from testnet.simulation.network import Network
from testnet.simulation.scratch import scratch_folder
from testnet.simulation.trace import Trace
from testnet.simulation.world import World

LIMIT_S: Final = 3600.0
"""Virtual seconds after which a scenario is taken to hang."""


class StalledError(Exception):
    """Nothing will ever happen again, or things happen without time passing."""


@dataclass(frozen=True)
class Outcome:
    """What a simulation gave.

    Attributes:
        digest: of every packet that arrived and every line of the trace: equal for equal seeds.
        trace: what happened. packets: how many arrived.
        virtual_s, cpu_s: what it took, in the simulation's time and in ours.
        error: what the scenario or a peer raised; None: all went well.
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
    watch: Callable[[str], None] | None = None,
) -> Outcome:
    """Run `main` on a federation that is built first; when it returns, all peers are stopped.

    Args:
        watch: told of every packet that arrives, one line each.
    """
    with scratch_folder() as folder:
        return _run_in(folder, main, seed, federation, limit_s, watch)


def _run_in(  # noqa: PLR0917
    folder: Path,
    main: Callable[[World], Awaitable[None]],
    seed: int,
    federation: Federation,
    limit_s: float,
    watch: Callable[[str], None] | None,
) -> Outcome:
    started = time.process_time()
    virtual = VirtualTime()
    network = Network(virtual, Random(f"{seed} network"))
    disk = Disk(Random(f"{seed} disk"))
    trace = Trace(lambda: virtual.elapsed, network.digest_text, str(folder))
    if watch is not None:
        told = watch
        network.watch = lambda *packet: told(
            f"{virtual.elapsed:12.6f}  " + " ".join(str(each) for each in packet)
        )
    error: BaseException | None = None

    async def scenario() -> None:
        network.enable()
        async with trio.open_nursery() as nursery:
            virtual.on_stall = lambda: nursery.cancel_scope.cancel("stalled")
            world = World(
                seed=seed,
                federation=federation,
                folder=folder,
                time=virtual,
                disk=disk,
                network=network,
                trace=trace,
                nursery=nursery,
            )
            with trio.fail_after(limit_s):
                await main(world)
            nursery.cancel_scope.cancel()

    try:
        with deterministic(seed, virtual, disk), trace.hearing_peers():
            trio.run(scenario, clock=virtual.clock, strict_exception_groups=True)
    except Exception as raised:  # noqa: BLE001 - it is what the simulation has found
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
    """The error itself, where a group holds nothing else."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
