"""Revisions at whole peers: posted, logged beside the stream, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from engine_interpreted import interpret
from engine_peers import Place, open_town, pairs_of, rows, schema_of, until

from engine.definitions import StreamDefinition
from engine.query import Aggregate, AggregateFunction, Filter, Function, Query
from engine.schema import END, REVISED_STIME, REVISION_KIND
from tools.async_client import AsyncMedusaClient


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)


async def keyed_stream(
    client: AsyncMedusaClient, place: Place, path: str = "s", **options: object
) -> str:
    """A stream of `schema_of` whose key is its time."""
    schema = msgspec.structs.replace(schema_of(place.participant, "keyed"), key=("t",))
    await client.create_schema(schema)
    name = place.name(path)
    await client.create_stream(
        StreamDefinition(name, schema.name, **options)  # type: ignore[arg-type]
    )
    return name


def deletions(times: Iterable[int]) -> pa.Table:
    times = list(times)
    return pa.table({REVISION_KIND: ["DELETION"] * len(times), "t": times})


def replacements(pairs: Iterable[tuple[int, int]]) -> pa.Table:
    table = rows(pairs)
    return table.append_column(REVISION_KIND, pa.array(["REPLACEMENT"] * table.num_rows))


def changes_of(table: pa.Table) -> list[tuple[int, str, int, int]]:
    """(position, kind, stime of the tuple, its value)."""
    names = ("stime", REVISION_KIND, REVISED_STIME, "value")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


async def test_they_are_a_stream_beside_the_stream(tmp_path: Path) -> None:
    async with open_town(tmp_path) as town:
        mit = await town.settle("mit.edu")
        async with mit.client() as client:
            stream = await keyed_stream(client, mit, slack_us=10)
            await client.post_event(stream, rows([(10, 1), (20, 2), (30, 3)]), boundary=25)
            await client.flush()
            await until(lambda: mit.kept("s").log.boundary == 25)
            assert await client.post_revisions(stream, deletions([10, 11])) == [1]
            missed = await client.post_revisions(
                stream, replacements([(20, 5), (10, 1), (30, 4)]), boundary=40
            )
            assert missed == [1]  # it is gone
            await until(lambda: mit.kept("s").log.boundary == 40)
            kept = mit.kept("s/revisions").log
            assert kept.boundary == 40
            epoch = kept.read(kept.start)
            assert epoch is not None
            assert changes_of(epoch.table) == [
                (26, "DELETION", 10, 1),
                (30, "DELETION", 20, 2),
                (30, "INSERTION", 20, 5),
                (30, "DELETION", 30, 3),
                (30, "INSERTION", 30, 4),
            ]
            stable = mit.kept("s").log.read(mit.kept("s").log.start)
            assert stable is not None
            assert pairs_of(stable.table) == [(10, 1), (20, 2), (30, 3)]
            await client.post_event(stream, None, end=True)
            found = [epoch async for epoch in client.subscribe(f"{stream}/revisions")]
            assert sum(epoch.table.num_rows for epoch in found) == 5
            assert found[-1].upto == END


def counted(name: str, source: str, out: str, size_us: int = 100) -> Aggregate:
    """How many tuples, and the sum of their values, per window."""
    return Aggregate(
        name,
        source,
        out,
        size_us,
        size_us,
        (),
        (
            AggregateFunction(Function.COUNT, None, "n"),
            AggregateFunction(Function.SUM, "value", "total"),
        ),
    )


def logged(place: Place, path: str) -> pa.Table:
    log = place.kept(path).log
    epochs = []
    after = log.start
    while (epoch := log.read(after)) is not None:
        epochs.append(epoch.table)
        after = epoch.upto
    return pa.concat_tables([log.schema.empty_table(), *epochs])


async def test_they_go_through_a_filter_and_a_window(tmp_path: Path) -> None:
    async with open_town(tmp_path) as town:
        mit = await town.settle("mit.edu")
        async with mit.client() as client:
            stream = await keyed_stream(client, mit)
            big = Filter("big", stream, (mit.name("big"),), ("value > 10",))
            sums = counted("sums", mit.name("big"), mit.name("sums"))
            query = Query(mit.name("q"), (big, sums), outputs=(mit.name("big"),))
            names = await client.create_query(query)
            assert mit.name("sums/revisions") in names
            await client.start_query(query.name)
            await client.post_event(
                stream, rows([(10, 11), (20, 12), (30, 3), (110, 14)]), boundary=120
            )
            await client.flush()
            missed = await client.post_revisions(
                stream,
                replacements([(20, 2), (30, 13), (110, 15), (10, 12)]),
            )
            assert missed == []
            assert await client.post_revisions(stream, deletions([10])) == []
            await client.post_event(stream, None, end=True)
            await client.flush()
            for path in ("big", "sums", "big/revisions", "sums/revisions"):
                await until(lambda p=path: mit.kept(p).log.boundary == END, path)
            assert changes_of(logged(mit, "big/revisions")) == [
                (121, "DELETION", 10, 11),
                (121, "DELETION", 20, 12),
                (121, "INSERTION", 30, 13),
                (121, "DELETION", 110, 14),
                (121, "INSERTION", 110, 15),
            ]
            names = ("stime", REVISION_KIND, REVISED_STIME, "n", "total")
            table = logged(mit, "sums/revisions")
            assert list(zip(*(table.column(n).to_pylist() for n in names), strict=True)) == [
                (121, "DELETION", 99, 2, 23),
                (121, "INSERTION", 99, 1, 13),
                (199, "DELETION", 199, 1, 14),
                (199, "INSERTION", 199, 1, 15),
            ]
