"""Copies of queries over revised history equal DuckDB over the files of the source."""

from __future__ import annotations

import random

import duckdb
import msgspec
import pyarrow as pa
import pytest
from engine_peers import Cluster, Place, begin, schema_of, send_rows, until

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import BEGINNING, END, REVISION_KIND
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.epochs import write_rows
from medusa.overlay.errors import NotRetainedError
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = [
    pytest.mark.cluster(timing=Timing(maintenance_s=0.02)),
    pytest.mark.usefixtures("interpreted"),
]


Rows = list[tuple[int, ...]]

SIZE, ADVANCE, LONG = 30, 10, 100
"""Microseconds of the windows; the windows of `peaks` follow one another."""

BEHIND = {"odd": 0, "sums": SIZE - 1, "peaks": SIZE - 1 + LONG - 1}
"""How far behind its input each output of a copy begins, in microseconds."""


def network(place: Place, source: str) -> Query:
    """Return odd values; their number and sum in overlapping windows; and the greatest of the
    sums."""
    functions = (AggregateCall("count", None, "n"), AggregateCall("sum", "value", "total"))
    peak = (AggregateCall("max", "total", "peak"),)
    odd, sums, peaks = (place.name(path) for path in BEHIND)
    return Query(
        place.name("q"),
        (
            Filter("odd", source, (odd,), ("value % 2 = 1",)),
            Aggregate("sums", odd, sums, SIZE, ADVANCE, (), functions),
            Aggregate("peaks", sums, peaks, LONG, LONG, (), peak),
        ),
        (odd, sums),
    )


def files(place: Place, path: str) -> str:
    """Return the files of a log that are in force: other files wait for their removal."""
    log = place.state(path).log
    none = log.folder.parent / "none.parquet"
    write_rows(log.schema.empty_table(), none)
    with log.reader.pinned(log.start, log.boundary) as paths:
        return f"read_parquet({[str(path) for path in (none, *paths)]})"


def folded(place: Place, path: str, upto: int) -> str:
    """Write SQL for a stream as of a boundary, with its revisions up to there."""
    columns = ", ".join(
        field.name for field in place.state(path).entry.schema.fields if field.name != "stime"
    )
    return f"""
        SELECT stime, {columns} FROM (
            SELECT stime, {columns}, 1 AS sign FROM {files(place, path)} WHERE stime <= {upto}
            UNION ALL
            SELECT revised_stime, {columns}, if(revision_kind = 'INSERTION', 1, -1)
            FROM {files(place, f"{path}/revisions")} WHERE stime <= {upto})
        GROUP BY ALL HAVING sum(sign) > 0"""


def expected(place: Place, after: int, upto: int) -> dict[str, Rows]:
    """Return the query's results over (after, upto] of the source, as of `upto`."""
    least = -(10**9) if after == BEGINNING else after
    odd = f"""SELECT stime, value FROM ({folded(place, "s", upto)})
        WHERE stime > {least} AND stime <= {upto} AND value % 2 = 1"""
    sums = f"""SELECT k * {ADVANCE} + {SIZE - 1} AS stime, count(*) AS n, sum(value) AS total
        FROM ({odd}), range(-5, 200) AS windows(k)
        WHERE stime >= k * {ADVANCE} AND stime < k * {ADVANCE} + {SIZE}
        AND k * {ADVANCE} > {least} AND k * {ADVANCE} + {SIZE - 1} <= {upto} GROUP BY k"""
    whole = least if after == BEGINNING else least + BEHIND["sums"]
    peaks = f"""SELECT k * {LONG} + {LONG - 1} AS stime, max(total) AS peak
        FROM ({sums}), range(-1, 20) AS windows(k)
        WHERE stime >= k * {LONG} AND stime < k * {LONG} + {LONG}
        AND k * {LONG} > {whole} AND k * {LONG} + {LONG - 1} <= {upto} GROUP BY k"""
    return {"odd": rows(odd), "sums": rows(sums), "peaks": rows(peaks)}


def rows(sql: str) -> Rows:
    return sorted(duckdb.sql(sql).fetchall())


def made(place: Place, copy: str, path: str, upto: int) -> Rows:
    columns = {"odd": "stime, value", "sums": "stime, n, total", "peaks": "stime, peak"}[path]
    return rows(f"SELECT {columns} FROM ({folded(place, f'{copy}/{path}', upto)})")


async def fill(
    client: AsyncMedusaClient, stream: str, first: int, last: int, back: int = 10**6
) -> None:
    """Fill the source with tuples, each with a key of its own, and with revisions of them:
    deletions, other values, and other times, back and forth.

    Args:
        back: how far revisions reach back, microseconds.
    """
    chance = random.Random(first)
    live: dict[str, int] = {}
    for at in range(first, last, 40):
        times = sorted(chance.randrange(at, at + 40) for _ in range(12))
        names = [f"n{at}-{number}" for number in range(len(times))]
        values = pa.array([chance.randrange(1000) for _ in times], pa.int32())
        table = pa.table({"t": times, "name": names, "value": values})
        await send_rows(client, stream, table, boundary=at + 39)
        live.update(zip(names, times, strict=True))
        revised = chance.sample(sorted(n for n, t in live.items() if t > at - back), 4)
        request = pa.table(
            {
                REVISION_KIND: ["DELETION"] * 2 + ["REPLACEMENT"] * 2,
                "t": pa.array(
                    [None, None, *(chance.randrange(max(first, at - back), at + 40) for _ in "xy")],
                    pa.int64(),
                ),
                "name": revised,
                "value": pa.array(
                    [None, None, *(chance.randrange(1000) for _ in "xy")], pa.int32()
                ),
            }
        )
        assert await client.post_revisions(stream, request) == []
        for name in revised:
            del live[name]
    await send_rows(client, stream, boundary=last + 100)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_copy_over_revised_history_is_exact(cluster: Cluster, elsewhere: bool) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    at = utah if elsewhere else mit
    client, copier = await cluster.clients(mit, at)
    schema = msgspec.structs.replace(schema_of("mit.edu", "keyed"), key=("name",))
    await client.create_schema(schema)
    stream = mit.name("s")
    await client.create_stream(StreamDefinition(stream, schema.name, readers=("*",)))
    await begin(client, network(mit, stream))
    await fill(client, stream, 0, 800)
    copies = [(BEGINNING, 600), (103, 500), (99, 499), (200, 330), (650, END)]
    for number, (after, ends) in enumerate(copies):
        copy = f"copy{number}"
        names = await copier.copy_query(mit.name("q"), at.name(copy), after, ends)
        assert {at.name(f"{copy}/{path}/revisions") for path in BEHIND} < set(names)
        await check(mit, at, copy, (after, ends), 880)
    await fill(client, stream, 1000, 1400)
    await check(mit, at, copy, copies[-1], 1480)  # the copy continues with the original


async def check(mit: Place, at: Place, copy: str, over: tuple[int, int], boundary: int) -> None:
    """Check the results up to a boundary of the source."""
    after, ends = over
    upto = min(ends, boundary)
    for path in ("s", "s/revisions"):
        await until(lambda p=path: mit.state(p).log.boundary >= boundary, path)
    known = expected(mit, after, upto)
    assert known["odd"], "there is something to find"
    for path in BEHIND:
        for each in (f"{copy}/{path}", f"{copy}/{path}/revisions"):
            least = upto if ends == END else END
            await until(lambda e=each, b=least: at.state(e).log.boundary >= b, each)
        assert made(at, copy, path, upto) == known[path], (copy, path)


async def test_history_whose_revisions_are_not_kept_is_refused(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    schema = msgspec.structs.replace(schema_of("mit.edu", "keyed"), key=("name",))
    await client.create_schema(schema)
    stream = mit.name("s")
    await client.create_stream(
        StreamDefinition(stream, schema.name, readers=("*",), history_us=200)
    )
    await begin(client, network(mit, stream))
    await fill(client, stream, 0, 800, back=100)
    beside = mit.state("s/revisions").log
    await until(lambda: beside.start >= 500)
    with pytest.raises(NotRetainedError, match="is kept from boundary"):
        await client.copy_query(mit.name("q"), mit.name("q2"), 100)
