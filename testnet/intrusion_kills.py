"""The intrusion query while its peers are killed, and what a user notices of it: nothing wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgspec import structs

from testnet.board import Board
from testnet.intrusion import Options, Result, run_intrusion
from testnet.kills import Killer

FIRST_S: Final = 60.0
"""Posting is stretched over so many seconds for the first answers, which the kills wait for, and"""
SECONDS_A_KILL: Final = 10.0
"""for each kill: more than it takes on a machine that has other things to do, so that connections
flow through all of them. What is left after the last kill is posted at once."""


class KillsResult(Result, frozen=True, kw_only=True):
    """A run with kills.

    Attributes:
        exact: answers equal the batch run's, and there are no faults.
        restarts: processes started for those killed.
        longest_pause_seconds: the longest that an answer's boundary stood still.
        longest_afterlife_seconds: the longest that a JVM went on after its peer was killed.
        faults: what should not have happened: epochs received out of order, JVMs that did not end,
            a standby that did not take over.
        history: who was killed and started, with the seconds of the run.
        victims: the peers that were killed, one for each kill.
    """

    kills: int
    restarts: int
    longest_pause_seconds: float
    longest_afterlife_seconds: float
    faults: tuple[str, ...]
    history: tuple[str, ...]
    victims: tuple[str, ...]


async def run_intrusion_kills(options: Options, kills: int, board: Board) -> KillsResult:
    """`run_intrusion` with so many kills, drawn from the options' seed.

    Raises:
        as `run_intrusion`.
    """
    killer = Killer(kills, options.seed)
    if options.stretch_s is None:
        options = replace(options, stretch_s=FIRST_S + kills * SECONDS_A_KILL)
    try:
        result = await run_intrusion(options, board, killer)
    except Exception as error:
        error.add_note("\n".join(("--- kills", *killer.log)))
        raise
    faults = (*killer.faults, *board.history.faults())
    posting = board.zero + board.stages["post"].began
    plain = {**structs.asdict(result), "exact": result.exact and not faults}
    return KillsResult(
        **plain,
        kills=board.toll.kills,
        restarts=board.toll.restarts,
        longest_pause_seconds=round(board.history.longest_pause_s(posting), 3),
        longest_afterlife_seconds=round(killer.remains.longest_s, 3),
        faults=faults,
        history=tuple(killer.log),
        victims=tuple(killer.victims),
    )
