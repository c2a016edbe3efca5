"""The demonstration from its options to its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio

from engine.streams.corrections import Corrections
from overlay.concurrency import one_error
from overlay.errors import MedusaError
from testnet.cutting.links import open_links
from testnet.partition.cast import Cast
from testnet.partition.chain import sources
from testnet.partition.judge import figures
from testnet.partition.observations import Observations
from testnet.partition.play import Play
from testnet.partition.plot import write_plot
from testnet.partition.result import PartitionResult
from testnet.peers import open_federation
from testnet.stages import Stages


@dataclass(frozen=True)
class Options:
    """
    Attributes:
        seconds: of the split. bound_s: X. chain: servers one after the other.
        missing: share of the readings on the far side.
        replica: the poster's demonstration: A, B and C, and a replica R of B.
        netns: cut cables between network namespaces, not sockets.
        keep: leave homes and logs behind. plot: where the picture goes, if anywhere.
    """

    seconds: float = 10.0
    bound_s: float = 2.0
    chain: int = 2
    corrections: Corrections = Corrections.UNDO
    missing: float = 1 / 3
    replica: bool = False
    netns: bool = False
    keep: bool = False
    plot: Path | None = None


async def run_partition(options: Options, stages: Stages) -> PartitionResult:
    """
    Raises:
        InvalidInputError: the picture cannot be written.
        MedusaError: the run failed; a note has the ends of the peers' logs.
    """
    run = Observations()
    async with (
        open_links(netns=options.netns) as links,
        open_federation(keep=options.keep, links=links) as federation,
    ):
        play = Play(
            Cast(federation, options.chain, replica=options.replica),
            links,
            run,
            stages,
            sources=sources(options.missing, replica=options.replica),
            bound_s=options.bound_s,
            seconds=options.seconds,
            corrections=options.corrections,
        )
        try:
            with one_error():
                await play.run()
        except MedusaError as error:
            error.add_note(federation.failures())
            raise
        folder = str(federation.folder)
    result = figures(
        run,
        seconds=options.seconds,
        bound_s=options.bound_s,
        chain=options.chain,
        corrections=options.corrections,
        missing=options.missing,
        netns=options.netns,
    )
    if options.plot is not None:
        await trio.to_thread.run_sync(write_plot, options.plot, run, result)
    return msgspec.structs.replace(
        result,
        plot=None if options.plot is None else str(options.plot),
        folder=folder if options.keep else None,
    )
