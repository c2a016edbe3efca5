"""`medusa test` finds queries under test, runs them at one peer, and compares."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadline import DEADLINE_S
from hypothesis import given
from hypothesis import strategies as st
from programs import medusa_command

from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.tools.commands.medusa import testing
from medusa.tools.trial.cases import find_cases, stream_of_file
from medusa.tools.trial.comparison import compare, read_expected, write_expected
from medusa.tools.trial.trial import Trial

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = Path(__file__).parent / "cases"
"""Situations from bug reports of other engines, with inputs of our own; the expected answers come
from DuckDB, or are written by hand."""

BUSY = """
CREATE STREAM busy AS
SELECT window_start, k, count(*) AS c, avg(v) AS mean
FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, k;
"""

ROWS = """ts,k,v
2026-01-01T12:00:00Z,a,0.1
2026-01-01T12:00:10Z,a,0.2
2026-01-01T12:00:20Z,b,
2026-01-01T12:01:00Z,a,4
"""

ANSWER = """window_start,k,c,mean
2026-01-01T12:01:00Z,a,1,4
2026-01-01T12:00:00Z,b,1,
2026-01-01T12:00:00Z,a,2,0.15
"""


def case(folder: Path, query: str, inputs: dict[str, str], expected: dict[str, str]) -> Path:
    files = {"query.sql": query}
    files |= {f"inputs/{name}": text for name, text in inputs.items()}
    files |= {f"expected/{name}": text for name, text in expected.items()}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


# -- finding ---------------------------------------------------------------------------------------


def test_cases_are_found_in_a_folder_and_below_it(tmp_path: Path) -> None:
    case(tmp_path / "a" / "deep", BUSY, {"s.csv": ROWS}, {"busy.csv": ANSWER})
    case(tmp_path / "b", BUSY, {"utah.edu/s.csv": ROWS}, {})
    (tmp_path / "nothing").mkdir()
    assert [each.name for each in find_cases(tmp_path)] == ["a/deep", "b"]
    assert [each.name for each in find_cases(tmp_path / "b")] == ["b"]
    assert [each.name for each in find_cases(tmp_path, "dee")] == ["a/deep"]
    assert [each.name for each in find_cases(tmp_path, "?")] == ["b"]
    (found,) = find_cases(tmp_path / "b")
    assert found.inputs == {"medusa://utah.edu/s": tmp_path / "b/inputs/utah.edu/s.csv"}
    assert found.expected == {}


def test_invalid_cases_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        find_cases(tmp_path / "x")
    with pytest.raises(NotFoundError, match="has no case"):
        find_cases(tmp_path)
    folder = case(tmp_path / "a", BUSY, {"s.csv": ROWS}, {})
    with pytest.raises(NotFoundError, match=r"'zz'.*there are a"):
        find_cases(tmp_path, "zz")
    (folder / "inputs/s.json").write_text("{}")
    with pytest.raises(InvalidInputError, match=r"s.json: s.csv has rows of s, too"):
        find_cases(tmp_path)
    (folder / "inputs/s.json").rename(folder / "inputs/s.txt")
    with pytest.raises(InvalidInputError, match=r"s.txt: rows are"):
        find_cases(tmp_path)
    (folder / "inputs/s.txt").unlink()
    (folder / "query.xml").write_text("<medusa/>")
    with pytest.raises(InvalidInputError, match="not both"):
        find_cases(tmp_path)


@pytest.mark.parametrize(
    ("file", "stream"),
    [
        ("conns.csv", "conns"),
        ("conns.csv.gz", "conns"),
        ("a.b.parquet", "a.b"),
        ("mit.edu/conns.json", "medusa://mit.edu/conns"),
        ("mit.edu/a/b.csv", "medusa://mit.edu/a/b"),
    ],
)
def test_files_are_named_after_streams(file: str, stream: str) -> None:
    assert stream_of_file(Path(file)) == stream


# -- comparing -------------------------------------------------------------------------------------

VALUES = st.tuples(
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.sampled_from([0.0, 0.1, 1 / 3, 1e9, math.nan, math.inf])),
    st.one_of(st.none(), st.sampled_from(["", "a"])),
)
KINDS = pa.schema([("n", pa.int64()), ("v", pa.float64()), ("k", pa.string())])


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, KINDS.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=KINDS)


@given(st.lists(VALUES, max_size=12), st.randoms(use_true_random=False))
def test_order_and_last_bits_do_not_count(rows: list[tuple[object, ...]], chance: object) -> None:
    other = [
        tuple(each * (1 + 1e-12) if isinstance(each, float) else each for each in row)
        for row in rows
    ]
    chance.shuffle(other)  # type: ignore[attr-defined]
    found = compare(table(rows), table(other))
    assert found.none, found
    assert (found.rows, found.expected) == (len(rows), len(rows))


@given(st.lists(VALUES, max_size=12), VALUES)
def test_each_row_counts_as_often_as_it_is_there(
    rows: list[tuple[object, ...]], more: tuple[object, ...]
) -> None:
    found = compare(table([*rows, more]), table(rows))
    assert len(found.missing) == 1
    assert repr(found.missing[0]) == repr(more)
    assert found.unexpected == ()
    found = compare(table(rows), table([*rows, more]))
    assert found.missing == ()
    assert repr(found.unexpected[0]) == repr(more)


def test_another_value_is_a_missing_and_an_unexpected_row() -> None:
    found = compare(table([(1, 0.1, "a")]), table([(1, 0.1 + 1e-6, "a")]))
    assert found.missing == ((1, 0.1, "a"),)
    assert found.unexpected == ((1, 0.1 + 1e-6, "a"),)


def test_times_beyond_the_calendar_of_python_are_compared_and_shown() -> None:
    far = pa.table({"at": pa.array([2**62, 2**61], pa.int64()).cast(pa.timestamp("us", "UTC"))})
    assert compare(far, far.slice(0, 2).take([1, 0])).none
    found = compare(far, far.slice(1))
    assert found.missing == (("+148108-07-06T14:00:27.387904Z",),)


def test_only_expected_columns_count() -> None:
    wanted = table([(1, 0.5, "a")]).select(["k"])
    assert compare(wanted, table([(2, 7.0, "a")])).none
    assert compare(wanted, table([(2, 7.0, "b")])).columns == ("k",)


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.parquet"])
def test_written_expectations_are_read_as_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = [(2, 1 / 3, 'a,"b"'), (1, None, "ü"), (None, 2.5, None)]
    write_expected(tmp_path / name, table(rows), None)
    read = read_expected(tmp_path / name, KINDS)
    assert compare(read, table(rows)).none
    assert read.num_rows == 3


def test_an_expected_file_without_rows(tmp_path: Path) -> None:
    for name in ("x.csv", "x.json", "x.parquet"):
        write_expected(tmp_path / name, table([]), None)
        assert read_expected(tmp_path / name, KINDS).num_rows == 0
        assert not compare(read_expected(tmp_path / name, KINDS), table([(1, 0.5, "a")])).none


def test_an_expected_column_that_the_answer_has_not(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n,zz\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"x.csv: the answer has no column 'zz'; it has n"):
        read_expected(tmp_path / "x.csv", KINDS)


# -- the command -----------------------------------------------------------------------------------


def test_an_error_of_one_case_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect that one query meets fails its case; the others and the summary follow."""
    for name in ("a", "b"):
        case(tmp_path / name, BUSY, {"s.csv": ROWS}, {"busy.csv": ANSWER})

    @asynccontextmanager
    async def no_peer(*_: object, **__: object) -> AsyncIterator[None]:
        yield None

    def defective(text: str, *_: object, case: str) -> Trial:
        if case == "case.0":
            raise KeyError("")
        raise InvalidInputError(text[:7])

    monkeypatch.setattr(testing, "open_peer_of_the_moment", no_peer)
    monkeypatch.setattr(testing, "trial_of", defective)
    outcomes = testing.run(str(tmp_path), None, None, update=False, quiet=True, engine="reference")
    assert [each.name for each in outcomes] == ["a", "b"]
    assert outcomes[0].reason.startswith("a defect of Medusa, please report it: KeyError at test_")
    assert "CREATE" in outcomes[1].reason
    assert testing.summary(outcomes) == "2 cases: 2 failed"


def medusa_test(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        medusa_command("test", *arguments),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.process
def test_cases_of_all_kinds_at_one_peer(tmp_path: Path) -> None:
    good = {"s.csv": ROWS}
    case(tmp_path / "a_right", BUSY, good, {"busy.csv": ANSWER})
    case(tmp_path / "b_wrong", BUSY, good, {"busy.csv": ANSWER.replace("b,1,", "b,2,")})
    case(tmp_path / "c_mistaken", "SELECT zz FROM s", good, {"answer.csv": ANSWER})
    declared = "CREATE STREAM s (ts TIMESTAMP, k STRING, v DOUBLE, WATERMARK FOR ts AS ts);"
    bad = {"s.csv": ROWS + "2026-01-01T12:01:00Z,y,z\n"}
    case(tmp_path / "d_bad_row", declared + BUSY, bad, {"busy.csv": ANSWER})
    case(tmp_path / "e_no_file", BUSY, {}, {"busy.csv": ANSWER})
    case(tmp_path / "f_unexpected", BUSY, good, {"other.csv": ANSWER})
    case(tmp_path / "g_new", BUSY, good, {})
    case(
        tmp_path / "h_others",
        "CREATE STREAM utah.edu.big AS SELECT ts, v FROM mit.edu.s WHERE v > 0.15",
        {"mit.edu/s.csv": ROWS},
        {"utah.edu/big.json": '{"v": 4}\n{"v": 0.2}\n'},
    )
    case(tmp_path / "i_nothing", "SELECT k FROM s WHERE v > 99", good, {"answer.csv": "k\n"})
    live = declared.replace(");", ") WITH (idle = 'clock');")
    case(tmp_path / "j_the_past", live + BUSY, good, {"busy.csv": ANSWER})
    done = medusa_test(str(tmp_path), "--engine", "reference")
    assert done.returncode == 1, done.stderr
    said = done.stdout.splitlines()
    verdicts = [line for line in said if not line.startswith(" ")]
    assert verdicts == [
        "a_right: ok",
        "b_wrong: FAILED",
        "c_mistaken: FAILED",
        "d_bad_row: FAILED",
        "e_no_file: FAILED",
        "f_unexpected: FAILED",
        "g_new: FAILED",
        "h_others: ok",
        "i_nothing: ok",
        "j_the_past: ok",
        "10 cases: 6 failed",
    ]
    assert "    medusa://you/busy: 3 rows, expected 3" in said
    assert any("missing: " in line and "k=b, c=2" in line for line in said)
    assert any("unexpected: " in line and "k=b, c=1" in line for line in said)
    assert any("there is no field zz" in line and "at line 1, column 8" in line for line in said)
    assert "           ^" in said
    assert any("row 5" in line for line in said)
    assert any("say --stream s=FILE" in line for line in said)
    assert any("the query makes no stream medusa://you/other; it gives" in line for line in said)
    assert any("g_new has no expected files: --update writes them" in line for line in said)

    update = medusa_test(
        str(tmp_path), "--engine", "reference", "-k", "[bg]_*", "--update", "--json"
    )
    assert update.returncode == 0, update.stderr
    told = json.loads(update.stdout)
    assert [each["name"] for each in told["cases"]] == ["b_wrong", "g_new"]
    assert told["failed"] == 0
    assert (tmp_path / "b_wrong/expected/busy.csv").read_text().splitlines()[0].replace(
        '"', ""
    ) == ("window_start,k,c,mean")
    assert (tmp_path / "g_new/expected/busy.csv").read_text().startswith('"stime"')
    again = medusa_test(str(tmp_path), "--engine", "reference", "-k", "[bg]_*", "--json")
    assert again.returncode == 0, again.stdout
    assert [each["ok"] for each in json.loads(again.stdout)["cases"]] == [True, True]


@pytest.mark.process
def test_the_examples_cases(tmp_path: Path, engine: str) -> None:
    shutil.copytree(EXAMPLES / "cases", tmp_path / "cases")
    done = medusa_test(str(tmp_path / "cases"), "--engine", engine)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = tmp_path / "cases/busy/expected/busy.csv"
    rows = pa.table({"conns": pa.array([4], pa.int64())})
    pq.write_table(rows, expected.with_suffix(".parquet"))
    expected.unlink()
    done = medusa_test(str(tmp_path / "cases"), "--engine", engine)
    assert done.returncode == 1
    assert "missing: conns=4" in done.stdout
    assert "unexpected: conns=3" in done.stdout


@pytest.mark.process
def test_the_answers_to_cases_that_other_engines_got_wrong_are_right(
    tmp_path: Path, engine: str
) -> None:
    """Each case is a query that another engine, or once ours, answered wrongly by a bug report;
    here all answers are right."""
    shutil.copytree(CASES, tmp_path / "cases")
    done = medusa_test(str(tmp_path / "cases"), "--engine", engine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(list(CASES.iterdir()))} cases: all ok"
