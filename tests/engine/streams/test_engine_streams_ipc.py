from __future__ import annotations

import hostile_arrow
import pyarrow as pa
import pytest
from engine_streams_data import SCHEMA, logged, payload
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.streams.ipc import (
    MAX_BATCH_ROWS,
    MAX_BATCHES,
    MAX_PART_BYTES,
    decode,
    encode,
    encode_parts,
    reopen,
)
from medusa.engine.streams.messages import MAX_BATCH_BYTES
from medusa.engine.streams.validate import read_post
from medusa.overlay.errors import DecodeError, InvalidInputError

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


FIXED = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in "abcdefgh"])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_bodies_compressed_as_by_arrow_0_17_are_refused_before_they_are_inflated(
    codec: str,
) -> None:
    body = hostile_arrow.bomb(FIXED, MAX_BATCH_ROWS, codec)
    assert len(body) < 400_000, "it claims 64 MiB"
    before = pa.total_allocated_bytes()
    with pytest.raises(DecodeError, match="old Arrow format"):
        decode(body, FIXED)
    assert pa.total_allocated_bytes() == before


def test_custom_metadata_of_a_message_is_refused() -> None:
    message = hostile_arrow.message(0, [(0, 0)] * 8, [], b"", metadata={"key": "value"})
    with pytest.raises(DecodeError, match="custom metadata"):
        decode(hostile_arrow.stream(FIXED, [message]), FIXED)


def test_columns_that_share_one_buffer_are_refused() -> None:
    with pytest.raises(DecodeError, match="overlap"):
        decode(hostile_arrow.overlapping(FIXED, 1000), FIXED)


def test_a_buffer_beyond_the_body_is_refused() -> None:
    spans = [(0, 0), (0, 8), (0, 0), (8, 8)]
    schema = pa.schema(list(FIXED)[:2])
    message = hostile_arrow.message(1, [(1, 0)] * 2, spans, bytes(15))
    with pytest.raises(DecodeError, match="beyond"):
        decode(hostile_arrow.stream(schema, [message]), schema)


def test_a_few_rows_do_not_keep_a_large_body_alive() -> None:
    good = pa.table({"a": [1], "b": [2]}, schema=pa.schema(list(FIXED)[:2]))
    body = pa.py_buffer(hostile_arrow.padded(good, 2**20))
    table = decode(memoryview(body), good.schema)
    assert table.equals(good)
    ends = body.address, body.address + body.size
    buffers = [each for column in table.columns for each in column.chunk(0).buffers() if each]
    assert not any(ends[0] <= buffer.address < ends[1] for buffer in buffers)


def test_too_many_record_batches_are_refused() -> None:
    decode(hostile_arrow.many_batches(FIXED, MAX_BATCHES), FIXED)
    with pytest.raises(DecodeError, match="more than 4096 record batches"):
        decode(hostile_arrow.many_batches(FIXED, MAX_BATCHES + 1), FIXED)


def test_a_table_of_many_chunks_is_sent_in_few_batches() -> None:
    table = pa.concat_tables([payload([(i, i)]) for i in range(2 * MAX_BATCHES)])
    assert decode(encode(table), SCHEMA.payload).equals(table)


SPANS = st.tuples(st.integers(-8, 80), st.integers(-8, 80)) | st.sampled_from(
    [(0, 2**62), (2**62, 2**62), (-(2**63), 2**63 - 1), (0, 0), (0, 64)]
)


@st.composite
def record_batches(draw: st.DrawFn) -> bytes:
    """Return a message of two columns with arbitrary claims."""
    return hostile_arrow.message(
        draw(st.integers(-1, 40)),
        draw(st.lists(SPANS, max_size=6)),
        draw(st.lists(SPANS, max_size=6)),
        draw(st.binary(max_size=64)),
        version=draw(st.integers(-1, 6)),
        compression=draw(st.sampled_from([None, 0, 1])),
    )


@settings(max_examples=300)
@given(record_batches())
def test_whatever_a_message_claims_it_decodes_to_no_more_than_it_has(message: bytes) -> None:
    schema = pa.schema([pa.field("n", pa.int32()), pa.field("s", pa.string())])
    try:
        table = decode(hostile_arrow.stream(schema, [message]), schema)
    except DecodeError:
        return
    table.validate(full=True)
    assert table.nbytes <= len(message)


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
                {"t": [1, 2, None], "name": ["x"] * 3, "value": pa.array([1, 2, 3], pa.int32())}
            ),
            "field t is null in row 3",
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


@settings(max_examples=400)
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


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_random_bytes_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data, SCHEMA.payload)


@settings(max_examples=60)
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
    assert stimes(FieldType.DOUBLE, [1.5, -0.0000006, 1521912990.158766, 4.1]) == [
        1_500_000,
        -1,
        1_521_912_990_158_766,
        4_100_000,
    ]
    assert stimes(FieldType.SINGLE, [2.5]) == [2_500_000]
    assert stimes(FieldType.INT, [2**31 - 1, -3]) == [2_147_483_647_000_000, -3_000_000]


@pytest.mark.parametrize(
    ("type_", "values", "message"),
    [
        (FieldType.DOUBLE, [1.0, float("nan")], "row 2, field 't': NaN is no time"),
        (FieldType.DOUBLE, [float("inf")], "row 1, field 't': inf is no time"),
        (FieldType.DOUBLE, [0.0, 1.0, -1e300], "row 3, field 't': -1e.300 is no time"),
        (FieldType.LONG, [0, 2**62 + 1], "row 2, field 't': 4611686018427387905 is no time"),
        (FieldType.LONG, [-(2**63)], "row 1, field 't': -9223372036854775808 is no"),
        (FieldType.LONG, [1, None, 2], "row 2, field 't': null, and it is the stream's time"),
        (FieldType.INT, [3, None], "row 2, field 't': null, and it is the stream's time"),
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
    with pytest.raises(InvalidInputError, match="field s takes 4 bytes in row 2"):
        read_post(encode(pa.table({"s": ["abc", "éé", None]})), schema)
