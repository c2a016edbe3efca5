"""The poster's demonstration: a chain of servers loses all its primaries at once, mode by mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from overlay.concurrency import one_error
from overlay.errors import MedusaError
from overlay.events import wall_clock
from testnet.ha.board import HaBoard
from testnet.ha.cast import Cast
from testnet.ha.chain import expected
from testnet.ha.judge import judge
from testnet.ha.observations import Observations, figures
from testnet.ha.play import SHORT, Lengths, Play
from testnet.ha.plot import write_plot
from testnet.ha.result import HaResult, ModeResult
from testnet.ha.traffic import RATE
from testnet.ha.variants import NONE, VARIANTS, Variant
from testnet.peers import open_federation


@dataclass(frozen=True)
class Options:
    """
    Attributes:
        variants: what to run; where there are several, that without secondaries first.
        keep: leave homes and logs behind. plot: where the picture goes, if anywhere.
        short: watch for shorter.
    """

    variants: Sequence[Variant] = VARIANTS
    keep: bool = False
    plot: Path | None = None
    short: bool = False


async def run_ha(options: Options, board: HaBoard) -> HaResult:
    """Run every variant in a federation of its own, and compare.

    Raises:
        InvalidInputError: the picture cannot be written.
        MedusaError: the first run failed; a note has the ends of the peers' logs. Where another one
            fails, the result says so.
    """
    alone = len(options.variants) == 1
    assert alone or options.variants[0] == NONE, "what it costs is more than without secondaries"
    board.planned = options.variants
    folders: list[str] = []
    for variant in options.variants:
        folder = await _run(variant, options, board)
        if options.keep:
            folders.append(folder)
    if options.plot is not None:
        await trio.to_thread.run_sync(write_plot, options.plot, board.runs, board.results)
    return HaResult(
        modes=tuple(board.results),
        checks=judge(board.results),
        rate=RATE,
        seconds=round(board.now, 1),
        plot=None if options.plot is None else str(options.plot),
        folders=tuple(folders),
    )


async def _run(variant: Variant, options: Options, board: HaBoard) -> str:
    """One variant, from nothing to its figures; gives the folder of its peers."""
    run = Observations(variant, began=wall_clock())
    board.begin(run)
    async with open_federation(keep=options.keep) as federation:
        try:
            with one_error():
                lengths = SHORT if options.short else Lengths()
                await Play(Cast(federation), run, board, lengths).run()
        except MedusaError as error:
            error.add_note(federation.failures())
            if variant == options.variants[0]:
                raise
            run.failure = str(error)
        folder = str(federation.folder)
    run.ended = wall_clock()
    board.results.append(await trio.to_thread.run_sync(_figures, run, board.results))
    return folder


def _figures(run: Observations, earlier: Sequence[ModeResult]) -> ModeResult:
    return figures(run, expected(run.posted), earlier[0] if earlier else None)
