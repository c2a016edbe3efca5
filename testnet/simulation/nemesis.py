"""Carries out a schedule of faults, and heals each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import trio

from overlay.errors import MedusaError
from testnet.simulation.faults import Fault
from testnet.simulation.testbed import Testbed


async def run_faults(bed: Testbed, faults: Sequence[Fault]) -> None:
    """Break what the schedule says when it says so; returns when all of it is healed.

    Raises:
        InvalidInputError: the testbed cannot make such a fault.
    """
    start = bed.now()
    async with trio.open_nursery() as nursery:
        for fault in faults:
            nursery.start_soon(partial(_run, bed, fault, start))


async def _run(bed: Testbed, fault: Fault, start: float) -> None:
    await trio.sleep(max(0.0, start + fault.at_s - bed.now()))
    shown = f"{fault}"
    bed.note("fault", shown)
    await bed.inflict(fault)
    await trio.sleep(fault.for_s)
    bed.note("heal", shown)
    while True:
        try:
            await bed.heal(fault)
        except MedusaError as error:
            bed.note("heal", f"{shown}: {error}")
            await trio.sleep(1.0)
        else:
            return
