"""`medusa-testnet nexmark`: its queries at a real peer."""

from __future__ import annotations

from typing import Final

import pytest
from scenario_commands import json_of

from medusa.testnet.nexmark.oracle import QUERIES
from medusa.testnet.nexmark.scripts import CHANGES, script

RUNNING: Final = (
    *("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q10", "q11", "q12", "q13"),
    *("q14", "q15", "q16", "q17", "q18", "q19", "q20", "q21", "q22"),
)
"""The queries that Medusa's language can express: all but q6, which Flink refuses, too."""


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_a_few_queries_are_exact_and_one_is_refused_with_its_reason() -> None:
    found = json_of("nexmark", "--events", "1500", "--rate", "60", "--queries", "q1,q3,q6")
    outcomes = {each["query"]: each for each in found["outcomes"]}
    assert list(outcomes) == ["q1", "q3", "q6"]
    assert "OVER is for streams, at line 12, column 5" in outcomes["q6"].pop("refused")
    assert outcomes.pop("q6")["exact"] is None
    for each in outcomes.values():
        assert each["exact"], each
        assert each["rows"] > 0
        assert each["rows_per_s"] == pytest.approx(each["input_rows"] / each["seconds"])
    assert outcomes["q1"]["rows"] == outcomes["q1"]["input_rows"] == 1_380
    assert outcomes["q3"]["input_rows"] == 30 + 90


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
@pytest.mark.parametrize(("events", "rate"), [(300_000, 10_000), (60_000, 600)])
def test_all_queries_are_exact(events: int, rate: int) -> None:
    found = json_of("nexmark", "--events", str(events), "--rate", str(rate), "--seed", "2")
    exact = [each["query"] for each in found["outcomes"] if each["exact"]]
    assert set(exact) >= set(RUNNING)
    assert all(each["exact"] or each["refused"] for each in found["outcomes"])


def test_scripts_change_nothing_but_what_is_listed() -> None:
    for query in QUERIES:
        text = script(query)
        for change in CHANGES.get(query, ()):
            assert change.text not in text or change.text in change.instead
            assert change.instead in text
            assert change.because
    assert script("q13").startswith("CREATE TABLE side_input (")
    assert "side_input" not in script("q12")
