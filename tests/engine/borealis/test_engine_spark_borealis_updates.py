"""Tables of Borealis that are updated equal rows that plain Python changes one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from borealis_boxes import check_printed, read
from computed_documents import (
    Row,
    by_interpreted_tasks,
    by_interpreter,
    by_spark,
    in_order,
    rows_of,
    schemas_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from medusa.engine.objects.query import Join, JoinKind, Map, Top, Union
from medusa.engine.spark.session import Spark

SECOND = 1_000_000

DOCUMENT = """<?xml version="1.0"?>
<!DOCTYPE borealis SYSTEM "../../src/src/borealis.dtd">
<borealis>
  <input stream="Bought" schema="BoughtTuple"/> <input stream="Sold" schema="KeyTuple"/>
  <input stream="Moved" schema="MovedTuple"/> <input stream="Sent" schema="MovedTuple"/>
  <input stream="Asked" schema="KeyTuple"/>
  <schema name="BoughtTuple" time="time">
    <field name="time" type="int"/> <field name="car" type="string" size="4"/>
    <field name="weight" type="int"/> <field name="place" type="int"/>
  </schema>
  <schema name="KeyTuple" time="time">
    <field name="time" type="int"/> <field name="car" type="string" size="4"/>
  </schema>
  <schema name="MovedTuple" time="time">
    <field name="time" type="int"/> <field name="who" type="string" size="4"/>
    <field name="x" type="int"/>
  </schema>
  <schema name="FleetTuple">
    <field name="car" type="string" size="4"/> <field name="weight" type="int"/>
    <field name="place" type="int"/> <field name="load" type="double"/>
    <field name="since" type="timestamp"/>
  </schema>
  <table name="Fleet" schema="FleetTuple"> <key field="car"/> </table>
  <query name="fleet">
    <box name="look" type="select">
      <in stream="Asked"/> <out stream="Found"/> <access table="Fleet"/>
      <parameter name="sql" value="select input.time, car, weight, place, load, since
        from Fleet where car = input.car"/>
    </box>
    <box name="move" type="update">
      <in stream="Moved"/> <out stream="Told"/> <access table="Fleet"/>
      <parameter name="sql" value="update Fleet set place = input.x, load = weight / 2.0 + input.x
        where car = input.who"/>
    </box>
    <box name="send" type="update">
      <in stream="Sent"/> <access table="Fleet"/>
      <parameter name="sql" value="UPDATE Fleet SET Fleet.load = coalesce(0.5, input.x),
        place = Fleet.weight - input.x WHERE Fleet.car = input.who"/>
    </box>
    <box name="buy" type="insert">
      <in stream="Bought"/> <access table="Fleet"/>
      <parameter name="sql"
        value="insert into Fleet values (input.car, input.weight, input.place, 0, stime)"/>
    </box>
    <box name="sell" type="delete">
      <in stream="Sold"/> <access table="Fleet"/>
      <parameter name="sql" value="delete from Fleet where car = input.car"/>
    </box>
  </query>
</borealis>
"""


def found(data: Mapping[str, Sequence[Row]]) -> list[tuple[Any, ...]]:
    """Return the rows that each query of the table finds: at each time cars are bought first, then
    moved, then sold, then queried; of several rows that one change makes of a car at one time the
    least one counts."""
    fleet: dict[str, tuple[Any, ...]] = {}
    made: list[tuple[Any, ...]] = []
    for time in sorted({row["time"] for rows in data.values() for row in rows}):
        now = {name: [row for row in rows if row["time"] == time] for name, rows in data.items()}
        bought: dict[str, list[tuple[Any, ...]]] = {}
        for row in now["Bought"]:
            new = (row["weight"], row["place"], 0.0, time * SECOND)
            bought.setdefault(row["car"], []).append(new)
        fleet |= {car: min(rows) for car, rows in bought.items()}
        moved: dict[str, list[tuple[Any, ...]]] = {}
        for row in [row for row in now["Moved"] if row["who"] in fleet]:
            weight, *_, since = fleet[row["who"]]
            moved.setdefault(row["who"], []).append(
                (weight, row["x"], weight / 2 + row["x"], since)
            )
        for row in [row for row in now["Sent"] if row["who"] in fleet]:
            weight, *_, since = fleet[row["who"]]
            moved.setdefault(row["who"], []).append((weight, weight - row["x"], 0.5, since))
        fleet |= {car: min(rows) for car, rows in moved.items()}
        for row in now["Sold"]:
            fleet.pop(row["car"], None)
        made += [
            (time * SECOND, time, row["car"], *fleet[row["car"]])
            for row in now["Asked"]
            if row["car"] in fleet
        ]
    return in_order(made)


def rows(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries({"time": st.integers(-3, 12), **fields})
    return st.lists(row, max_size=12).map(lambda made: sorted(made, key=lambda each: each["time"]))


cars, numbers = st.sampled_from("ab"), st.integers(0, 3)
inputs = st.fixed_dictionaries(
    {
        "Bought": rows(car=cars, weight=numbers, place=numbers),
        "Sold": rows(car=cars),
        "Moved": rows(who=cars, x=numbers),
        "Sent": rows(who=cars, x=numbers),
        "Asked": rows(car=cars),
    }
)
cut_at = st.sets(
    st.integers(-4 * SECOND, 13 * SECOND) | st.integers(-4, 13).map(lambda s: s * SECOND)
)


@settings(max_examples=examples(200, soak=2000))
@given(data=inputs, cuts=cut_at)
def test_a_row_follows_its_newest_insert_and_update(
    data: dict[str, list[Row]], cuts: set[int]
) -> None:
    made = by_interpreted_tasks(read(DOCUMENT), data, [*sorted(cuts), 20 * SECOND])
    assert rows_of(made["Found"]) == found(data)
    assert by_interpreter(read(DOCUMENT), data)["Found"] == found(data)


def all_at_once() -> dict[str, list[Row]]:
    """Return the changes of a car in each possible order, all at one time."""
    data: dict[str, list[Row]] = {name: [] for name in ("Bought", "Sold", "Moved", "Sent", "Asked")}
    changes = ("Bought", "Sold", "Moved", "Sent")
    for number, order in enumerate(itertools.product(changes, repeat=3)):
        car = f"c{number}"
        for place, name in enumerate(order):
            at = 0 if number % 4 == 0 else place * 5
            row = {"time": at, "x": place, "who": car, "car": car, "weight": number, "place": place}
            data[name].append(row)
        data["Asked"] += [{"time": time, "car": car} for time in (0, 4, 5, 12)]
    return {name: sorted(made, key=lambda row: row["time"]) for name, made in data.items()}


@pytest.mark.spark
def test_updates_at_one_time_apply_in_order_on_spark(spark: Spark, tmp_path: Path) -> None:
    data = all_at_once()
    names = {"Bought": ("car", "weight", "place"), "Sold": ("car",), "Asked": ("car",)}
    data = {
        name: [{key: row[key] for key in ("time", *names.get(name, ("who", "x")))} for row in made]
        for name, made in data.items()
    }
    expected = found(data)
    assert len(expected) > 60
    made = by_spark(spark, tmp_path, read(DOCUMENT), data, [4 * SECOND, 5 * SECOND, 20 * SECOND])
    assert rows_of(made["Found"]) == expected


def test_an_updated_table_has_a_base_that_is_not() -> None:
    document = read(DOCUMENT)
    (query,) = document.queries
    schemas = schemas_of(document)
    check_printed(query, {each.name: schemas[each.name] for each in document.streams})
    kinds = [type(box) for box in query.boxes]
    assert kinds.count(Top) == 2
    assert {box.name for box in query.boxes if isinstance(box, Top)} == {"Fleet/base", "Fleet/rows"}
    joins = {box.name: box for box in query.boxes if isinstance(box, Join)}
    assert joins.keys() == {"look", "move", "send"}
    assert joins["move"].right.endswith("/Fleet/base")
    assert joins["look"].right.endswith("/Fleet")
    assert joins["move"].kind is JoinKind.INNER
    assert joins["move"].predicate == "right.car = left.who"
    assert kinds[-1] is Join
    assert {Map, Union} < set(kinds)
