"""Draws the life of a stream with replicas under revisions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from revised_epochs import Act
from revising_cluster import Cluster, check

from medusa.engine.evaluation.expressions import Row


async def lived_through(
    done: Sequence[Act], steps: Sequence[tuple[int, int]], history_us: int, lateness_us: int = 0
) -> None:
    with TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), done, history_us, lateness_us)
        await cluster.found()
        try:
            for step in steps:
                await cluster.do(step)
            await cluster.finish()
            check(cluster)
        finally:
            for peer in cluster.peers:
                await peer.close()


def drawn_acts(rng: Random) -> list[Act]:
    """Draw tuples of few keys close together, revisions of these tuples, and a boundary that
    follows."""

    def row(now: int) -> Row:
        key, time = rng.randint(0, 5), rng.randint(now - 5, now + 15)
        return {"a": rng.randint(0, 9), "b": key, "c": rng.choice("xy"), "d": 0.5, "t": time}

    found: list[Act] = []
    for now in range(0, 150, 10):
        found.append(Act("s0", [row(now) for _ in range(rng.randint(0, 4))]))
        kinds = [rng.choice(("DELETION", "REPLACEMENT")) for _ in range(rng.randint(0, 3))]
        found += [Act("s0", [], [(kind, row(now)) for kind in kinds])] if kinds else []
        found.append(Act("s0", promise=now + rng.randint(-9, 3)))
    return found


def act(*times: int, promise: int | None = None) -> Act:
    rows = [{"a": 1, "b": time, "c": "x", "d": 0.5, "t": time} for time in times]
    return Act("s0", rows, promise=promise)


def gone(*keys: int) -> Act:
    return Act("s0", [], [("DELETION", {"b": key}) for key in keys])
