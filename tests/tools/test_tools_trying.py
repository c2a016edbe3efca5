"""`medusa try`: a query over recorded files, at a temporary peer.

Both engines compute the compared answers. The tests of reading files and of mistakes use the
reference alone, which starts in a tenth of the time.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import psutil
import pyarrow.parquet as pq
import pytest
from deadline import DEADLINE_S
from programs import medusa_command

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples"
TRACES = Path(__file__).resolve().parents[3] / "shared" / "data"

BUSY = """
CREATE STREAM busy AS
SELECT window_start, src_ip, count(*) AS conns
FROM TUMBLE(TABLE conns, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, src_ip
HAVING count(*) > 100;
"""

JOINED = """
SELECT o.id, o.price, s.carrier
FROM orders AS o JOIN shipments AS s
  ON o.id = s.id AND s.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR
"""

ORDERS = """at,id,price
2026-01-01T12:00:00Z,1,9.5
2026-01-01T12:10:00Z,2,1.25
2026-01-01T12:20:00Z,3,7
"""

SHIPMENTS = """{"at": "2026-01-01 12:30:00", "id": 1, "carrier": "a"}
{"at": "2026-01-01 13:10:00", "id": 2, "carrier": "b"}
{"at": "2026-01-01 13:30:00", "id": 3, "carrier": "late"}
"""


@dataclass(frozen=True)
class Tried:
    code: int
    out: str
    err: str


Attempt = Callable[..., Tried]


@pytest.fixture
def attempt(tmp_path: Path, engine: str) -> Attempt:
    """Run `medusa try` with a query in a file, and with temporary files in a folder of its own."""
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)}
    environment.pop("MEDUSA_HOME", None)

    def call(query: str, *arguments: str) -> Tried:
        file = tmp_path / ("q.xml" if query.lstrip().startswith("<") else "q.sql")
        file.write_text(query)
        done = subprocess.run(
            medusa_command("try", str(file), "--engine", engine, *arguments),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env=environment,
            cwd=tmp_path,
        )
        assert [each.name for each in (tmp_path / "tmp").glob("medusa-try-*")] == []
        return Tried(done.returncode, done.stdout, done.stderr)

    return call


@pytest.mark.parametrize("name", ["wrccdc_a", "wrccdc_b", "ctu_portscan"])
def test_the_answers_of_a_trace(name: str, attempt: Attempt, tmp_path: Path) -> None:
    trace, answers = TRACES / f"{name}.parquet", TRACES / "answers" / f"{name}_busy.csv"
    if not trace.exists():
        pytest.skip(f"{name}: the traces are not here")
    out = tmp_path / "answers"
    done = attempt(BUSY, "--stream", f"conns={trace}", "--time", "ts", "--out", str(out))
    assert done.code == 0, done.err
    found = sorted(
        (row["window_start"], row["src_ip"], row["conns"])
        for row in pq.read_table(out / "busy.parquet").to_pylist()
    )
    with answers.open() as file:
        rows = list(csv.DictReader(file))
    assert found == sorted(
        (datetime.fromtimestamp(int(row["window_start"]), UTC), row["src_ip"], int(row["conns"]))
        for row in rows
    )
    assert done.out == f"{out / 'busy.parquet'}: {len(rows):,} rows\n"


def test_sql_and_xml_over_a_csv_are_shown(attempt: Attempt, engine: str) -> None:
    conns = EXAMPLES / "conns.csv"
    shown = []
    for query in ("busy.sql", "busy.xml"):
        given = "medusa://mit.edu/conns" if query == "busy.xml" else "conns"
        text = (EXAMPLES / query).read_text()
        done = attempt(text, "--stream", f"{given}={conns}")
        assert done.code == 0, done.err
        shown.append(done.out)
        assert "busy: 10 rows" in done.out
        assert "2018-03-24T14:06:59.999999Z" in done.out  # the stime in the form that people read
        assert done.err == ("medusa: starts a peer and Spark\n" if engine == "spark" else "")
    rows = [[line for line in each.splitlines() if "10.0.0." in line] for each in shown]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 10


def test_a_join_of_two_files_of_bare_and_of_others_names(attempt: Attempt, tmp_path: Path) -> None:
    orders, shipments = tmp_path / "o.csv", tmp_path / "s.json"
    orders.write_text(ORDERS)
    shipments.write_text(SHIPMENTS)
    done = attempt(
        "CREATE STREAM paired AS" + JOINED.replace("shipments", "dhl.com.shipments"),
        "--stream", f"orders={orders}",
        "--stream", f"medusa://dhl.com/shipments={shipments}",
        "--out", "made",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = pq.read_table(tmp_path / "made/paired.parquet").drop_columns(["stime"])
    right = duckdb.sql(
        f"SELECT o.id, o.price, s.carrier FROM '{orders}' AS o JOIN '{shipments}' AS s "
        "ON o.id = s.id AND s.at BETWEEN o.at::TIMESTAMP AND o.at::TIMESTAMP + INTERVAL 1 HOUR"
    ).fetchall()
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(right)
    assert len(right) == 2


@pytest.mark.parametrize("engine", ["reference"])
def test_answers_without_rows_are_files_and_columns(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("at,id,price\n")
    (tmp_path / "s.csv").write_text(ORDERS)
    query = "CREATE STREAM dear AS SELECT id, price FROM s WHERE price > 100"
    done = attempt(query, "--stream", "s=s.csv", "--out", "made")
    assert (done.code, done.out) == (0, "made/dear.parquet: 0 rows\n"), done.err
    made = pq.read_table(tmp_path / "made/dear.parquet")
    assert (made.num_rows, made.column_names) == (0, ["stime", "id", "price"])
    shown = attempt(query, "--stream", "s=s.csv")
    assert "dear: 0 rows" in shown.out
    assert "price" in shown.out
    # in a file without rows no column has a type: the stream must be declared
    nothing = attempt(query, "--stream", "s=empty.csv")
    assert nothing.code == 1
    assert "empty.csv: it has no rows, by which a column would have a type: declare" in nothing.err
    declared = "CREATE STREAM s (at TIMESTAMP, id INT, price DOUBLE, WATERMARK FOR at AS at);"
    done = attempt(declared + query, "--stream", "s=empty.csv", "--json")
    assert json.loads(done.out)["rows"] == {"medusa://you/dear": 0}
    assert "medusa: empty.csv: it has no rows\n" in done.err
    (tmp_path / "log.csv").write_text("at,the.id,price\n2026-01-01,1,1\n2026-01-01t01:00:00z,2,1\n")
    done = attempt(declared + query, "--stream", "s=log.csv", "--map", "the.id=id")
    assert done.code == 0, done.err
    assert "medusa://you/dear: no row, of 2 rows that were read" in done.err


@pytest.mark.parametrize("engine", ["reference"])
def test_json_explain_and_late_rows(attempt: Attempt, tmp_path: Path) -> None:
    """Rows of one batch are put in order; those behind earlier batches are late."""
    header, *rows = ORDERS.splitlines()
    many = [header, *[rows[2]] * 150_000, *rows[:2]]
    many = [f"{row},{'the note' if row == header else 'x'}" for row in many]
    (tmp_path / "s.csv").write_text("\n".join(many) + "\n")
    done = attempt("SELECT id FROM s", "--stream", "s=s.csv", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "rows": {"medusa://you/answer": 150_000},
        "files": {},
        "late": {"medusa://you/s": 2},
        "remarks": ["s.csv: column 'the note': " + NO_NAME],
    }
    assert "medusa://you/s: 2 rows came too late: sort the file by its time" in done.err
    apart = BUSY.replace("TUMBLE", "HOP").replace("INTERVAL", "INTERVAL '90' SECOND, INTERVAL")
    done = attempt(
        apart, "--stream", f"conns={EXAMPLES / 'conns.csv'}", "--time", "ts", "--explain"
    )
    assert done.code == 0, done.err
    assert done.out.index("windows of 60 s every 90 s by src_ip") < done.out.index("busy: ")
    assert done.err.count("conns are 1 minute long, and one begins each 90 s: rows between") == 1


@pytest.mark.parametrize("engine", ["reference"])
def test_explain_shows_the_plan_and_computes_nothing(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(ORDERS)
    done = attempt("EXPLAIN SELECT id FROM s WHERE id > 1", "--stream", "s=s.csv")
    assert done.code == 0, done.err
    assert "answer.where: filter: id > 1" in done.out
    assert "rows" not in done.out
    assert "starts a peer" not in done.err


@pytest.mark.parametrize("engine", ["reference"])
def test_two_files_at_the_speed_of_their_time(attempt: Attempt, tmp_path: Path) -> None:
    """The file covers 20 minutes of stime, and is read at 600 times the speed of that time."""
    (tmp_path / "o.csv").write_text(ORDERS)
    began = time.monotonic()
    done = attempt("SELECT id FROM s", "--stream", "s=o.csv", "--at-speed", "600", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == {"medusa://you/answer": 3}
    assert time.monotonic() - began >= 20 * 60 / 600


NO_NAME = (
    "a name has 1 to 64 letters, digits and underscores, and does not begin with a digit: left out"
)
ASKED = "SELECT id FROM s"
DECLARED = "CREATE STREAM s (at TIMESTAMP, id INT, WATERMARK FOR at AS at);"
UNREAD = DECLARED + "SELECT id FROM t"

REFUSED = [
    ("--stream s=none.csv", "no such file: none.csv", ASKED),
    ("", "say --stream s=FILE", ASKED),
    ("--stream s", "--stream 's': say NAME=FILE", ASKED),
    ("--stream s=o.csv --stream s=o.csv", "occurs twice", ASKED),
    ("--stream s=o.csv --stream t=o.csv", "the query reads no such stream", ASKED),
    ("--stream s=timeless.csv", "no column is a timestamp: say --time COLUMN", ASKED),
    ("--stream s=timeless.csv --time zz", "has no column 'zz'; there are id", ASKED),
    ("--stream s=o.csv --time zz", "--time 'zz': no file", ASKED),
    ("--stream s=o.csv", "there is no field zz", "SELECT zz FROM s"),
    ("--stream s=nothing.csv", "nothing.csv: it is empty", ASKED),
    ("--stream s=q.sql", "a recorded file ends in", ASKED),
    ("--stream s=o.csv --out o.csv", "o.csv", ASKED),
    ("--stream s=bad.csv", "row 2", DECLARED + ASKED),
    ("", "it has no query to try", DECLARED),
    (
        "--stream t=o.csv",
        "it declares medusa://you/s, which no query reads: leave it out, or say",
        UNREAD,
    ),
    ("--stream orders=o.csv", "or is medusa://you/orders meant?", "SELECT id FROM order_s"),
]


@pytest.mark.parametrize(("arguments", "said", "query"), REFUSED)
@pytest.mark.parametrize("engine", ["reference"])
def test_errors_take_one_line(
    arguments: str, said: str, query: str, attempt: Attempt, tmp_path: Path
) -> None:
    (tmp_path / "o.csv").write_text(ORDERS)
    (tmp_path / "timeless.csv").write_text("id,price\n1,2\n")
    (tmp_path / "nothing.csv").write_text("")
    (tmp_path / "bad.csv").write_text("at,id\n2026-01-01T12:00:00Z,1\n2026-01-01T12:00:00Z,x\n")
    done = attempt(query, *arguments.split())
    assert done.code == 1
    lines = done.err.splitlines()
    assert lines[0].startswith("medusa: ")
    assert said in lines[0]
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.spark
def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text(ORDERS)
    (tmp_path / "q.sql").write_text("SELECT id FROM s")
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)}
    command = medusa_command("try", "q.sql", "--stream", "s=o.csv", "--at-speed", "0.001")
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as tried:
        process = psutil.Process(tried.pid)
        deadline = time.monotonic() + DEADLINE_S
        while not any("java" in each for each in names(process)):
            assert time.monotonic() < deadline
            assert tried.poll() is None
            time.sleep(0.05)
        children = process.children(recursive=True)
        tried.send_signal(signal.SIGINT)
        assert tried.wait(DEADLINE_S) == 130
        assert tried.stderr is not None
        assert b"Traceback" not in tried.stderr.read()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert alive == []
    assert list((tmp_path / "tmp").glob("medusa-try-*")) == []


def names(process: psutil.Process) -> list[str]:
    found = []
    for each in process.children(recursive=True):
        try:
            found.append(each.name())
        except psutil.NoSuchProcess:
            continue
    return found


LATE = """
CREATE STREAM s (ts TIMESTAMP, k STRING, WATERMARK FOR ts AS ts)
  WITH (lateness = INTERVAL '1' MINUTE, max_ahead = 'none');
CREATE STREAM counts AS
SELECT window_start, k, count(*) AS n
FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, k;
"""


def test_late_rows_are_in_the_answer(attempt: Attempt, tmp_path: Path) -> None:
    """A file is in any order, within the lateness: the answer is that of the rows in order."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(start + timedelta(seconds=n * 7 % 40), "ab"[n % 2]) for n in range(80)]
    file, out = tmp_path / "s.csv", tmp_path / "out"
    file.write_text("ts,k\n" + "".join(f"{at.isoformat()},{k}\n" for at, k in rows))
    done = attempt(LATE, "--stream", f"s={file}", "--out", str(out))
    assert done.code == 0, done.err
    assert "too late" not in done.err
    found = pq.read_table(out / "counts.parquet").to_pylist()
    assert sorted((row["window_start"], row["k"], row["n"]) for row in found) == sorted(
        (*key, n) for key, n in Counter(rows).items()
    )
