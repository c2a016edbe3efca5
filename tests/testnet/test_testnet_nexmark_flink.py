"""Nexmark beside Flink: the jobs, the reading of answers, and the end of a process that hangs.
Flink itself runs where it is installed."""

from __future__ import annotations

import os
import re
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import psutil
import pyarrow as pa
import pytest
import trio
from click.testing import CliRunner
from flink_here import flink_is_missing

from medusa.engine.reading import read_draft
from medusa.engine.spark.java import find_java
from medusa.overlay.errors import UnavailableError
from medusa.testnet.command import main
from medusa.testnet.nexmark.flink.answers import cut, read_answer, right_answer
from medusa.testnet.nexmark.flink.reasons import is_timeout, reason
from medusa.testnet.nexmark.flink.run import judged, run_flink
from medusa.testnet.nexmark.flink.texts import TABLES, query_text, table_text, write_tables, written
from medusa.testnet.nexmark.flink.work import Limits, Ran, Text, Work, run_work
from medusa.testnet.nexmark.generate import START_US, generate
from medusa.testnet.nexmark.oracle import QUERIES, TEXTS, expected, reads
from medusa.testnet.nexmark.scripts import script
from medusa.testnet.nexmark.workload import Options, tables_of
from medusa.testnet.workload.comparison import Difference, difference

WORK: Final = Work({}, 1, [], {q: Text(q, "") for q in ("q0", "q1", "q2")}, "", 1.0)
MILLISECOND_US: Final = 1_000


def test_flink_gets_the_texts_but_for_three_questions_and_a_reserved_word() -> None:
    changed = {
        query
        for query in QUERIES
        if query_text(query).replace("`dateTime`", "dateTime")
        != (TEXTS / f"{query}.sql").read_text()
    }
    assert changed == {"q12", "q13", "q14"}
    for query in QUERIES:
        assert not re.search(r"(?<![_`])dateTime", query_text(query))
    assert "PROCTIME" not in query_text("q13")


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_reads_what_medusa_reads(query: str) -> None:
    text = script(query)
    ours = {name.rpartition("/")[2] for name in read_draft(text, "medusa://self/").reads}
    declared = {"side_input"} if text.startswith("CREATE TABLE side_input") else set()
    assert reads(query) == ours | declared


def test_the_files_have_the_events_with_times_in_milliseconds(tmp_path: Path) -> None:
    tables = tables_of(generate(1, 2_000, 3_000))
    write_tables(tables, tmp_path)
    assert set(tables) == set(TABLES)
    for name, table in tables.items():
        assert f"'file://{tmp_path}/{name}.csv'" in table_text(name, tmp_path)
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            kinds = {pa.int64(): "BIGINT", pa.string(): "VARCHAR"}
            columns = {field.name: kinds.get(field.type, "TIMESTAMP") for field in table.schema}
            read = database.read_csv(f"{tmp_path}/{name}.csv", columns=columns, header=False)
            assert read.to_arrow_table().cast(table.schema).to_pylist() == cut(table).to_pylist()
    first = (tmp_path / "side_input.csv").read_text().splitlines()[0]
    assert first == "0,0,2015-07-14 23:59:59.999"


def test_times_are_cut_and_none_is_rounded_up() -> None:
    times = pa.array([START_US - 1, START_US, START_US + 1_999], pa.timestamp("us", "UTC"))
    found = cut(pa.table({"t": times}))["t"].cast(pa.int64()).to_pylist()
    assert found == [START_US - MILLISECOND_US, START_US, START_US + MILLISECOND_US]


def test_the_last_of_a_millisecond_is_the_last_that_came() -> None:
    events = generate(3, 20_000, 100_000)
    exact = expected("q18", events)
    assert right_answer("q18", events)["extra"].to_pylist() == exact["extra"].to_pylist()
    by_price = right_answer("q0", events)["dateTime"].cast(pa.int64()).to_pylist()
    assert {time % MILLISECOND_US for time in by_price} == {0}


SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(23, 3)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.string()),
    ]
)


def row(number: int, price: str) -> dict[str, Any]:
    raw = msgspec.Raw(price.encode())
    return {"id": number, "price": raw, "dateTime": "2015-07-15 00:00:00.5", "day": None}


def lines(*changes: tuple[str, dict[str, Any]]) -> bytes:
    """Return changes as Flink's format debezium-json writes them."""
    return b"".join(
        msgspec.json.encode(
            {
                "before": made if op == "d" else None,
                "after": made if op == "c" else None,
                "op": op,
            }
        )
        + b"\n"
        for op, made in changes
    )


def test_an_answer_has_the_inserted_rows_without_the_retracted_ones(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_bytes(
        lines(("c", row(1, "0.908")), ("d", row(1, "0.908")), ("c", row(1, "90800000.1")))
    )
    (tmp_path / "part-1").write_bytes(lines(("c", row(2, "7")), ("c", row(2, "7"))))
    (tmp_path / "part-2").touch()
    answer = read_answer(tmp_path, SCHEMA)
    at = datetime(2015, 7, 15, 0, 0, 0, 500_000, UTC)
    right = [(1, Decimal("90800000.1"), at, None), (2, Decimal(7), at, None)]
    table = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, each, strict=True)) for each in [*right, right[1]]], SCHEMA
    )
    assert difference(answer, table) == Difference(0, 0)
    assert difference(answer, table.slice(1)) == Difference(0, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines(("c", {"id": 1})), r"columns \['id'\]"),
        (lines(("c", {**row(1, "1"), "id": "x"})), "x"),
        (b"no json\n", "JSON"),
    ],
)
def test_another_answer_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "part-0").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_answer(tmp_path, SCHEMA)


def test_no_answer_is_an_empty_one(tmp_path: Path) -> None:
    assert read_answer(tmp_path / "none", SCHEMA) == SCHEMA.empty_table()


def test_an_answer_is_judged(tmp_path: Path) -> None:
    events = generate(1, 10_000, 1_000)
    right = expected("q2", events)
    assert right.num_rows > 1
    (tmp_path / "q2").mkdir()
    rows = [("c", each) for each in right.to_pylist()]
    (tmp_path / "q2" / "part-0").write_bytes(lines(*rows[1:], ("c", {"auction": 1, "price": 2})))
    found = judged(Ran("q2", seconds=2.0, job_s=1.0), 920, tmp_path, events)
    assert (found.missing, found.extra, found.exact) == (1, 1, False)
    assert (found.rows, found.rows_per_s, found.job_s) == (right.num_rows, 460.0, 1.0)
    assert judged(Ran("q6", refused="no"), 1, tmp_path, events).exact is None


PROGRAM: Final = """
import json, pathlib, sys, time
work = json.loads((pathlib.Path(sys.argv[1]) / "work.json").read_text())
print(json.dumps({"start_s": 1.0}), flush=True)
for query in work["queries"]:
    %s
    print(json.dumps({"query": query, "seconds": 2.0, "job_s": 1.0}), flush=True)
"""


def run_program(folder: Path, body: str, limits: Limits = Limits(60, 60, 60)) -> list[Ran]:  # noqa: B008
    program = folder / "program.py"
    program.write_text(PROGRAM % body)
    said: list[str] = []
    done = trio.run(
        lambda: run_work(
            [sys.executable, program], os.environ, folder, WORK, say=said.append, limits=limits
        )
    )
    assert said == list(WORK.queries)
    return done


def test_a_process_that_hangs_is_ended_and_another_goes_on(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = (
        f"if query == 'q1': import os; open({str(pid)!r}, 'w').write(str(os.getpid())); "
        "time.sleep(600)"
    )
    began = time.monotonic()
    first, hung, last = run_program(tmp_path, body, Limits(start=60, query=1, grace=1))
    assert time.monotonic() - began < 60
    assert first == Ran("q0", 2.0, 1.0)
    assert hung == Ran("q1", failed="no answer within 3 s: its process was ended")
    assert last == Ran("q2", 2.0, 1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_process_that_ends_is_named_with_its_last_words(tmp_path: Path) -> None:
    _, ended, last = run_program(tmp_path, "if query == 'q1': sys.exit('out of memory')")
    assert ended.failed == "its process ended: out of memory"
    assert last == Ran("q2", 2.0, 1.0)


@pytest.mark.spark
def test_temporary_files_of_a_process_lie_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed in the end, and removes none itself."""
    folder = tmp_path / "with a blank"
    folder.mkdir()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dsome=thing")
    java = find_java(os.environ) / "bin" / "java"
    said = folder / "said"
    body = (
        "import subprocess, tempfile; "
        f"shown = subprocess.run([{str(java)!r}, '-XshowSettings:properties', '-version'], "
        "capture_output=True, text=True); "
        f"open({str(said)!r}, 'w').write(tempfile.gettempdir() + shown.stderr)"
    )
    run_program(folder, body)
    shown = said.read_text()
    assert shown.startswith(str(folder))
    assert "some = thing" in shown
    assert f"java.io.tmpdir = {folder}" in shown


def test_a_process_that_says_nonsense_is_named(tmp_path: Path) -> None:
    _, odd, _ = run_program(tmp_path, "if query == 'q1': print('[]', flush=True)")
    assert odd.failed.startswith("its process said b'[]'")


def test_a_process_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="No module named no_such"):
        trio.run(
            lambda: run_work(
                [sys.executable, "-m", "no_such"],
                os.environ,
                tmp_path,
                WORK,
                say=lambda _: None,
                limits=Limits(60, 60, 60),
            )
        )


def test_a_flink_that_is_not_here_is_skipped_by_name(tmp_path: Path) -> None:
    missing = {"XDG_CACHE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    found = trio.run(run_flink, Options(100, 1), lambda _: None, missing)
    if "Java" not in found.skipped:
        assert found.skipped == "flink is not installed: set MEDUSA_BENCH_ENVIRONMENTS=1"
    assert not found.outcomes


CALL: Final = "An error occurred while calling o1.await.\n: java.util.concurrent"
PLACE: Final = "\n\tat org.apache.flink.Some.thing(Some.java:7)"


@pytest.mark.parametrize(
    ("text", "said", "timeout"),
    [
        (
            f"org.flink.TableException: no sort{PLACE}\n",
            "org.flink.TableException: no sort",
            False,
        ),
        (
            f"{CALL}.TimeoutException{PLACE}",
            "java.util.concurrent.TimeoutException",
            True,
        ),
        (
            f"{CALL}.ExecutionException: x{PLACE}\nCaused by: a.B: b{PLACE}\n"
            f"Caused by: java.util.concurrent.TimeoutException: ask{PLACE}\n\t... 14 more",
            "java.util.concurrent.TimeoutException: ask",
            False,
        ),
        ("", "ValueError('')", False),
    ],
)
def test_an_error_of_java_is_one_line(text: str, said: str, timeout: bool) -> None:
    assert reason(ValueError(text)) == said
    assert is_timeout(ValueError(text)) == timeout


def test_another_system_is_refused() -> None:
    ended = CliRunner().invoke(main, ["nexmark", "--beside", "storm"])
    assert ended.exit_code == 2
    assert "'storm' is not 'flink'" in ended.output


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.skipif(bool(flink_is_missing()), reason=flink_is_missing())
def test_flink_answers_as_the_oracle_does() -> None:
    queries = ("q0", "q4", "q6", "q8", "q13", "q18")
    options = Options(3_000, 1, 5_000, queries)
    listening: set[str] = set()

    def look(_: str) -> None:
        for process in psutil.Process().children(recursive=True):
            for each in process.net_connections(kind="tcp"):
                if each.status == psutil.CONN_LISTEN:
                    listening.add(each.laddr.ip.removeprefix("::ffff:"))

    found = trio.run(run_flink, options, look)
    assert not found.skipped
    assert listening == {"127.0.0.1"}
    assert [each.query for each in found.outcomes] == list(queries)
    for each in found.outcomes:
        if each.query == "q6":
            assert "OVER" in each.refused
        else:
            assert each.exact, each
            assert each.rows > 0
            assert 0 < each.job_s < each.seconds


def test_the_sink_keeps_retractions(tmp_path: Path) -> None:
    assert f"'path' = 'file://{tmp_path}', 'format' = 'debezium-json'" in written(tmp_path)
