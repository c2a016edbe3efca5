"""`medusa-testnet tracking`: the appendix' query and the alarms at a real peer."""

from __future__ import annotations

from typing import Final

import pytest
from scenario_commands import exact_rows

from medusa.testnet.tracking.workload import QUERIES, Options, appendix, tracking_workload

SCHEMA: Final = (
    '<schema name="medusa://nms.lcs.mit.edu/locator/person">\n'
    ' <field name="person_name" type="string" size="32"/>\n'
    ' <field name="person_id" type="int"/>\n'
    "</schema>\n"
)
QUERY: Final = (
    '<query name="medusa://nms.lcs.mit.edu/locator/FindMrX">\n'
    ' <box name="foo" type="filter">\n'
    ' <input port="1" stream="medusa://nms.lcs.mit.edu/locator/people"/>\n'
    ' <output port="1" stream="medusa://nms.lcs.mit.edu/locator/MrX"/>\n'
    ' <param name="nexpression.0" value="person_id = 2"/>\n'
    ' <param name="pass-on-false-port" value="0"/>\n'
    " </box>\n"
    "</query>\n"
)
"""The strings of sections 6.1 and 6.3 of the paper, line by line."""


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_mr_x_and_all_alarms_are_found() -> None:
    rows = exact_rows("tracking", "--persons", "30", "--hours", "1.2", "--seed", "2")
    assert tuple(rows) == ("locator/MrX", "strays", "alarms")
    assert rows["locator/MrX"] > 100
    assert rows["strays"] > rows["alarms"] > 20


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
@pytest.mark.parametrize("seed", [3, 4])
def test_a_whole_day_of_many_persons(seed: int) -> None:
    rows = exact_rows(
        "tracking", *("--persons", "200", "--buildings", "5", "--hours", "16", "--seed", str(seed))
    )
    assert rows["strays"] > rows["alarms"] > 2_000


def test_the_query_of_the_appendix_runs_as_printed() -> None:
    assert (QUERIES / "person.xml").read_bytes() == SCHEMA.encode()
    assert (QUERIES / "find_mr_x.xml").read_bytes() == QUERY.encode()
    assert SCHEMA in appendix()
    assert QUERY in appendix()


def test_streams_of_the_appendix_have_its_fields() -> None:
    tables = tracking_workload(Options(1, persons=5, hours=0.1)).tables
    assert tables["locator/people"].column_names == ["person_name", "person_id"]
    assert tables["locator/people"].num_rows == tables["sightings"].num_rows > 0
