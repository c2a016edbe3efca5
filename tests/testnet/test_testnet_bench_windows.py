"""The bench of windows, and its workload: equal numbers give equal rows, and the queries have the
stated number and differences."""

from __future__ import annotations

import pyarrow as pa
import pytest

from medusa.engine.language.check import MAX_BOXES, check_query
from medusa.engine.language.folding import with_panes
from medusa.engine.objects.query import Query
from medusa.testnet.bench.crowd import filters, many_windows
from medusa.testnet.bench.flows import SCHEMA, SECOND_US, SOURCES, STREAM, flows, pieces, windows
from medusa.testnet.bench.windows import DAY_S, LARGE_S, memory_entry


def test_pieces_are_the_rows_in_one() -> None:
    whole = flows(0, 1_000, 250, begin_us=7)
    assert pa.concat_tables(pieces(1_000, 300, 250, 7)).equals(whole.combine_chunks())
    assert whole.schema == SCHEMA.payload


def test_rows_are_at_the_rate_and_of_all_sources() -> None:
    rows = flows(250, 2_500, 250)
    ts = rows["ts"].to_pylist()
    assert ts == sorted(ts)
    assert ts[0] == SECOND_US
    assert ts[-1] < 11 * SECOND_US
    assert len(rows["src"].unique()) == SOURCES


@pytest.mark.parametrize("size_s", [LARGE_S, DAY_S])
def test_the_measured_windows_are_folded(size_s: int) -> None:
    assert with_panes(windows("w", size_s, 60), MAX_BOXES).panes


@pytest.mark.parametrize("queries", [filters(40), many_windows(200)])
def test_a_crowd_has_different_valid_queries(queries: list[Query]) -> None:
    for query in queries:
        check_query(query, {STREAM.name: SCHEMA})
    assert len({query.name for query in queries}) == len(queries)
    assert len({str(query.boxes[0]) for query in queries}) == len(queries)


def test_memory_at_the_end_is_compared_with_that_after_a_quarter() -> None:
    start, early, late = [900] * 25, [100] * 65, [120] * 10
    figure = memory_entry([mb * 2**20 for mb in [*start, *early, *late]])
    assert figure["value"] == 120
    assert figure["ratio"] == 1.2
