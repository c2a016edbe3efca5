"""Events by XML-RPC: epochs in batches of limited size, each complete up to its boundary."""

from __future__ import annotations

import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, rows, send_rows
from tools_xmlrpc import OpenStock, native_and_stock

from medusa.engine.streams.log.recent import Epoch
from medusa.overlay.errors import InvalidInputError
from medusa.tools.xmlrpc.events import BATCH_VALUES, batches


def test_batches_are_cut_between_tuples_of_different_stimes() -> None:
    stimes = [1, 1, 2, 3, 3, 3, 4, 9]
    table = pa.table({"stime": pa.array(stimes, pa.int64()), "v": list(range(len(stimes)))})
    cut = list(batches("s", Epoch(0, 10, table), most=6))
    assert [(each["after"], each["upto"]) for each in cut] == [(0, 2), (2, 3), (3, 10)]
    values = [event["v"] for each in cut for event in each["events"]]  # type: ignore[union-attr]
    assert values == list(range(len(stimes)))
    with pytest.raises(InvalidInputError, match="of one stime"):
        list(batches("s", Epoch(0, 10, table), most=4))
    assert [each["upto"] for each in batches("s", Epoch(0, 10, table.slice(0, 0)))] == [10]


async def test_many_events_come_batch_by_batch(stock: OpenStock, cluster: Cluster) -> None:
    count = 50_000
    native, client, stream = await native_and_stock(cluster, stock)
    table = rows((number // 3, number) for number in range(count))
    await send_rows(native, stream, table, end=True)
    found: list[tuple[int, int]] = []
    after: str | None = None
    sizes = []
    with trio.fail_after(DEADLINE_S):
        while after != str(2**63 - 1):
            batch = await client.receive_events(*((stream,) if after is None else (stream, after)))
            found += [(event["stime"], event["value"]) for event in batch["events"]]
            sizes.append(len(batch["events"]))
            after = str(batch["upto"])
    assert found == [(number // 3, number) for number in range(count)]
    assert max(sizes) <= BATCH_VALUES // 5 < count
