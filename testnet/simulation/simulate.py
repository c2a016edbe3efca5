"""Runs a manifest in the simulator with one seed, and checks its history."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import trio
from msgspec import Struct

from testnet.simulation.checkers import violations
from testnet.simulation.federation import Federation, Settings
from testnet.simulation.history import (
    Acknowledged,
    History,
    Overdue,
    Paid,
    Received,
    Tentative,
    Violation,
    found,
)
from testnet.simulation.manifest import Manifest
from testnet.simulation.run import run_simulation
from testnet.simulation.scenario import Run
from testnet.simulation.simulated_bed import SimulatedBed
from testnet.simulation.world import PeerFailedError, World
from testnet.virtual.links import LinkModel

ATTEMPT_S: Final = 0.25
"""Seconds before a catalog request is repeated: simulated round trips take some 10 ms and no CPU
time, and a federation with losses mostly waits for this."""

RUN = "run"
"""The check that the run itself came to an end."""


class Result(Struct, frozen=True):
    """The result of one seed.

    Attributes:
        digest: of all events: the same seed gives the same.
        virtual_s, cpu_s: duration in virtual time, and CPU time, seconds.
        rows: acknowledged. epochs: that subscribers got. faults: that were made.
        tentative: tentative tuples that subscribers got.
        receipts: signed by both sides of a contract.
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
        await world.start_all()  # without faults: a peer that has not met anybody retries for long
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
