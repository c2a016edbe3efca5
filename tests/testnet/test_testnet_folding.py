"""Which tuples are final for a client that follows corrections, and from which boundary on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from medusa.engine.objects.schema import BEGINNING, STIME
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.revisions.corrections import Corrections, corrector
from medusa.testnet.kit.answers import Final, Fold


def epoch(after: int, upto: int, *stimes: int) -> Epoch:
    return Epoch(after, upto, pa.table({STIME: pa.array(stimes, pa.int64())}))


def rows_of(table: pa.Table) -> list[int]:
    return list(table.column(STIME).to_pylist())


def apply(
    how: Corrections, boundary: int, *flow: tuple[bool, Epoch]
) -> tuple[list[Final[int]], Fold[int]]:
    made, fold = corrector(how, boundary), Fold(how, rows_of, None, boundary)
    told = [
        fold.apply(change)
        for tentative, each in flow
        for change in (made.tentative if tentative else made.stable)(each)
    ]
    return [final for final in told if final is not None], fold


@pytest.mark.parametrize("how", list(Corrections))
@pytest.mark.parametrize("tentative", [False, True])
def test_a_fold_claims_nothing_before_the_start_of_the_stream(
    how: Corrections, *, tentative: bool
) -> None:
    before = [(True, epoch(5, 12, 8, 11))] if tentative else []
    finals, fold = apply(how, BEGINNING, *before, (False, epoch(5, 10, 8)))
    assert finals == [Final(5, 10, (8,))]
    assert (fold.boundary, fold.fault) == (10, "")


@pytest.mark.parametrize("how", list(Corrections))
def test_a_fold_from_a_boundary_claims_all_later_tuples(how: Corrections) -> None:
    finals, _ = apply(how, 5, (False, epoch(7, 10, 8)))
    assert finals == [Final(5, 10, (8,))], "what was left out shows"
