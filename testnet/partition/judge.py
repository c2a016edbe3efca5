"""What a split may do to a client, and whether it did no more."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from engine.streams.corrections import Corrections
from engine.tasks.tentative.deadlines import ALPHA
from testnet.folding import Fold
from testnet.partition.chain import Row, expected, rows_in
from testnet.partition.observations import NewTuples, Observations
from testnet.partition.result import Check, PartitionResult

RECONNECT_S: Final = 1.0
"""How long what was cut may take to flow again, seconds."""

REPLICA: Final = "replica"
"""The name of R's peer."""

SMALL: Final = 0.02
"""A share of the input that is small: the difference must be small then, too."""

PER_MISSING: Final = 5
"""Revisions, as a share of the tuples undone otherwise, per share of the input that was missing."""


def figures(
    run: Observations,
    *,
    seconds: float,
    bound_s: float,
    chain: int,
    corrections: Corrections,
    missing: float,
    netns: bool,
) -> PartitionResult:
    """What was seen, counted and judged."""
    fold: Fold[Row] = Fold(corrections, rows_in)
    finals = [fold.heed(heard.change) for heard in run.heard]
    got = Counter(row for final in finals if final is not None for row in final.rows)
    wanted = expected(run.posted, chain)
    duplicates = sum(max(0, count - (row in wanted)) for row, count in got.items())
    losses = sum(row not in got for row in wanted)
    new, corrected_at = run.new_tuples(), run.corrected_at()
    first = next((each.at for each in new if each.tentative), None)
    result = PartitionResult(
        seconds=seconds,
        chain=chain,
        corrections=corrections.value,
        missing=missing,
        netns=netns,
        bound_ms=1e3 * bound_s,
        max_new_tuple_delay_ms_stable=_longest(
            [
                each
                for each in new
                if each.at >= run.steady_at and not run.cut_at <= each.at <= corrected_at
            ]
        ),
        max_new_tuple_delay_ms_failure=_longest(
            [each for each in new if run.cut_at <= each.at < run.healed_at]
        ),
        max_new_tuple_delay_ms_stabilization=_longest(
            [each for each in new if run.healed_at <= each.at <= corrected_at]
        ),
        first_tentative_ms=None if first is None else round(1e3 * (first - run.cut_at), 1),
        tentative=fold.given,
        undone=fold.undone,
        revised=fold.revised,
        undos=fold.undos,
        rec_dones=fold.rec_dones,
        corrected_ms=round(1e3 * (corrected_at - run.healed_at), 1),
        duplicates=duplicates,
        losses=losses,
        exact=not duplicates and not losses,
        expected=len(wanted),
        read_from=tuple(run.read_from),
    )
    return _judged(result)


def _longest(new: list[NewTuples]) -> float:
    return round(1e3 * max((each.delay_s for each in new), default=0.0), 1)


def _judged(run: PartitionResult) -> PartitionResult:
    usual, bound = run.max_new_tuple_delay_ms_stable, run.bound_ms
    checks = [
        Check(
            "the client ends with the stream of a failure-free run",
            run.exact and run.expected > 0,
            f"{run.expected} tuples, {run.duplicates} duplicates, {run.losses} losses",
        )
    ]
    for phase in ("failure", "stabilization"):
        delay: float = getattr(run, f"max_new_tuple_delay_ms_{phase}")
        found = f"{delay:.0f} ms, usually {usual:.0f} ms at most, X = {bound:.0f} ms"
        claim = f"new results within X of the usual during {phase}"
        checks.append(Check(claim, delay <= usual + bound, found))
    if run.read_from:
        stays = run.read_from == (REPLICA, REPLICA)
        claim = "C reads from R from the split on, and stays there"
        checks.append(Check(claim, stays, " then ".join(run.read_from)))
        claim = "the replica hides the split"
        checks.append(Check(claim, run.tentative == 0, f"{run.tentative} tentative tuples"))
    elif run.seconds + RECONNECT_S < ALPHA * bound / 1e3:
        masked = run.tentative == 0 and not run.undos and not run.rec_dones
        claim = "a split shorter than the bound shows nowhere"
        checks.append(Check(claim, masked, f"{run.tentative} tentative tuples"))
    elif run.seconds > bound / 1e3:
        claim = "results go on during the split"
        checks.append(Check(claim, run.tentative > 0, f"{run.tentative} tentative tuples"))
        if run.corrections == Corrections.UNDO:
            once = run.undos == run.rec_dones == 1
            found = f"{run.undos} UNDO, {run.rec_dones} REC_DONE"
            checks.append(Check("one UNDO and one REC_DONE", once, found))
        elif run.missing <= SMALL:
            share = run.revised / max(run.tentative, 1)
            claim = "corrections carry only the difference"
            found = f"{run.revised} revisions for {run.tentative} tentative tuples: {share:.1%}"
            checks.append(Check(claim, share <= PER_MISSING * run.missing, found))
    return msgspec.structs.replace(run, checks=tuple(checks))
