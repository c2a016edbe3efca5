"""Tables as clients read them, and files with the wanted content of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_peers import open_cluster, send_rows, until
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import DELETED, END, Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.tables import changed_rows, read_table

F = FieldType


def schema(name: str = "medusa://mit.edu/t", *, deletes: bool = True) -> Schema:
    fields = [Field("at", F.LONG), Field("k", F.INT), Field("v", F.STRING, nullable=True)]
    if deletes:
        fields.append(Field(DELETED, F.BOOL, nullable=True))
    return Schema(name, tuple(fields), "at", ("k",))


def rows(*found: tuple[int, int, str | None], deleted: bool | None = None) -> pa.Table:
    made = [{"at": at, "k": k, "v": v, DELETED: deleted} for at, k, v in found]
    return pa.Table.from_pylist(made, schema().payload)


values = st.dictionaries(st.integers(0, 6), st.none() | st.sampled_from(["a", "b"]))


@given(values, values)
def test_the_posted_changes_give_a_table_the_content_of_a_file(
    before: dict[int, str | None], wanted: dict[int, str | None]
) -> None:
    now = rows(*((1, k, v) for k, v in before.items()))
    now = now.add_column(0, "stime", pa.array([1] * now.num_rows, pa.int64()))
    made = changed_rows(now, rows(*((2, k, v) for k, v in wanted.items())), schema())
    after: dict[int, Any] = dict(before)
    for row in made.to_pylist():
        if row[DELETED]:
            del after[row["k"]]
        else:
            assert after.get(row["k"], "nothing") != row["v"], "an unchanged row"
            after[row["k"]] = row["v"]
    assert after == wanted


def test_a_file_has_each_key_once() -> None:
    now = rows().add_column(0, "stime", pa.array([], pa.int64()))
    with pytest.raises(InvalidInputError, match="two rows have the same key: k 1"):
        changed_rows(now, rows((1, 1, "a"), (1, 1, "b")), schema())


def test_rows_are_deleted_only_where_the_schema_can_say_so() -> None:
    plain = schema(deletes=False)
    now = rows((1, 1, "a")).select(plain.payload.names)
    now = now.add_column(0, "stime", pa.array([1], pa.int64()))
    with pytest.raises(InvalidInputError, match="has no boolean field 'deleted'"):
        changed_rows(now, plain.payload.empty_table(), plain)


@pytest.mark.parametrize(
    ("type_", "later"),
    [(F.INT, 1_700_000_001), (F.DOUBLE, 1_700_000_000.000001), (F.LONG, 1_700_000_000_000_001)],
)
def test_the_time_of_deletions_is_in_the_unit_of_the_schema(type_: F, later: float) -> None:
    at, *others = schema().fields
    of = Schema("medusa://mit.edu/t", (Field(at.name, type_), *others), "at", ("k",))
    first = 1_700_000_000_000_000 if type_ is F.LONG else 1_700_000_000
    now = pa.Table.from_pylist([{"at": first, "k": 1, "v": "a", DELETED: None}], of.payload)
    now = now.add_column(0, "stime", pa.array([1_700_000_000_000_000], pa.int64()))
    (gone,) = changed_rows(now, of.payload.empty_table(), of).to_pylist()
    assert gone == {"at": later, "k": 1, "v": "a", DELETED: True}


async def test_a_table_is_read_as_it_is_at_a_boundary(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        place = await cluster.settle("mit.edu")
        async with place.client() as client:
            of = schema(place.name("t_schema"))
            await client.create_schema(of)
            table = StreamDefinition(place.name("t"), of.name, table=True, max_ahead_us=None)
            await client.create_stream(table)
            await client.post_event(table.name, rows((10, 1, "a"), (10, 2, "b")))
            await client.post_event(table.name, rows((20, 1, "c")))
            await client.post_event(table.name, rows((30, 2, None), deleted=True))
            await send_rows(client, table.name, boundary=30)
            await until(lambda: place.state("t").log.boundary >= 30)
            for at, expected in ((10, {1: "a", 2: "b"}), (25, {1: "c", 2: "b"}), (END, {1: "c"})):
                found = (await read_table(client, table.name, at)).to_pylist()
                assert {row["k"]: row["v"] for row in found} == expected
            gone = {"revision_kind": ["DELETION"], "at": [20], "k": pa.array([1], pa.int32())}
            with pytest.raises(InvalidInputError, match="without revisions"):
                await client.post_revisions(table.name, pa.table(gone))


async def test_a_stream_is_no_table(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        place = await cluster.settle("mit.edu")
        async with place.client() as client:
            of = schema(place.name("t_schema"))
            await client.create_schema(of)
            await client.create_stream(StreamDefinition(place.name("s"), of.name))
            with pytest.raises(InvalidInputError, match="is a stream, and no table"):
                await read_table(client, place.name("s"))
