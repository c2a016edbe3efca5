"""Medusa's executor, as a peer runs it, for the part `joins`: an epoch file for each result. Its
state is the epoch files of both inputs that the next epoch needs again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import trio

from medusa.engine.language.check import check_query
from medusa.engine.streams.log.epochs import EpochWriter, path_of
from medusa.engine.tasks.execution import Computation
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs, read_after, read_from
from medusa.testnet.bench.bids import AUCTION, BID, JOINS, OTHER, pairs, query_of
from medusa.testnet.bench.systems import WrongAnswerError
from medusa.testnet.bench.systems.medusa import Medusa, main


class MedusaJoins(Medusa):
    """Medusa's executor, for joins."""

    queries: tuple[str, ...] = JOINS

    def run(self, query: str, files: Sequence[Path]) -> None:
        for _ in self.epochs(query, files):
            pass

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        given = {BID.name: BID, AUCTION.name: AUCTION}
        (task,) = plan(query_of(query), {**given, **check_query(query_of(query), given)})
        computation = self._executor.compile(task)
        uptos = [int(file.stem.partition("-")[0]) for file in files]
        made, after = 0, -1
        with tempfile.TemporaryDirectory() as folder:
            for number, upto in enumerate(uptos):
                began = time.perf_counter()
                made += trio.from_thread.run(
                    _compute,
                    *(task, computation, Path(folder), files[: number + 1], uptos, after, upto),
                    trio_token=self._token,
                )
                yield time.perf_counter() - began
                after = upto
        self.state_bytes = _kept(task, files, uptos)
        if made != (right := pairs(query, files)):
            raise WrongAnswerError(f"{query}: {made} pairs, not {right}")


def _kept(task: Task, files: Sequence[Path], uptos: Sequence[int]) -> int:
    """The bytes of the epoch files that the next epoch reads again; a table has each key once, so
    they are the bytes of the folded table."""
    bids, auctions = (
        _since(files, uptos, read_after(task, name, uptos[-1])) for name in task.inputs
    )
    return sum(file.stat().st_size for file in (*bids, *map(_other, auctions)))


def _since(files: Sequence[Path], uptos: Sequence[int], after: int) -> list[Path]:
    return [file for file, upto in zip(files, uptos, strict=False) if upto > after]


def _other(file: Path) -> Path:
    return file.parent / OTHER / file.name


async def _compute(  # noqa: PLR0917 - trio passes by position
    task: Task,
    computation: Computation,
    folder: Path,
    files: Sequence[Path],
    uptos: Sequence[int],
    after: int,
    upto: int,
) -> int:
    """Compute one epoch and write its file; returns its rows."""
    interval = needs(task, after, upto, 0)
    assert interval is not None, "a join has results in each epoch"
    bids, auctions = (
        _since(files, uptos, read_from(task, name, after, interval)) for name in task.inputs
    )
    both = {BID.name: bids, AUCTION.name: [_other(file) for file in auctions]}
    table = (await computation.run(both, after, upto, interval)).table
    writer = EpochWriter(folder, table.schema, compress=False, durable=False)
    writer.write(table)
    writer.finish()
    writer.commit(path_of(folder, after, upto))
    return int(table.num_rows)


if __name__ == "__main__":
    trio.run(main, MedusaJoins)
