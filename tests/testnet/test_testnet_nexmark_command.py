"""`medusa-testnet nexmark`: its queries at a real peer, and how answers are compared."""

from __future__ import annotations

import decimal
import io
from typing import Any, Final

import pyarrow as pa
import pytest
from click.testing import CliRunner
from msgspec import json
from rich.console import Console

from testnet.command import main
from testnet.nexmark.comparison import Difference, difference, final_state
from testnet.nexmark.oracle import QUERIES
from testnet.nexmark.run import Outcome, Result
from testnet.nexmark.screen import render_result
from testnet.nexmark.scripts import CHANGES, script

RUNNING: Final = (
    *("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q10", "q11", "q12", "q13"),
    *("q14", "q15", "q16", "q17", "q18", "q19", "q20", "q21", "q22"),
)
"""The queries that Medusa's language has: all but q6, which Flink refuses, too."""


def run(*arguments: str) -> dict[str, Any]:
    ended = CliRunner().invoke(main, ["nexmark", "--json", *arguments])
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.decode(ended.stdout)
    return found


@pytest.mark.spark
def test_a_few_queries_are_exact_and_one_is_refused_with_its_reason() -> None:
    found = run("--events", "3000", "--rate", "60", "--queries", "q1,q3,q6,q7,q8")
    outcomes = {each["query"]: each for each in found["outcomes"]}
    assert list(outcomes) == ["q1", "q3", "q6", "q7", "q8"]
    assert "line 20, column 9" in outcomes["q6"].pop("refused")
    assert outcomes.pop("q6")["exact"] is None
    for each in outcomes.values():
        assert each["exact"], each
        assert each["rows"] > 0
        assert each["rows_per_s"] == pytest.approx(each["input_rows"] / each["seconds"])
    assert outcomes["q1"]["rows"] == outcomes["q1"]["input_rows"] == 2_760
    assert outcomes["q3"]["input_rows"] == 60 + 180


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize(("events", "rate"), [(300_000, 10_000), (60_000, 600)])
def test_all_queries_are_exact(events: int, rate: int) -> None:
    found = run("--events", str(events), "--rate", str(rate), "--seed", "2")
    exact = [each["query"] for each in found["outcomes"] if each["exact"]]
    assert set(exact) >= set(RUNNING)
    assert all(each["exact"] or each["refused"] for each in found["outcomes"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--queries", "q0,q23"), "'q23': the queries are q0 to q22"),
        (("--events", "0"), "--events"),
        (("--events", "7201", "--rate", "2"), "longer than the 3600 s that joins keep"),
    ],
)
def test_bad_options(arguments: tuple[str, ...], said: str) -> None:
    ended = CliRunner().invoke(main, ["nexmark", *arguments])
    assert ended.exit_code == 2
    assert said in ended.output


def test_scripts_change_nothing_but_what_is_listed() -> None:
    for query in QUERIES:
        text = script(query)
        for change in CHANGES.get(query, ()):
            assert change.text not in text or change.text in change.instead
            assert change.instead in text
            assert change.because
    assert script("q13").startswith("CREATE TABLE side_input (")
    assert "side_input" not in script("q12")


def test_answers_are_bags_of_rows() -> None:
    right = pa.table({"a": [1, 1, 2], "b": ["x", "x", None]})
    assert difference(right.take([2, 0, 1]), right) == Difference(0, 0)
    assert difference(right.slice(1), right) == Difference(missing=1, extra=0)
    assert difference(pa.concat_tables([right, right.slice(2)]), right) == Difference(0, 1)
    other = pa.table({"a": [1, 1, 3], "b": ["x", "x", None]})
    assert difference(other, right) == Difference(1, 1)


def test_columns_are_paired_by_name_or_else_by_order() -> None:
    right = pa.table({"a": [1], "b": [2]})
    assert difference(pa.table({"stime": [9], "b": [2], "a": [1]}), right) == Difference(0, 0)
    assert difference(pa.table({"stime": [9], "c": [1], "d": [2]}), right) == Difference(0, 0)
    assert difference(pa.table({"c": [2], "d": [1]}), right) == Difference(1, 1)
    with pytest.raises(ValueError, match=r"columns \['a'\], not \['a', 'b'\]"):
        difference(pa.table({"a": [1]}), right)


def test_means_are_cut_off_and_decimals_rounded() -> None:
    right = pa.table({"mean": [7], "price": [decimal.Decimal("9.080")]})
    ours = pa.table({"mean": [7.96], "price": [10 * 0.908 + 1e-12]})
    assert difference(ours, right) == Difference(0, 0)
    assert difference(pa.table({"mean": [8.0], "price": [9.08]}), right) == Difference(1, 1)
    assert difference(pa.table({"mean": [7.0], "price": [9.0806]}), right) == Difference(1, 1)
    with pytest.raises(ValueError, match="string instead of int64"):
        difference(pa.table({"mean": ["?"], "price": [9.08]}), right)


def test_the_newest_row_of_a_key_counts_until_it_is_deleted() -> None:
    rows = pa.table(
        {
            "g": ["a", None, "b", "a", "c", "c"],
            "n": [1, 2, 3, 4, 5, 6],
            "deleted": [None, None, False, None, None, True],
        }
    )
    left = final_state(rows, ["g"])
    assert left.to_pylist() == [{"g": None, "n": 2}, {"g": "b", "n": 3}, {"g": "a", "n": 4}]
    assert final_state(rows.drop_columns(["deleted"]), ["g", "n"]).num_rows == 6


def test_results_are_good_failed_and_rendered() -> None:
    exact = Outcome("q0", 10, 9, exact=True, seconds=2.0, rows_per_s=5.0)
    wrong = Outcome("q1", 10, 9, missing=1, extra=2, exact=False, seconds=1.0, rows_per_s=10.0)
    refused, failed = Outcome("q6", refused="no OVER"), Outcome("q7", failed="it broke")
    fine = Result(10, 1, 0.5, (exact, refused))
    assert fine.good
    assert not fine.failed
    assert not Result(10, 1, 0.5, (exact, wrong)).good
    assert Result(10, 1, 0.5, (exact, failed)).failed
    bad = Result(10, 1, 0.5, (exact, wrong, refused, failed))
    text = shown(bad)
    for words in ("q0", "exact", "1 missing, 2 wrong", "q6 cannot run: no OVER", "q7 failed: it"):
        assert words in text


def shown(result: Result) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render_result(result))
    return console.export_text()
