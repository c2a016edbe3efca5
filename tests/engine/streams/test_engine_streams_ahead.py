"""One row of a wrong unit does not move a stream to the year 50,000."""

from __future__ import annotations

import pyarrow as pa
import pytest
from engine_peers import Cluster, make_stream, received, rows, schema_of, send_rows
from msgspec import structs

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.streams.validate import check_ahead
from medusa.overlay.errors import InvalidInputError

NOW_S = 1_790_000_000
NOW_US = NOW_S * 1_000_000
HOUR_US = 3_600_000_000
SECONDS = Schema("medusa://mit.edu/conn", (Field("ts", FieldType.DOUBLE),), time="ts")
MICROSECONDS = schema_of("mit.edu")
STREAM = StreamDefinition("medusa://mit.edu/s", SECONDS.name)


def times(*microseconds: int | None) -> pa.Array:
    return pa.array(microseconds, pa.int64())


@pytest.mark.parametrize(
    ("schema", "stime", "said"),
    [
        (SECONDS, NOW_US * 1_000, "row 3: ts is 56,6… is it in milliseconds, and not in seconds?"),
        (SECONDS, (NOW_S + 7_200) * 1_000_000, "row 3: ts is 2 hours ahead of the clock"),
        (MICROSECONDS, NOW_US * 1_000, "is it in nanoseconds, and not in microseconds?"),
        (MICROSECONDS, NOW_US + 400 * 86_400_000_000, "row 3: t is 1 year ahead of the clock"),
    ],
)
def test_a_row_beyond_is_refused_with_its_number_and_the_mend(
    schema: Schema, stime: int, said: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_ahead(times(1, None, stime, 5), None, schema, STREAM, NOW_US)
    text = str(refused.value)
    for part in said.split("…"):
        assert part in text
    assert "takes 1 hour at most: mend that time; where such times are right, " in text
    assert "`medusa stream alter medusa://mit.edu/s --max-ahead SECONDS`, or none if" in text


def test_up_to_the_limit_and_in_the_past_all_is_well() -> None:
    latest = NOW_US + HOUR_US
    check_ahead(times(BEGINNING, 0, None, latest), latest, SECONDS, STREAM, NOW_US)
    check_ahead(None, END, SECONDS, STREAM, NOW_US)
    with pytest.raises(InvalidInputError, match="row 1: "):
        check_ahead(times(latest + 1), None, SECONDS, STREAM, NOW_US)
    with pytest.raises(InvalidInputError, match=f"boundary {latest + 1} is 1 hour ahead"):
        check_ahead(None, latest + 1, SECONDS, STREAM, NOW_US)
    generated = structs.replace(STREAM, max_ahead_us=None)
    check_ahead(times(END - 1), END - 1, SECONDS, generated, NOW_US)
    none_ahead = structs.replace(STREAM, max_ahead_us=0)
    with pytest.raises(InvalidInputError, match="takes 0 s at most"):
        check_ahead(times(NOW_US + 1), None, SECONDS, none_ahead, NOW_US)


async def test_the_stream_goes_on_where_it_was(cluster: Cluster) -> None:
    """No row of a refused post is stored, and later posts are not late."""
    mit = await cluster.settle("mit.edu")
    now_us = int(mit.wall() * 1e6)
    far = now_us * 1_000
    client = await cluster.client(mit)
    stream = await make_stream(client, mit, "s")
    for refused in (rows([(now_us, 1), (far, 2)]), rows([(far, 2)])):
        async with mit.client() as other:
            await other.post_event(stream, refused)
            with pytest.raises(InvalidInputError, match="nanoseconds"):
                await other.flush()
    async with mit.client() as other:
        await other.post_event(stream, None, boundary=far)
        with pytest.raises(InvalidInputError, match=r"boundary \d+ is .* years ahead"):
            await other.flush()
    await send_rows(client, stream, [(now_us, 3)], boundary=now_us)
    assert await received(client.subscribe(stream), 1) == [(now_us, 3)]
    await client.alter_stream(stream, Alteration(max_ahead_us=None))
    await send_rows(client, stream, [(far, 4)], boundary=far)
    assert await received(client.subscribe(stream), 2) == [(now_us, 3), (far, 4)]


async def test_a_revision_gives_no_tuple_such_a_time(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    now_us = int(mit.wall() * 1e6)
    client = await cluster.client(mit)
    schema = structs.replace(schema_of("mit.edu"), key=("value",))
    await client.create_schema(schema)
    stream = mit.name("s")
    await client.create_stream(StreamDefinition(stream, schema.name))
    await send_rows(client, stream, [(now_us, 1), (now_us, 2)], boundary=now_us)
    replaced = pa.table(
        {
            "revision_kind": ["DELETION", "REPLACEMENT"],
            "t": pa.array([None, now_us * 1_000], pa.int64()),
            "name": ["x", "x"],
            "value": pa.array([1, 2], pa.int32()),
        }
    )
    with pytest.raises(InvalidInputError, match="row 2: t is"):
        await client.post_revisions(stream, replaced)
