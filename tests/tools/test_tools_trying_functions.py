"""The option `--functions` of `medusa try` and `medusa test`: the example of a query that calls a
user's function."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deadline import DEADLINE_S
from programs import medusa_command

EXAMPLES = Path(__file__).parents[2] / "examples"
FUNCTIONS = EXAMPLES / "functions"
HOUR_S = 3600


def attempt(
    folder: Path, *arguments: str, command: str = "try"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(folder)}
    environment.pop("MEDUSA_HOME", None)
    return subprocess.run(
        medusa_command(command, *arguments),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment,
        cwd=folder,
    )


def given(*more: str) -> list[str]:
    return [str(FUNCTIONS / "sites.sql"), "--stream", f"conns={EXAMPLES / 'conns.csv'}", *more]


@pytest.mark.process
def test_the_example_gives_what_plain_python_gives(tmp_path: Path, engine: str) -> None:
    spec = importlib.util.spec_from_file_location("sites", FUNCTIONS / "sites.py")
    assert spec is not None
    assert spec.loader is not None
    sites = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sites)
    expected: Counter[tuple[int, str | None]] = Counter()
    with (EXAMPLES / "conns.csv").open() as file:
        for row in csv.DictReader(file):
            hour = int(float(row["ts"])) // HOUR_S * HOUR_S
            expected[hour, sites.site(row["src_ip"])] += 1
    functions = str(FUNCTIONS / "functions.toml")
    out = tmp_path / "answers"
    asked = ("--functions", functions, "--time", "ts", "--out", str(out), "--explain")
    done = attempt(tmp_path, *given(*asked, "--engine", engine))
    assert done.returncode == 0, done.stderr
    found = {
        (int(row["window_start"].timestamp()), row["city"]): row["conns"]
        for row in pq.read_table(out / "per_site.parquet").to_pylist()
    }
    assert found == expected
    assert len({city for _, city in found}) == 3
    assert "site(string) string of sites.py:site, deterministic" in done.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "there is no such file"),
        ("x = 1\n", "it has no section [functions]"),
        ("[functions]\nsite = 1\n", "functions.site: say FILE.py:NAME, or a section"),
        ("[functions.site]\ntime_s = 1.0\n", "functions.site: source is missing"),
        ("[functions.site]\nsource = 'a.py:f'\nlimit = 1\n", "functions.site.limit: unknown key"),
        ("[functions]\nsite = 'sites.py:site'\n", "functions.site: "),
    ],
)
def test_a_list_of_functions_that_is_wrong(tmp_path: Path, text: str | None, reason: str) -> None:
    """The error names it before anything is started."""
    file = tmp_path / "functions.toml"
    if text is not None:
        file.write_text(text)
    done = attempt(tmp_path, *given("--functions", str(file), "--time", "ts"))
    assert done.returncode != 0
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "starts a peer" not in done.stderr


@pytest.mark.process
def test_queries_under_test_call_functions_as_well(tmp_path: Path) -> None:
    case = tmp_path / "cases" / "sites"
    (case / "inputs").mkdir(parents=True)
    (case / "expected").mkdir()
    (case / "query.sql").write_text((FUNCTIONS / "sites.sql").read_text())
    (case / "inputs" / "conns.csv").write_text(
        "ts,src_ip\n2026-01-01T00:00:00Z,10.0.3.1\n2026-01-01T00:10:00Z,10.0.4.1\n"
        "2026-01-01T00:20:00Z,10.0.3.2\n"
    )
    (case / "expected" / "per_site.csv").write_text("city,conns\nBoston,2\nProvidence,1\n")
    functions = str(FUNCTIONS / "functions.toml")
    cases = str(tmp_path / "cases")
    done = attempt(
        tmp_path, cases, "--engine", "reference", "--functions", functions, command="test"
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "sites: ok"), done.stderr
    without = attempt(tmp_path, cases, "--engine", "reference", command="test")
    assert without.returncode != 0
    assert "function site is not allowed at this peer" in without.stdout
