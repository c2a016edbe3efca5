"""Workloads: the comparison of answers, and the display of outcomes."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest
from screens import text_of

from medusa.testnet.workload.comparison import Difference, difference, final_state
from medusa.testnet.workload.workload import Beside, Outcome, Result, render_result, with_beside


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
    fine = Result("ten rows", 0.5, (exact, refused))
    assert fine.good
    assert not fine.failed
    assert not Result("ten rows", 0.5, (exact, wrong)).good
    assert Result("ten rows", 0.5, (exact, failed)).failed
    bad = Result("ten rows", 0.5, (exact, wrong, refused, failed))
    text = text_of(render_result(bad), 100)
    for words in ("q0", "exact", "1 missing, 2 wrong", "q6 cannot run: no OVER", "q7 failed: it"):
        assert words in text


def test_another_system_is_beside_ours_with_ratios_of_what_ran_in_both() -> None:
    ours = (
        Outcome("q0", 10, 9, exact=True, seconds=2.0, rows_per_s=5.0),
        Outcome("q1", 10, refused="no box for it"),
        Outcome("q2", 10, 9, exact=True, seconds=2.0, rows_per_s=5.0),
    )
    theirs = (
        Outcome("q0", 10, 9, exact=True, seconds=4.0, rows_per_s=2.5, job_s=1.0),
        Outcome("q1", 10, 1, missing=3, exact=False, seconds=4.0, rows_per_s=2.5, job_s=1.0),
        Outcome("q2", 10, failed="it did not end within 5 s"),
    )
    result = with_beside(Result("Nexmark", 1.0, ours), Beside("Riverdb", theirs))
    assert result.beside is not None
    assert (result.beside.ratios, result.beside.job_ratios) == ({"q0": 2.0}, {"q0": 0.5})
    assert result.good
    assert not result.failed
    text = text_of(render_result(result), 100)
    assert "The same in Riverdb" in text
    assert "q2 failed: it did not end within 5 s" in text
    assert ["q0", "9", "exact", "2", "2.00", "10", "0.50"] in [
        line.split() for line in text.splitlines()
    ]
    skipped = Result("Nexmark", 1.0, ours, Beside("Riverdb", skipped="it is not installed"))
    assert "The same in Riverdb was skipped: it is not installed" in text_of(
        render_result(skipped), 100
    )
