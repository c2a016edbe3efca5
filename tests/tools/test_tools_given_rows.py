"""Rows in all forms that a program may have, as the client posts them."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from field_texts import fields_of
from tools_fake_peer import STREAM, fake_peer_in_thread

from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.blocking import MedusaClient
from medusa.tools.rows.columns import to_payload
from medusa.tools.rows.given_rows import to_table

SCHEMA = Schema(
    "medusa://mit.edu/s", fields_of("at timestamp, name string(20), port int?, rate double"), "at"
)
AT = [datetime.datetime(2018, 3, 24, 15, 0, second, tzinfo=datetime.UTC) for second in range(3)]
COLUMNS = {"at": AT, "name": ["a", "b", "a"], "port": [80, None, 443], "rate": [0.5, 1.0, 1.5]}
PLAIN = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
FRAME = pd.DataFrame({**COLUMNS, "port": pd.array([80, None, 443], dtype="Int64")})
TABLE = pa.table(COLUMNS, schema=SCHEMA.payload)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(TABLE, id="pyarrow.Table"),
        pytest.param(TABLE.to_batches()[0], id="pyarrow.RecordBatch"),
        pytest.param(TABLE.to_reader(1), id="pyarrow.RecordBatchReader"),
        pytest.param(FRAME, id="pandas"),
        pytest.param(pd.concat([FRAME[:1], FRAME])[1:], id="pandas, numbered otherwise"),
        pytest.param(FRAME.set_index("at"), id="pandas, by an index with a name"),
        pytest.param(FRAME.astype({"name": "category"}), id="pandas, of categories"),
        pytest.param(FRAME.astype({"port": "float64"}), id="pandas, with NaN for null"),
        pytest.param(pl.DataFrame(COLUMNS), id="polars"),
        pytest.param(
            pl.DataFrame(COLUMNS).with_columns(pl.col("name").cast(pl.Categorical)),
            id="polars, of categories",
        ),
        pytest.param(PLAIN, id="dictionaries"),
        pytest.param(tuple(PLAIN), id="tuple of dictionaries"),
        pytest.param(COLUMNS, id="columns"),
        pytest.param({**COLUMNS, "rate": pl.Series([0.5, 1.0, 1.5])}, id="column of polars"),
        pytest.param({**COLUMNS, "rate": pd.Series([0.5, 1.0, 1.5])}, id="column of pandas"),
        pytest.param({**COLUMNS, "at": [int(at.timestamp()) for at in AT]}, id="seconds"),
        pytest.param({**COLUMNS, "at": [at.replace(tzinfo=None) for at in AT]}, id="no zone"),
        pytest.param([], id="none"),
    ],
)
def test_every_form_is_the_same_rows(given: object) -> None:
    posted = to_payload(to_table(given, SCHEMA), SCHEMA, 1, ignore_extra=None)
    assert posted.to_pylist() == ([] if isinstance(given, list) and not given else PLAIN)


def test_the_client_posts_an_answer_of_duckdb() -> None:
    with duckdb.connect() as database:
        answer = database.register("given", TABLE).sql("SELECT * FROM given")
        posted = to_payload(to_table(answer, SCHEMA), SCHEMA, 1, ignore_extra=None)
    assert posted.column("name").to_pylist() == ["a", "b", "a"]


def test_a_field_that_only_a_later_dictionary_has_is_there() -> None:
    first, *others = PLAIN
    missing = {name: value for name, value in first.items() if name != "port"}
    table = to_table([missing, *others], SCHEMA)
    assert table.column("port").to_pylist() == [None, None, 443]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (7, "argument rows: expected a table of pyarrow, pandas .* got int"),
        ("at,name", "argument rows: expected .* got str"),
        (pl.LazyFrame(COLUMNS), "argument rows: expected .* got LazyFrame"),
        (iter(PLAIN), "argument rows: expected .* got list_iterator"),
        ([*PLAIN, 5], "argument rows: row 4: expected a dictionary, got int"),
        (PLAIN[0], "field 'at': expected a column of values, got datetime; one row is a list of"),
        ({**COLUMNS, "name": "a"}, "field 'name': expected a column of values, got str"),
        ({**COLUMNS, "port": 80}, "field 'port': expected a column of values, got int"),
        ({**COLUMNS, "port": [80, "http", 443]}, "row 2, field 'port': 'http' is no int"),
        ({**COLUMNS, "rate": [0.5, {}, 1.5]}, "row 2, field 'rate': {} is no double"),
        (
            {**COLUMNS, "port": [80, 2**70, 443]},
            "row 2, field 'port': 1180591620717411303424 is no",
        ),
        ({**COLUMNS, "port": [80]}, "argument rows: .*expected length 3 but got length 1"),
        ({**COLUMNS, 5: [1, 2, 3]}, "argument rows: 5 is no name of a field"),
        (pl.Series([1.0, 2.0]), "argument rows: "),
        ({**COLUMNS, "extra": [1, 2, 3]}, "column 'extra': no field of the schema"),
        ({"at": AT}, "no column for field 'name'"),
        ({**COLUMNS, "name": ["a", "b" * 21, "c"]}, "row 2, field 'name': longer than the 20"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(given: object, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as told:
        to_payload(to_table(given, SCHEMA), SCHEMA, 1, ignore_extra=None)
    assert "--" not in str(told.value)  # a program has no flags
    assert "\n" not in str(told.value)


def test_the_client_posts_rows_of_every_form(tmp_path: Path) -> None:
    columns = {"ts": [1.0, 2.0], "name": ["a", "b"]}
    with fake_peer_in_thread(tmp_path) as peer, MedusaClient(tmp_path) as client:
        for rows in (
            columns,
            pd.DataFrame(columns),
            pl.DataFrame(columns),
            [{"ts": 1, "name": "a"}],
        ):
            client.post_event(STREAM, rows)
        client.flush()
        assert [count for _, count in peer.stored[client.producer]] == [2, 2, 2, 1]
