from __future__ import annotations

import pyarrow as pa
import pytest
from engine_streams_data import SCHEMA, logged, payload
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import MAX_BATCH_BYTES
from engine.schema import Field, FieldType, Schema
from engine.streams.ipc import (
    MAX_BATCH_ROWS,
    MAX_PART_BYTES,
    decode,
    encode,
    encode_parts,
    reopen,
)
from engine.streams.validate import read_post
from overlay.errors import DecodeError, InvalidInputError

ROWS = [(i * 10, i) for i in range(50)]


def test_a_body_decodes_to_what_was_encoded() -> None:
    assert decode(encode(payload(ROWS)), SCHEMA.payload).equals(payload(ROWS))


def test_decoding_copies_nothing() -> None:
    data = bytes(encode(payload([(i, i) for i in range(100_000)])))
    before = pa.total_allocated_bytes()
    table = decode(data, SCHEMA.payload)
    assert pa.total_allocated_bytes() - before < 10_000
    assert table.num_rows == 100_000


def test_columns_may_be_marked_nullable_as_clients_do() -> None:
    loose = pa.schema([pa.field(f.name, f.type) for f in SCHEMA.payload])
    table = decode(encode(payload(ROWS).cast(loose)), SCHEMA.payload)
    assert table.schema.equals(SCHEMA.payload)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_bodies_are_refused_before_they_are_inflated(codec: str) -> None:
    sink = pa.BufferOutputStream()
    table = payload([(1, 1)] * 50_000)
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    with pytest.raises(DecodeError, match="compressed"):
        decode(memoryview(sink.getvalue()), SCHEMA.payload)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"t": [1]}), "fields are t; expected t, name, value"),
        (
            pa.table({"t": [1], "name": ["x"], "value": ["1"]}),
            "field value is string; expected int32",
        ),
        (payload([(1, 1)]).select(["name", "t", "value"]), "fields are name, t, value"),
        (
            pa.table(
                {
                    "t": [1, 2, None],
                    "name": ["x"] * 3,
                    "value": pa.array([1, 2, 3], pa.int32()),
                }
            ),
            "field t is null in row 2",
        ),
        (
            pa.table(
                {
                    "t": [1],
                    "name": pa.array(["x"]).dictionary_encode(),
                    "value": pa.array([1], pa.int32()),
                }
            ),
            "field name is dictionary",
        ),
    ],
)
def test_other_fields_are_refused_by_name(table: pa.Table, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        decode(encode(table), SCHEMA.payload)


def test_too_many_rows_and_too_many_bytes_are_refused() -> None:
    narrow = Schema("medusa://a/b", (Field("x", FieldType.BOOL),)).payload
    many = pa.Table.from_arrays([pa.repeat(True, MAX_BATCH_ROWS + 1)], schema=narrow)
    with pytest.raises(DecodeError, match="more than 1048576 tuples"):
        decode(encode(many), narrow)
    with pytest.raises(DecodeError, match="at most"):
        decode(bytes(MAX_PART_BYTES + 1), narrow)


def test_invalid_utf8_is_refused() -> None:
    data = bytes(encode(payload([(1, 1)]))).replace(b"n1", b"\xff\xfe")
    with pytest.raises(DecodeError):
        decode(data, SCHEMA.payload)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_damage_is_a_decode_error_or_a_valid_table(data: st.DataObject) -> None:
    good = bytearray(encode(payload(ROWS[:9])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for hostile in (bytes(good), bytes(good[:cut])):
        try:
            table = decode(hostile, SCHEMA.payload)
        except DecodeError:
            continue
        table.validate(full=True)
        assert table.schema.equals(SCHEMA.payload)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data, SCHEMA.payload)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3_000), max_size=60), st.integers(1_200, 5_000))
def test_parts_are_within_the_limit_and_join_to_the_table(sizes: list[int], limit: int) -> None:
    schema = Schema("medusa://a/b", (Field("s", FieldType.STRING),)).payload
    table = pa.table({"s": pa.array(["x" * size for size in sizes], pa.string())}, schema=schema)
    parts = list(encode_parts(table, limit))
    assert sum(rows for rows, _ in parts) == len(sizes)
    assert all(len(body) <= limit or rows == 1 for rows, body in parts)
    assert reopen([body for _, body in parts], schema).equals(table)


def test_a_large_table_becomes_parts_of_a_message_each() -> None:
    table = logged([(i, i) for i in range(100_000)])
    table = pa.concat_tables([table] * 10)
    parts = list(encode_parts(table))
    assert sum(rows for rows, _ in parts) == 1_000_000
    assert all(len(body) <= MAX_BATCH_BYTES for _, body in parts)
    assert len(parts) <= 2 + table.nbytes * 3 // MAX_BATCH_BYTES


def test_a_row_that_no_message_holds_is_named() -> None:
    table = pa.table({"s": ["x" * (MAX_PART_BYTES + 1)]})
    with pytest.raises(InvalidInputError, match="a single tuple takes"):
        list(encode_parts(table))


def _timed(type_: FieldType, values: list[object]) -> memoryview:
    return encode(pa.table({"t": pa.array(values, type_.arrow)}))


def test_stime_of_each_type_of_time_field() -> None:
    def stimes(type_: FieldType, values: list[object]) -> list[int]:
        schema = Schema("medusa://a/b", (Field("t", type_, nullable=True),), time="t")
        batch = read_post(_timed(type_, values), schema)
        assert batch.stime is not None
        found: list[int] = batch.stime.to_pylist()
        assert (batch.low, batch.high) == (min(found), max(found))
        return found

    assert stimes(FieldType.LONG, [5, -7]) == [5, -7]
    assert stimes(FieldType.TIMESTAMP, [123, 456]) == [123, 456]
    assert stimes(FieldType.DOUBLE, [1.5, -0.0000005, 1521912990.158766]) == [
        1_500_000,
        -1,
        1_521_912_990_158_766,
    ]
    assert stimes(FieldType.SINGLE, [2.5]) == [2_500_000]


@pytest.mark.parametrize(
    ("type_", "values", "message"),
    [
        (FieldType.DOUBLE, [1.0, float("nan")], "out of range in row 1"),
        (FieldType.DOUBLE, [float("inf")], "out of range in row 0"),
        (FieldType.DOUBLE, [0.0, 1.0, -1e300], "out of range in row 2"),
        (FieldType.LONG, [0, 2**62 + 1], "out of range in row 1"),
        (FieldType.LONG, [-(2**63)], "out of range in row 0"),
        (FieldType.LONG, [1, None, 2], "the stream's time, is null in row 1"),
        (FieldType.STRING, ["1"], "cannot be a time"),
    ],
)
def test_times_that_are_none(type_: FieldType, values: list[object], message: str) -> None:
    schema = Schema("medusa://a/b", (Field("t", type_, nullable=True),), time="t")
    with pytest.raises(InvalidInputError, match=message):
        read_post(_timed(type_, values), schema)


def test_a_string_longer_than_its_size_is_named_with_its_row() -> None:
    schema = Schema("medusa://a/b", (Field("s", FieldType.STRING, size=3, nullable=True),))
    read_post(encode(pa.table({"s": ["abc", None, "é"]})), schema)
    with pytest.raises(InvalidInputError, match="field s takes 4 bytes in row 1"):
        read_post(encode(pa.table({"s": ["abc", "éé", None]})), schema)
