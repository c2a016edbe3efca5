"""Where readers of files differ: each of them does what docs/posting.md says."""

from __future__ import annotations

import datetime
import io
import math
from collections.abc import Callable
from pathlib import Path

import duckdb
import msgspec
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.formats import Reading, read_rows
from medusa.tools.rows.row_input import RowInput

PAGE = (Path(__file__).parents[2] / "docs/posting.md").read_text()
SCHEMA = Schema("medusa://mit.edu/s", (Field("at", FieldType.TIMESTAMP),))
MICROSECONDS = pa.timestamp("us")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(**columns: object) -> Path:
        path = tmp_path / "x.parquet"
        old = bool(columns.pop("old", False))
        pq.write_table(
            pa.table(columns),
            path,
            use_deprecated_int96_timestamps=old,
            store_schema=not old,  # a writer of INT96 does not store Arrow's schema
        )
        return path

    return written


def ours(data: bytes, kind: Format) -> list[str]:
    rows = read_rows(RowInput(io.BytesIO(data)), "f", Reading(SCHEMA, kind))
    return [f"{value:%Y-%m-%d %H:%M:%S.%f}" for t in rows.batches() for value in t[0].to_pylist()]


def in_duckdb(file: Path, asked: str) -> object:
    with duckdb.connect() as database:
        (found,) = database.execute(f"select {asked} from '{file}'").fetchone() or (None,)
    return found


@pytest.mark.parametrize("library", [pa, duckdb, msgspec, pandas, polars])
def test_the_page_names_the_versions_that_are_asked(library: object) -> None:
    name = {"duckdb": "DuckDB"}.get(library.__name__, library.__name__)  # type: ignore[attr-defined]
    assert f"{name} {library.__version__}" in PAGE  # type: ignore[attr-defined]


def test_a_seventh_digit() -> None:
    text = "2026-01-01T09:59:59.9999999"
    cut = "2026-01-01 09:59:59.999999"
    for data, kind in ((f"at\n{text}\n", Format.CSV), (f'{{"at":"{text}"}}\n', Format.JSON)):
        assert ours(data.encode(), kind) == [cut]
    assert str(pandas.Timestamp(text).floor("us")) == cut
    assert str(polars.Series([text]).str.to_datetime(time_unit="us")[0]) == cut
    assert duckdb.sql(f"select cast('{text}' as timestamp)::varchar").fetchall() == [(cut,)]
    decoded = msgspec.json.decode(f'"{text}Z"', type=datetime.datetime)
    assert f"{decoded:%H:%M:%S.%f}" == "10:00:00.000000"


def test_a_nanosecond_before_1970(write: Callable[..., Path]) -> None:
    file = write(at=pa.array([-1], pa.int64()).cast(pa.timestamp("ns")))
    assert ours(file.read_bytes(), Format.PARQUET) == ["1969-12-31 23:59:59.999999"]
    cast = pq.read_table(file)["at"].cast(MICROSECONDS, safe=False)
    assert cast.cast(pa.int64()).to_pylist() == [0]
    assert in_duckdb(file, '"at"::timestamp::varchar') == "1970-01-01 00:00:00"


def test_int96_beyond_nanoseconds(write: Callable[..., Path]) -> None:
    day = datetime.datetime.fromisoformat("9999-12-31")
    file = write(at=pa.array([day], MICROSECONDS), old=True)
    assert ours(file.read_bytes(), Format.PARQUET) == ["9999-12-31 00:00:00.000000"]
    assert in_duckdb(file, '"at"::varchar') == "9999-12-31 00:00:00"
    assert pq.read_table(file)["at"].cast(MICROSECONDS, safe=False)[0].as_py().year == 1816
    assert polars.read_parquet(file)["at"].dt.year().to_list() == [2262]


def test_nan_outside_of_bounds(write: Callable[..., Path]) -> None:
    assert in_duckdb(write(x=[1.0, math.nan]), "count(*) filter (x > 5)") == 1
    with duckdb.connect() as database:
        file = write(x=[1.0, math.nan])
        assert database.execute(f"select x from '{file}' where x > 5").fetchall() == []


@pytest.mark.parametrize("values", [[datetime.time(1)], pa.array([b"0" * 16], pa.uuid())])
def test_types_that_no_field_has(write: Callable[..., Path], values: object) -> None:
    file = write(at=values)
    assert in_duckdb(file, 'count("at")') == 1
    with pytest.raises(InvalidInputError, match=r"field 'at': a .* is no timestamp"):
        ours(file.read_bytes(), Format.PARQUET)
