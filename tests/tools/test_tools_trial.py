"""The parts of `medusa try`: schemas of files, created objects, answers, the places of errors."""

from __future__ import annotations

import gzip
import io
import json
import math
from contextlib import ExitStack
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from medusa.engine.language.sql.errors import PointedError
from medusa.engine.objects.definitions import MAX_SPAN_US, Idle
from medusa.engine.objects.query import streams_read
from medusa.engine.objects.schema import FieldType, Schema
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.tools.commands.in_text import InTextError, in_file
from medusa.tools.commands.medusa.trying import files_of, keys_of
from medusa.tools.rows.formats import Reading
from medusa.tools.rows.row_process import open_rows
from medusa.tools.trial.answers import SHOWN_ROWS, Answers, Files, with_moments
from medusa.tools.trial.peer_of_the_moment import Posted
from medusa.tools.trial.recordings import RecordingError, recording_of
from medusa.tools.trial.trial import trial_of

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)

# -- recordings ------------------------------------------------------------------------------------


def schema_of(file: Path, name: str, time: str | None) -> Schema:
    return recording_of(file, name, time).schema


def types(schema: Schema) -> dict[str, str]:
    return {each.name: str(each.type) for each in schema.fields}


EVERY = pa.table(
    {
        "at": pa.array([MOMENT], pa.timestamp("ms", "UTC")),
        "a": pa.array([True]),
        "b": pa.array([1], pa.int8()),
        "c": pa.array([1], pa.uint8()),
        "d": pa.array([1], pa.uint16()),
        "e": pa.array([1], pa.uint32()),
        "f": pa.array([1.5], pa.float32()),
        "g": pa.array([1.5], pa.float64()),
        "h": pa.array(["x"]).dictionary_encode(),
        "i": pa.array([None], pa.null()),
        "j": pa.array([MOMENT.date()], pa.date32()),
    }
)
TYPES = {
    "at": "timestamp",
    "a": "bool",
    "b": "byte",
    "c": "short",
    "d": "int",
    "e": "long",
    "f": "single",
    "g": "double",
    "h": "string",
    "i": "string",
    "j": "timestamp",
}


def test_types_of_parquet_and_arrow(tmp_path: Path) -> None:
    pq.write_table(EVERY, tmp_path / "x.parquet")
    for name, new in (("x.arrow", pa.ipc.new_file), ("x.arrows", pa.ipc.new_stream)):
        file = pa.OSFile(str(tmp_path / name), "w")
        with file, new(file, EVERY.schema) as writer:
            writer.write_table(EVERY)
    for name in ("x.parquet", "x.arrow", "x.arrows"):
        made = schema_of(tmp_path / name, "medusa://a/s", None)
        assert types(made) == TYPES
        assert made.time == "at"
        assert [each.nullable for each in made.fields] == [False, *[True] * 10]


def test_types_of_csv_and_json(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n,v,k,at,e\n1,2.5,a,2026-01-01T00:00:00Z,\n")
    with gzip.open(tmp_path / "x.csv.gz", "wt") as file:
        file.write((tmp_path / "x.csv").read_text())
    (tmp_path / "x.json").write_text(
        '{"n": 1, "v": 2.5, "k": "a", "at": "2026-01-01 00:00:00", "e": null}\n'
    )
    expected = {"n": "long", "v": "double", "k": "string", "at": "timestamp", "e": "string"}
    for name in ("x.csv", "x.csv.gz", "x.json"):
        made = schema_of(tmp_path / name, "medusa://a/s", None)
        assert types(made) == expected, name
        assert made.time == "at"


def test_the_time_is_the_named_column_of_the_files_that_have_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,at\n1.5,2026-01-01T00:00:00Z\n")
    (tmp_path / "b.csv").write_text("n,at\n1,2026-01-01T00:00:00Z\n")
    (tmp_path / "c.csv").write_text("n,ts\n1,x\n")
    assert schema_of(tmp_path / "a.csv", "medusa://a/s", "ts").time == "ts"
    assert schema_of(tmp_path / "a.csv", "medusa://a/s", None).time == "at"
    assert schema_of(tmp_path / "b.csv", "medusa://a/s", "ts").time == "at"
    with pytest.raises(RecordingError, match=r"c\.csv: .*ts"):  # a text is not a time
        schema_of(tmp_path / "c.csv", "medusa://a/s", "ts")
    with pytest.raises(RecordingError, match=r"c.csv has no column 'zz'; there are n long, ts str"):
        schema_of(tmp_path / "c.csv", "medusa://a/s", "zz")
    with pytest.raises(RecordingError, match=r"say --time COLUMN, of the columns n long, ts str"):
        schema_of(tmp_path / "c.csv", "medusa://a/s", None)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.csv", b""),
        ("x.json", b""),
        ("x.json", b"{"),
        ("x.json", b"[1, 2]"),
        ("x.parquet", b""),
        ("x.parquet", b"PAR1junkPAR1"),
        ("x.arrow", b"junk" * 10),
        ("x.log", b"#fields\ta\n"),
        ("x.txt", b"a\n"),
        ("x", b"a\n"),
        ("x.csv", b"\xff\xfea\x00\xd8"),
        ("x.csv", b"at,at\n2026-01-01T00:00:00Z,1\n"),
        ("x.csv", b"a-b,stime\n2026-01-01T00:00:00Z,1\n"),
    ],
)
def test_files_that_are_no_recordings(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(RecordingError) as raised:
        schema_of(tmp_path / name, "medusa://a/s", None)
    assert str(tmp_path / name) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('{"at":1,"a":2,"a":3}', "row 2: column 'a' appears twice"),
        ('{"at":1,', "row 2: it breaks off: each object on one line"),
        ('{"at":1,"a":"x"}', "row 2, column 'a': a string, and a number before"),
    ],
)
def test_rows_of_json_that_give_no_types_are_named(tmp_path: Path, row: str, told: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(f'{{"at":1,"a":2}}\n{row}\n')
    with pytest.raises(RecordingError) as raised:
        schema_of(file, "medusa://a/s", None)
    assert str(raised.value).startswith(f"{file}: {told}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        schema_of(tmp_path / "x.csv", "medusa://a/s", None)
    with pytest.raises(NotFoundError, match="no such file"):
        schema_of(tmp_path, "medusa://a/s", None)


def test_columns_that_cannot_be_fields_are_left_out_with_the_reason(tmp_path: Path) -> None:
    odd = {"day": [time(1)], "parts": [[1]], "a-b": [1], "stime": [7], "id.orig_h": ["x"]}
    pq.write_table(pa.table({"at": [MOMENT], **odd}), tmp_path / "x.parquet")
    made = recording_of(tmp_path / "x.parquet", "medusa://a/s", None)
    assert types(made.schema) == {"at": "timestamp", "id_orig_h": "string"}
    assert list(made.left_out) == ["day", "parts", "a-b", "stime"]
    trial = trial_of("SELECT id_orig_h FROM s", {"s": tmp_path / "x.parquet"}, None)
    assert [each.partition("column ")[2] for each in trial.left_out] == [
        "'day' is of type time64[us]: no field is: left out",
        "'parts' is of type list<element: int64>: no field is: left out",
        "'a-b': a name has 1 to 64 letters, digits and underscores, and does not begin with a "
        "digit: left out",
    ]
    with pytest.raises(
        PointedError, match=r"no field day; .*'day' is of type time64.*, at line 1, column 8$"
    ):
        trial_of("SELECT day FROM s", {"s": tmp_path / "x.parquet"}, None)


@pytest.mark.parametrize("asked", ["order_id", "o.order_id", "Order_ID", '"order id"'])
def test_a_query_of_a_column_without_a_fields_name_gets_a_remark(
    tmp_path: Path, asked: str
) -> None:
    (tmp_path / "x.csv").write_text("ts,order id\n2026-01-01T00:00:00Z,7\n")
    told = (
        r"no field .*; .*column 'order id': a name has 1 to 64 letters.*: left out; "
        r"--map 'order id=(\w+)' takes it, at line 1, column 8$"
    )
    with pytest.raises(PointedError, match=told) as raised:
        trial_of(f"SELECT {asked} FROM s o", {"s": tmp_path / "x.csv"}, None)
    assert "order id=order_id" in str(raised.value).replace("Order_ID", "order_id") or " " in asked


def test_times_in_texts_are_read_as_written(tmp_path: Path) -> None:
    text = "ts,clock,n,at\n2026-01-01T00:00:00z,10:00:00,1,\n2026-01-02,11:00:00,2026-01-03,\n"
    (tmp_path / "x.csv").write_text(text)
    (tmp_path / "x.json").write_text(
        "\ufeff"
        '{"ts":"2026-01-01t00:00:00.123456789Z","clock":"10:00:00","n":"1"}\n'
        '{"ts":"2026-01-02","clock":"11:00:00","n":"2026-01-03","at":null}\n'
    )
    (tmp_path / "wide.csv").write_bytes(text.encode("utf-16"))
    expected = {"ts": "timestamp", "clock": "string", "n": "string", "at": "string"}
    for name in ("x.csv", "x.json", "wide.csv"):
        assert types(schema_of(tmp_path / name, "medusa://a/s", None)) == expected, name


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
)
@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "stream.arrow"])
def test_times_in_texts_of_binary_files_equal_those_in_csv_files(
    tmp_path: Path, kind: pa.DataType, name: str
) -> None:
    columns = {
        "n": ["1", "2"],
        "t.s": ["2026-01-01T00:00:00z", "2026-01-02"],
        "mixed": ["2026-01-01", "soon"],
    }
    table = pa.table({each: pa.array(texts, kind) for each, texts in columns.items()})
    file = tmp_path / name
    if name == "x.parquet":
        pq.write_table(table, file)
    else:
        new = pa.ipc.new_stream if name == "stream.arrow" else pa.ipc.new_file
        with new(str(file), table.schema) as writer:
            writer.write_table(table)
    for said in (None, "t_s"):
        schema = schema_of(file, "medusa://a/s", said)
        assert types(schema) == {"n": "string", "t_s": "timestamp", "mixed": "string"}
        assert schema.time == "t_s"
        with open_rows(file, Reading(schema)) as rows:
            (batch,) = rows.batches()
        moments = batch.column("t_s").to_pylist()
        assert moments == [MOMENT, MOMENT + timedelta(days=1)]


def test_texts_that_are_no_utf_8_stop_no_file(tmp_path: Path) -> None:
    raw = pa.array([b"2026-\xff", None], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"at": [MOMENT, MOMENT], "raw": raw}), tmp_path / "x.parquet")
    found = types(schema_of(tmp_path / "x.parquet", "medusa://a/s", None))
    assert found == {"at": "timestamp", "raw": "string"}


def test_columns_of_other_names_are_fields(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("stime,seq,a.b\n5,0,1\n")
    files = {"s": tmp_path / "x.csv"}
    with pytest.raises(RecordingError, match=r"of rows that Medusa wrote, --map stime=FIELD"):
        trial_of("SELECT c FROM s", files, None)
    made = trial_of("SELECT c FROM s", files, "at", names={"stime": "at", "a.b": "c"})
    (schema,) = made.document.schemas
    assert types(schema) == {"at": "long", "c": "long"}
    assert made.names == {"stime": "at", "a.b": "c"}
    assert made.left_out == ()
    with pytest.raises(RecordingError, match="--map x=y: no stream has a field 'y'"):
        trial_of("SELECT c FROM s", files, "at", names={"stime": "at", "a.b": "c", "x": "y"})


def test_files_without_rows_and_answers_without_any_are_remarked(rows: Path) -> None:
    trial = trial_of(SCRIPT, {"s": rows, "medusa://mit.edu/s": rows}, None)
    ours, others = sorted(trial.files)
    small, both = trial.outputs
    nothing = Posted(rows={others: 0})
    assert nothing.remarks(trial, {small: 0}) == [f"{rows}: it has no rows"] * 2
    some = Posted(rows={ours: 2, others: 1}, unfilled={ours: ["n"]})
    assert some.remarks(trial, {small: 0, both: 1}) == [
        f"{rows}: no column for field 'n', null in every row; --map COLUMN=FIELD says which "
        "column is meant",
        f"{small}: no row, of 3 rows that were read",
    ]


# -- warm-ups ------------------------------------------------------------------------------------

SCRIPT = """
CREATE QUERY utah.edu.q WITH (ha = 'passive_standby', secondary = '%s') AS BEGIN
  CREATE STREAM utah.edu.small WITH (readers = 'brown.edu') AS SELECT n FROM s WHERE n < 5;
  CREATE STREAM utah.edu.both AS SELECT n FROM utah.edu.small UNION ALL SELECT n FROM mit.edu.s;
END
""" % ("ab" * 20)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("at,n\n2026-01-01T00:00:00Z,1\n")
    return tmp_path / "rows.csv"


def test_all_objects_become_the_query_s_owner_s(rows: Path) -> None:
    made = trial_of(SCRIPT, {"s": rows, "medusa://mit.edu/s": rows}, None)
    assert made.participant == "utah.edu"
    document = made.document
    assert {each.name for each in document.streams} == {
        "medusa://utah.edu/of.you/s",
        "medusa://utah.edu/of.mit.edu/s",
    }
    assert made.files == dict.fromkeys((each.name for each in document.streams), rows)
    assert all(each.history_us == MAX_SPAN_US for each in document.streams)
    assert all(each.max_ahead_us is None for each in document.streams)
    (query,) = document.queries
    assert query.name == "medusa://utah.edu/q"
    assert (query.readers, query.availability.secondary) == ((), "")
    assert streams_read(query) >= {each.name for each in document.streams}
    # `small` is named in the query, so it is an answer, though a box reads it
    assert set(made.outputs) == {"medusa://utah.edu/small", "medusa://utah.edu/both"}
    assert made.as_given("task of medusa://utah.edu/of.you/s") == "task of medusa://you/s"
    assert made.made["medusa://utah.edu/both"] == "medusa://utah.edu/both"


def test_a_case_has_all_names_under_its_own(rows: Path) -> None:
    given = {"s": rows, "medusa://mit.edu/s": rows}
    made = trial_of(SCRIPT, given, None, case="case.7")
    assert made.participant == "you"
    begin = "medusa://you/case.7/"
    names = {each for box in made.document.queries[0].boxes for each in (*box.inputs, *box.outputs)}
    assert all(each.startswith(begin) for each in {*names, *made.files, *made.outputs})
    assert made.made["medusa://utah.edu/both"] == f"{begin}of.utah.edu/both"
    assert made.as_given(f"{begin}of.utah.edu/both, {begin}s") == (
        "medusa://utah.edu/both, medusa://you/s"
    )


def test_a_trial_names_missing_and_surplus_inputs(rows: Path) -> None:
    ask = "SELECT n FROM s"
    with pytest.raises(NotFoundError, match=r"reads medusa://you/s: say --stream s=FILE"):
        trial_of(ask, {}, None)
    with pytest.raises(RecordingError, match=r"--stream medusa://you/t: the query reads no such"):
        trial_of(ask, {"s": rows, "t": rows}, None)
    with pytest.raises(RecordingError, match=r"--time 'zz'"):
        trial_of(ask, {"s": rows}, "zz")
    with pytest.raises(InvalidInputError, match="no query to try"):
        trial_of("CREATE STREAM s (n INT)", {"s": rows}, None)
    with pytest.raises(NotFoundError, match=r"say --stream z=FILE"):
        trial_of("CREATE STREAM z (n INT); SELECT n FROM z", {}, None)
    with pytest.raises(NotFoundError, match=r"schema medusa://you/zz is not defined"):
        trial_of("CREATE STREAM z USING zz; SELECT n FROM z", {"z": rows}, None)
    with pytest.raises(InvalidInputError, match="object name"):
        trial_of(ask, {"../s": rows}, None)


JOINED = """
CREATE STREAM s (at TIMESTAMP, n INT, WATERMARK FOR at AS at);
SELECT s.n, t.kind FROM s JOIN mit.edu.t FOR SYSTEM_TIME AS OF s.at AS t ON t.n = s.n
"""


def test_a_table_of_others_has_the_given_key(rows: Path, tmp_path: Path) -> None:
    kinds = tmp_path / "kinds.csv"
    kinds.write_text("at,n,kind\n2026-01-01T00:00:00Z,1,a\n")
    table = "medusa://mit.edu/t"
    given = {"s": rows, table: kinds}
    made = trial_of(JOINED, given, None, keys={table: ("n",)})
    tables = [each for each in made.document.streams if each.table]
    assert [made.shown[each.name] for each in tables] == [table]
    (schema,) = (each for each in made.document.schemas if each.name == tables[0].schema)
    assert schema.key == ("n",)
    assert [each.name for each in schema.fields if each.nullable] == ["kind"]
    with pytest.raises(InvalidInputError, match="reads a table, and this is a stream"):
        trial_of(JOINED, given, None)
    with pytest.raises(RecordingError, match=r"kinds\.csv: .*\bm\b"):
        trial_of(JOINED, given, None, keys={table: ("m",)})
    for name in ("s", "medusa://mit.edu/u"):
        with pytest.raises(
            RecordingError, match=f"--table .*{name[-1]}: the query declares it, or"
        ):
            trial_of(JOINED, given, None, keys={table: ("n",), name: ("n",)})


def test_the_keys_of_options() -> None:
    said = ["t=a", "medusa://b/c=d,e"]
    assert keys_of(said) == {"t": ("a",), "medusa://b/c": ("d", "e")}
    for wrong in ("t", "=a", "t=", "t=a,", "t=,a"):
        with pytest.raises(InvalidInputError, match="say NAME=COLUMN"):
            keys_of([wrong])
    with pytest.raises(InvalidInputError, match="occurs twice"):
        keys_of(["t=a", "t=b"])


def test_files_of_answers_are_recordings(tmp_path: Path) -> None:
    file = tmp_path / "answers.parquet"
    at = pa.array([MOMENT], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"stime": [1], "window_start": at, "n": [3]}), file)
    schema = schema_of(file, "medusa://you/s", None)
    assert (types(schema), schema.time) == (
        {"window_start": "timestamp", "n": "long"},
        "window_start",
    )


def test_a_document_has_the_remarks_of_its_trial(rows: Path) -> None:
    text = """<borealis><input stream="s" schema="t"/>
      <schema name="t"><field name="a" type="double"/></schema>
      <query name="q"><box name="b" type="aggregate"><in stream="s"/><out stream="o"/>
        <parameter name="aggregate-function.0" value="count()"/>
        <parameter name="window-size" value="60"/> <parameter name="timeout" value="5"/>
      </box></query></borealis>"""
    (remark,) = trial_of(text, {"s": rows}, None).document.remarks
    assert "not by the timeout of 5 s" in remark


def test_a_declared_stream_keeps_its_schema(rows: Path) -> None:
    text = "CREATE STREAM s (at TIMESTAMP, n STRING, WATERMARK FOR at AS at); SELECT n FROM s"
    made = trial_of(text, {"s": rows}, None)
    (schema,) = made.document.schemas
    assert schema.field("n") is not None
    assert types(schema)["n"] == FieldType.STRING


def test_recorded_rows_make_their_own_time(rows: Path) -> None:
    """Tries a stream whose boundary moves with the clock: its recorded rows would all be late."""
    text = (
        "CREATE STREAM s (at TIMESTAMP, n LONG, WATERMARK FOR at AS at) WITH (idle = 'clock');"
        "SELECT n FROM s"
    )
    (stream,) = trial_of(text, {"s": rows}, None).document.streams
    assert stream.idle is Idle.EXPLICIT


def test_the_files_of_options() -> None:
    assert files_of(["a=x=y.csv", "medusa://b/c=d"]) == {
        "a": Path("x=y.csv"),
        "medusa://b/c": Path("d"),
    }
    for wrong in ("a", "a=", "=b", "", "="):
        with pytest.raises(InvalidInputError, match="say NAME=FILE"):
            files_of([wrong])


# -- answers ---------------------------------------------------------------------------------------


def table(count: int, begin: int = 0) -> pa.Table:
    return pa.table(
        {
            "stime": pa.array(
                [1_767_225_600_000_000 + begin + n for n in range(count)], pa.int64()
            ),
            "k": pa.array([f"\x1b[31m{n}" if n else None for n in range(count)], pa.string()),
        }
    )


def shown(answers: Answers, streams: dict[str, str], width: int = 200) -> str:
    file = io.StringIO()
    answers.show(streams, Console(file=file, width=width))
    return file.getvalue()


def test_the_first_rows_are_shown() -> None:
    answers = Answers()
    answers.take("a", table(0))
    answers.take("b", table(0))
    for begin in range(5):
        answers.take("a", table(7, begin * 7))
    text = shown(answers, {"a": "medusa://you/a", "b": "b", "c": "c"})
    assert "medusa://you/a: 35 rows, the first 20" in text
    assert "2026-01-01T00:00:00.000000Z" in text
    assert "\x1b" not in text
    assert text.count("2026-01-01T") == SHOWN_ROWS
    assert "b: 0 rows" in text
    assert "c: 0 rows" in text
    assert answers.beginnings["a"].num_rows == SHOWN_ROWS
    whole = Answers(whole=True)
    for begin in range(5):
        whole.take("a", table(7, begin * 7))
    assert whole.beginnings["a"].num_rows == 35


@pytest.mark.parametrize("width", [40, 80, 120])
def test_rows_that_are_too_wide_are_shown_value_by_value(width: int) -> None:
    answers = Answers()
    names = [f"field_{number}" for number in range(9)]
    answers.take("a", pa.table({name: [f"{name} of row {row}" for row in "12"] for name in names}))
    text = shown(answers, {"a": "a"}, width)
    for name in names:
        assert text.count(f"{name} of row") == 2, "each value is there, and whole"
        assert text.count(f"{name}  ") == 2
    assert max(map(len, text.splitlines())) <= width
    assert "┃" not in text
    assert "┃" in shown(answers, {"a": "a"}, 300)


def test_stime_is_a_moment_once() -> None:
    once = with_moments(table(3))
    assert once.schema.field("stime").type == pa.timestamp("us", "UTC")
    assert with_moments(once) == once
    other = pa.table({"n": [1]})
    assert with_moments(other) == other


def test_answers_are_written_even_without_rows(tmp_path: Path) -> None:
    streams = ["medusa://you/a", "medusa://you/x/b"]
    with ExitStack() as stack:
        files = Files(tmp_path / "new" / "out", streams, stack)
        for stream in streams:
            files.take(stream, table(0))
        files.take(streams[0], table(2))
        files.take(streams[0], table(3, 2))
    assert pq.read_table(tmp_path / "new/out/a.parquet") == pa.concat_tables(
        [table(2), table(3, 2)]
    )
    assert pq.read_table(tmp_path / "new/out/b.parquet") == table(0)
    with (
        ExitStack() as stack,
        pytest.raises(InvalidInputError, match=r"two answers would be a\.par"),
    ):
        Files(tmp_path, ["medusa://you/a", "medusa://you/x/a"], stack)


def test_answers_in_files_keep_nan_for_readers_that_skip_by_bounds(tmp_path: Path) -> None:
    rows = pa.table({"stime": [1, 2], "x": [1.0, math.nan]})
    with ExitStack() as stack:
        Files(tmp_path, ["medusa://you/a"], stack).take("medusa://you/a", rows)
    with duckdb.connect() as database:
        asked = f"select stime from '{tmp_path}/a.parquet' where x > 5"
        assert database.execute(asked).fetchall() == [(2,)]


# -- places in texts -------------------------------------------------------------------------------


def test_the_line_and_a_caret() -> None:
    text = "SELECT a\n\tFROM zz"
    error = in_file(PointedError("no zz, at line 2, column 7"), "q.sql", text)
    assert isinstance(error, InTextError)
    assert str(error) == "q.sql: no zz, at line 2, column 7"
    assert error.excerpt == ("     FROM zz", "          ^")


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "x" * 500 + "!" + "y" * 500
    error = in_file(PointedError("odd, at line 1, column 501"), "q", text)
    assert isinstance(error, InTextError)
    line, caret = error.excerpt
    assert line[caret.index("^")] == "!"
    assert len(line) <= 104


def test_errors_without_a_place_and_beyond_the_text() -> None:
    for said in ("odd", "odd, at line 9, column 1", "at line 1, column 1 it is odd"):
        error = in_file(InvalidInputError(said), "q", "a\nb")
        assert not isinstance(error, InTextError)
        assert str(error) == f"q: {said}"


def test_signs_that_steer_a_terminal_are_not_shown() -> None:
    error = in_file(PointedError("odd, at line 1, column 6"), "q", "\x1b[31m!")
    assert isinstance(error, InTextError)
    assert error.excerpt[0] == "    ?[31m!"
    assert json.dumps(error.excerpt[1]) == json.dumps("         ^")
