"""Times in files: one text, number or moment means the same in every format. The oracles are
Python's datetime, Decimal and Fraction."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.moments import FORMS, boundary_in_words, moment_of, moment_text
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.streams.seconds import micros_of
from medusa.engine.streams.validate import times_of
from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.formats import Reading, read_rows
from medusa.tools.rows.moments import moments_of, texts_of
from medusa.tools.rows.post_speed import stime_of
from medusa.tools.rows.row_input import RowInput

SCHEMA = Schema("medusa://mit.edu/s", (Field("at", FieldType.TIMESTAMP),), "at")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EARLY, LATE = map(datetime.datetime.fromisoformat, ("0002-01-01", "9999-12-30"))
LONGS = st.integers(BEGINNING, END)


def read(data: bytes, kind: Format, schema: Schema = SCHEMA) -> pa.Table:
    rows = read_rows(RowInput(io.BytesIO(data)), "f", Reading(schema, kind))
    return pa.concat_tables([schema.payload.empty_table(), *rows.batches()])


def micros(table: pa.Table) -> list[int]:
    found: list[int] = table.column("at").cast(pa.int64()).to_pylist()
    return found


def parquet(column: pa.Array) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"at": column}), file)
    return file.getvalue()


def parquet_of(values: list[Any]) -> bytes:
    return parquet(pa.array(values))


def csv(values: list[Any]) -> bytes:
    return "".join(f'"{value}"\n' for value in ["at", *values]).encode()


def ndjson(values: list[Any]) -> bytes:
    return "".join(json.dumps({"at": value}) + "\n" for value in values).encode()


# -- seconds ---------------------------------------------------------------------------------------


@given(st.integers(-4 * 10**15, 4 * 10**15))
def test_seconds_written_in_decimal_digits_keep_their_microseconds(count: int) -> None:
    seconds = float(Decimal(count) / 10**6)
    assert micros_of(pa.array([seconds])).to_pylist() == [count]
    double = Schema("medusa://mit.edu/d", (Field("at", FieldType.DOUBLE),), "at")
    assert times_of(pa.table({"at": [seconds]}), double).to_pylist() == [count]
    assert stime_of(pa.table({"at": [seconds]}), double) == count
    for data, kind in (
        (csv([f"{Decimal(count) / 10**6:f}"]), Format.CSV),
        (ndjson([seconds]), Format.JSON),
        (ndjson([repr(seconds)]), Format.JSON),
        (parquet(pa.array([seconds])), Format.PARQUET),
        (parquet(pa.array([Decimal(count) / 10**6], pa.decimal128(30, 6))), Format.PARQUET),
    ):
        assert micros(read(data, kind)) == [count]


@given(st.floats(width=64) | st.floats(-1e13, 1e13))
def test_seconds_go_to_the_nearest_microsecond(seconds: float) -> None:
    (found,) = micros_of(pa.array([seconds])).to_pylist()
    if found is None:
        assert not abs(seconds) <= 9_223_372_036_854.775
    else:
        away = abs(Fraction(found) - Fraction(seconds) * 10**6)
        # the part below a second is multiplied as a float, so half a microsecond is not exact
        assert away <= Fraction(1, 2) + Fraction(1, 10**9)


@given(st.integers(BEGINNING, END), st.sampled_from([pa.int64(), pa.int32(), pa.uint64()]))
def test_whole_seconds_are_exact(count: int, kind: pa.DataType) -> None:
    bits = kind.bit_width
    seconds = count % 2**bits if kind == pa.uint64() else (count >> (64 - bits))
    (found,) = micros_of(pa.array([seconds], kind)).to_pylist()
    assert found == (seconds * 10**6 if abs(seconds) <= 9_223_372_036_854 else None)


def test_the_time_of_a_schema_in_whole_seconds_goes_by_seconds() -> None:
    schema = Schema("medusa://mit.edu/i", (Field("at", FieldType.INT),), "at")
    assert stime_of(pa.table({"at": pa.array([7], pa.int32())}), schema) == 7_000_000


def arrow(kind: pa.DataType, of: pa.DataType | None = None) -> Callable[[list[Any]], bytes]:
    """Return a writer of Arrow files with a column of this type."""

    def write(values: list[Any]) -> bytes:
        sink = io.BytesIO()
        table = pa.table({"at": pa.array(values, of).cast(kind)})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    return write


FREE: Final = Schema("medusa://mit.edu/s", (Field("at", FieldType.TIMESTAMP),))
"""A schema whose field is not the time of the stream: the bounds of that time would be narrower."""
LAST_SECOND: Final = 9_223_372_036_854
LAST_FLOAT: Final = 9_223_372_036_854.775
NEXT_FLOAT: Final = 9_223_372_036_854.777
LAST_DAY: Final = 106_751_991
NEAR_LAST: Final = round(Fraction(LAST_FLOAT) * 10**6)
SECONDS: Final = (LAST_SECOND, LAST_SECOND * 10**6, LAST_SECOND + 1)
FLOATS: Final = (LAST_FLOAT, NEAR_LAST, NEXT_FLOAT)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("kind", "write", "ends"),
    [
        (Format.CSV, csv, SECONDS),
        (Format.CSV, csv, FLOATS),
        (Format.JSON, ndjson, SECONDS),
        (Format.JSON, ndjson, FLOATS),
        (Format.ARROW, arrow(pa.int64()), SECONDS),
        (Format.ARROW, arrow(pa.float64()), FLOATS),
        (Format.ARROW, arrow(pa.timestamp("s")), SECONDS),
        (Format.ARROW, arrow(pa.timestamp("ms")), (END // 1000, END // 1000 * 1000, 2**63 - 1)),
        (
            Format.ARROW,
            arrow(pa.date32(), pa.int32()),
            (LAST_DAY, LAST_DAY * 86_400_000_000, LAST_DAY + 1),
        ),
        (Format.PARQUET, parquet_of, SECONDS),
        (Format.PARQUET, parquet_of, FLOATS),
    ],
)
def test_the_last_moments_are_accepted_and_later_ones_refused_in_one_way(
    sign: int, kind: Format, write: Callable[[list[Any]], bytes], ends: tuple[Any, int, Any]
) -> None:
    last, moment, beyond = ends
    assert micros(read(write([sign * last]), kind, FREE)) == [sign * moment]
    with pytest.raises(InvalidInputError, match=r"row 1, field 'at': .*292,000 years of 1970"):
        read(write([sign * beyond]), kind, FREE)


@pytest.mark.parametrize(
    ("last", "moment", "beyond"),
    [
        ("+294247-01-10T04:00:54.775807Z", END, "+294247-01-10T04:00:54.775808Z"),
        ("-290308-12-21T19:59:05.224192Z", BEGINNING, "-290308-12-21T19:59:05.224191Z"),
    ],
)
def test_the_last_microseconds_are_moments(last: str, moment: int, beyond: str) -> None:
    for kind, write in ((Format.CSV, csv), (Format.JSON, ndjson), (Format.PARQUET, parquet_of)):
        assert micros(read(write([last]), kind, FREE)) == [moment]
        with pytest.raises(InvalidInputError, match=r"row 1, field 'at': .*292,000 years of 1970"):
            read(write([beyond]), kind, FREE)
    for zone in (None, "Asia/Tokyo"):
        data = arrow(pa.timestamp("us", zone))([moment])
        assert micros(read(data, Format.ARROW, FREE)) == [moment]


# -- texts -----------------------------------------------------------------------------------------

ZONES = st.none() | st.sampled_from(["Z", "z", " Z", " UTC", "GMT"]) | st.integers(-1439, 1439)
DIGITS = st.text("0123456789", max_size=12)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, int]:
    """Draw a time in a form that people write, with its microseconds by Python's calendar."""
    moment = draw(st.datetimes(EARLY, LATE))
    moment = moment.replace(microsecond=0)
    shape = draw(st.sampled_from(["date", "hour", "minute", "second"]))
    zone = draw(ZONES)
    text = f"{moment.year:04}-{moment:%m-%d}"
    floor = 0
    if shape == "date":
        moment = moment.replace(hour=0, minute=0, second=0)
    else:
        text += draw(st.sampled_from("Tt ")) + f"{moment:%H}"
        moment = moment.replace(
            minute=moment.minute if shape != "hour" else 0,
            second=moment.second if shape == "second" else 0,
        )
        text += f":{moment:%M}" if shape != "hour" else ""
        if shape == "second":
            digits = draw(DIGITS)
            text += f":{moment:%S}" + (draw(st.sampled_from(".,")) + digits if digits else "")
            floor = int(Decimal(f"0.{digits or 0}") * 10**6)
        if isinstance(zone, int):
            hours, minutes = divmod(abs(zone), 60)
            colon = draw(st.sampled_from([":", ""]))
            text += f"{'-' if zone < 0 else '+'}{hours:02}{colon}{minutes:02}"
            moment -= datetime.timedelta(minutes=zone)
        elif zone is not None:
            text += zone
    whole = (moment.replace(tzinfo=datetime.UTC) - EPOCH) // datetime.timedelta(seconds=1)
    return text, whole * 10**6 + floor


@given(st.lists(texts(), min_size=1, max_size=8))
def test_a_time_as_a_text_means_the_same_in_every_format_and_beside_every_other(
    drawn: list[tuple[str, int]],
) -> None:
    written, wanted = [text for text, _ in drawn], [at for _, at in drawn]
    assert [moment_of(text) for text in written] == wanted
    for data, kind in (
        (csv(written), Format.CSV),
        (ndjson(written), Format.JSON),
        (parquet(pa.array(written)), Format.PARQUET),
        (parquet(pa.array(written, pa.large_string())), Format.PARQUET),
    ):
        assert micros(read(data, kind)) == wanted
    for text, at in drawn:
        assert micros(read(csv([text]), Format.CSV)) == [at]


CHARACTERS = "0123456789-+:.,TtZz UTCGMe/\n\r\0"


@given(
    st.lists(
        st.text(CHARACTERS, max_size=24)
        | st.tuples(texts(), st.integers(0, 30), st.text(CHARACTERS, max_size=2)).map(
            lambda drawn: drawn[0][0][: drawn[1]] + drawn[2] + drawn[0][0][drawn[1] + 1 :]
        ),
        min_size=1,
        max_size=5,
    )
)
def test_columns_are_read_as_their_values_are(drawn: list[str]) -> None:
    together = moments_of(pa.chunked_array([drawn])).cast(pa.int64()).to_pylist()
    for text, found in zip(drawn, together, strict=True):
        assert moments_of(pa.chunked_array([[text]])).cast(pa.int64()).to_pylist() == [found]
        try:
            assert moment_of(text) == found
        except ValueError:  # the cell has a number, or is empty
            number = found is not None
            assert not number or abs(found / 1e6 - float(text)) <= 1e-6 * abs(float(text)) + 1e-6


@given(LONGS)
def test_every_moment_that_is_written_is_read_back(count: int) -> None:
    moments = pa.chunked_array([pa.array([0, count, None], pa.int64())]).cast(pa.timestamp("us"))
    written = texts_of(moments)
    assert moment_text(count) == written[1].as_py()
    assert moment_of(moment_text(count)) == count
    assert moments_of(written).cast(pa.int64()).to_pylist() == [0, count, None]
    if -62_135_596_800_000_000 <= count < 253_402_300_800_000_000:
        near = EPOCH + datetime.timedelta(microseconds=count)
        assert written[1].as_py() == f"{near.year:04}-{near:%m-%dT%H:%M:%S.%fZ}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("01/02/2026", "2026' is no timestamp: either the day or the month may be first"),
        ("1.2.26 10:00", "either the day or the month may be first"),
        ("20260329", r"is it a date \(write 2026-03-29\), or a number of seconds \(write 20260329"),
        ("2026-03-29 10:00:00 CET", "zones have many names: write the offset"),
        ("2026-03-29T23:59:60Z", "a leap second"),
        ("2026-02-30", "there is no such day, or time of day"),
        ("2026-02-29", "there is no such day, or time of day"),
        ("2026-03-29T25:00:00Z", "there is no such day, or time of day"),
        ("+300000-01-01", "times are within 292,000 years of 1970"),
        ("tomorrow", FORMS[:30]),
    ],
)
def test_ambiguous_or_invalid_times_are_refused_with_the_form_to_write(
    text: str, told: str
) -> None:
    for data, kind in (
        (csv(["2026-01-01", text]), Format.CSV),
        (ndjson(["2026-01-01", text]), Format.JSON),
        (parquet(pa.array(["2026-01-01", text])), Format.PARQUET),
    ):
        with pytest.raises(InvalidInputError, match=f"f: row 2, field 'at': '.*{told}"):
            read(data, kind)


def test_numbers_and_texts_stand_in_one_column_of_json() -> None:
    assert micros(read(ndjson([1.5, "1970-01-01T00:00:02Z", 3, "4.25"]), Format.JSON)) == [
        1_500_000,
        2_000_000,
        3_000_000,
        4_250_000,
    ]


# -- Arrow's types ---------------------------------------------------------------------------------


@given(LONGS, st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from([None, "Asia/Tokyo"]))
def test_timestamps_are_cut_down_to_the_microsecond_or_refused(
    count: int, unit: str, zone: str | None
) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    column = pa.array([0, count], pa.int64()).cast(pa.timestamp(unit, zone))
    wanted = count * 10**6 // per_second
    found = moments_of(pa.chunked_array([column])).cast(pa.int64()).to_pylist()
    assert found == [0, wanted if BEGINNING <= wanted <= END else None]
    # and in an Arrow file, whose readers get the value itself, whatever calendars have
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, pa.schema([("at", column.type)])) as writer:
        writer.write_table(pa.table({"at": column}))
    try:
        assert micros(read(sink.getvalue(), Format.ARROW)) == [0, wanted]
    except InvalidInputError as error:
        assert not abs(wanted) <= 2**62
        assert str(error).startswith("f: row 2, field 'at': ")  # noqa: PT017 - see above


def test_a_nanosecond_before_1970_stays_before_it() -> None:
    column = pa.array([-1, 0, 999, 1000], pa.int64()).cast(pa.timestamp("ns"))
    assert micros(read(parquet(column), Format.PARQUET)) == [-1, 0, 0, 1]


def test_dates_are_their_midnight() -> None:
    days = [datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)]
    for kind in (pa.date32(), pa.date64()):
        column = pa.array(days, kind)
        assert micros(read(parquet(column), Format.PARQUET)) == [
            -86_400_000_000,
            1_767_225_600_000_000,
        ]
    far = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    with pytest.raises(InvalidInputError, match=r"row 1, field 'at': '2147483647 date32.*292,000"):
        read(parquet(far), Format.PARQUET)


@pytest.mark.parametrize("count", [2**62 + 1, -(2**62) - 1])
def test_a_time_too_far_for_a_stream_is_shown_as_a_moment(count: int) -> None:
    column = pa.array([count], pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(InvalidInputError) as caught:
        read(parquet(column), Format.PARQUET)
    assert f"row 1, field 'at': {moment_text(count)} is no time of a stream" in str(caught.value)


@given(st.integers(BEGINNING, END))
def test_a_boundary_in_words_is_a_moment_where_it_can_be_one(boundary: int) -> None:
    """The text of a boundary loses no microsecond."""
    said = boundary_in_words(boundary)
    if boundary in {BEGINNING, END}:
        assert said in {"its beginning", "its end"}
    elif "T" in said:
        assert 2001 <= int(said[:4]) <= 2286
        assert moment_of(said) == boundary
    else:
        assert int(said) == boundary


def test_the_boundary_of_a_stream_of_today_is_a_moment() -> None:
    assert boundary_in_words(1521892800_000_001) == "2018-03-24T12:00:00.000001Z"
    assert boundary_in_words(77) == "77"
    assert boundary_in_words(BEGINNING) == "its beginning"
