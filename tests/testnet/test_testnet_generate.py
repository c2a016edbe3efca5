"""The generator gives the same manifest for a seed, in order, with faults of every kind."""

from __future__ import annotations

import itertools

import pyarrow.compute as pc
import pytest

from medusa.testnet.connections.conn import ARROW, REQUIRED
from medusa.testnet.connections.generate import ROWS, SPAN_S, START, generate
from medusa.testnet.connections.query import expected


def test_a_seed_gives_the_same_traces() -> None:
    assert generate(7, networks=2, rows=5_000) == generate(7, networks=2, rows=5_000)
    assert generate(7, networks=2, rows=5_000) != generate(8, networks=2, rows=5_000)


@pytest.mark.parametrize(("seed", "networks"), [(0, 1), (1, 2), (2, 3)])
def test_every_answer_has_rows(seed: int, networks: int) -> None:
    tables = generate(seed, networks)
    answers = expected(tables)
    assert all(len(rows) >= 10 for rows in answers.values())
    assert abs(sum(table.num_rows for table in tables) - ROWS) < ROWS * 0.02
    if networks > 1:
        # The point of a federation: no single network sees these connections.
        alone = {row[:2] for table in tables for row in expected([table])["busy"]}
        assert {row[:2] for row in answers["busy"]} - alone


def test_traces_are_ascending_and_whole() -> None:
    for table in generate(3, networks=2, rows=10_000):
        assert table.schema == ARROW
        ts = table.column("ts").to_pylist()
        assert all(earlier <= later for earlier, later in itertools.pairwise(ts))
        assert ts[0] >= START
        assert ts[-1] < START + SPAN_S + 500
        for name in REQUIRED:
            assert table.column(name).null_count == 0


def test_activity_is_heavy_tailed() -> None:
    (table,) = generate(4, networks=1)
    counts = sorted(pc.value_counts(table.column("src_ip")).field("counts").to_pylist())
    assert sum(counts[-len(counts) // 100 :]) > 0.15 * table.num_rows
