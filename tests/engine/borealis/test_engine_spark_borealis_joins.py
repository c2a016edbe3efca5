"""Joins of Borealis with buffers of tuples give the pairs of two queues in plain Python."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from borealis_boxes import check_printed, read
from computed_documents import (
    BASE,
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

from examples import ONE_FIXTURE, examples
from medusa.engine.language.sides import renamed
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.reading import read_document
from medusa.engine.spark.session import Spark
from medusa.engine.streams.revisions.columns import revisions_entry
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError

SECOND = 1_000_000

HEAD = """<borealis>
  <input stream="s" schema="s_tuple"/> <input stream="u" schema="u_tuple"/>
  <schema name="s_tuple" time="time">
    <field name="time" type="int"/> <field name="number" type="int"/>
    <field name="deleted" type="bool"/>
  </schema>
  <schema name="u_tuple" time="seen">
    <field name="seen" type="int"/> <field name="at" type="int"/> <field name="slot" type="int"/>
  </schema>
"""
"""The beginning of the documents. Its fields have names that a table of last tuples has as well, so
that these names must not be confused."""

PREDICATES: dict[str, Callable[[Row, Row], bool]] = {
    "true": lambda left, right: True,
    "left.number = right.at": lambda left, right: left["number"] == right["at"],
    "not left.deleted and left.stime >= right.stime": (
        lambda left, right: not left["deleted"] and left["time"] >= right["seen"]
    ),
}


@dataclass(frozen=True)
class Buffer:
    """The buffer of one side, in seconds or in tuples."""

    by: str
    size: int


@dataclass(frozen=True)
class Case:
    left: Buffer
    right: Buffer
    predicate: str
    itself: bool = False

    @property
    def text(self) -> str:
        right = "" if self.itself else '<in stream="u"/>'
        fields = ("left.time", "left.number", "left.deleted")
        fields += ("right.time", "right.number") if self.itself else ("right.at", "right.slot")
        given = {"predicate": self.predicate.replace(">", "&gt;")}
        for side, buffer in (("left", self.left), ("right", self.right)):
            given |= {f"{side}-order-by": buffer.by, f"{side}-buffer-size": str(buffer.size)}
        for number, field in enumerate(fields):
            given |= {f"out-field.{number}": field, f"out-field-name.{number}": f"f{number}"}
        parameters = "".join(f'<parameter name="{k}" value="{v}"/>' for k, v in given.items())
        return f"""{HEAD}<query name="q"><box name="j" type="join"><in stream="s"/>{right}
            <out stream="out"/>{parameters}</box></query></borealis>"""

    def pairs(self, data: Mapping[str, Sequence[Row]]) -> list[tuple[Any, ...]]:
        """Return the pairs of two queues: tuples come in the order of time, the left ones of a time
        first."""
        other = data["s"] if self.itself else data["u"]
        time = "time" if self.itself else "seen"
        coming = [(row["time"], 0, number, row) for number, row in enumerate(data["s"])]
        coming += [(row[time], 1, number, row) for number, row in enumerate(other)]
        kept: tuple[deque[Row], deque[Row]] = (deque(), deque())
        sizes, found = (self.left, self.right), []
        for at, side, _, row in sorted(coming, key=lambda each: each[:3]):
            for one in (0, 1):
                if sizes[one].by == "VALUES":
                    # a right tuple is in the buffer for left tuples of later times, since it comes
                    # after the left tuples of its own time
                    name = ("time", time)[one]
                    while kept[one] and kept[one][0][name] + sizes[one].size < at:
                        kept[one].popleft()
            for partner in kept[1 - side]:
                left, right = (row, partner) if side == 0 else (partner, row)
                if not PREDICATES[self.predicate](left, right):
                    continue
                ends = ("time", "number") if self.itself else ("at", "slot")
                mine = (left["time"], left["number"], left["deleted"])
                found.append((at * SECOND, *mine, *(right[each] for each in ends)))
            kept[side].append(row)
            if sizes[side].by == "TUPLES" and len(kept[side]) > sizes[side].size:
                kept[side].popleft()
        return in_order(found)


counts = st.builds(Buffer, st.just("TUPLES"), st.integers(1, 4))
seconds = st.builds(Buffer, st.just("VALUES"), st.integers(0, 4))
cases = st.builds(Case, counts, counts | seconds, st.sampled_from([*PREDICATES])) | st.builds(
    Case, seconds, counts, st.sampled_from([*PREDICATES])
)
of_itself = st.builds(Case, counts, counts | seconds, st.just("true"), itself=st.just(True))


def rows(fields: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Row]]:
    time = next(iter(fields))
    return st.lists(st.fixed_dictionaries(fields), max_size=14).map(
        lambda found: sorted(found, key=lambda each: each[time])
    )


small = st.integers(0, 2)
inputs = st.fixed_dictionaries(
    {
        "s": rows({"time": st.integers(-3, 8), "number": small, "deleted": st.booleans()}),
        "u": rows({"seen": st.integers(-3, 8), "at": small, "slot": small}),
    }
)
cut_at = st.sets(
    st.integers(-4 * SECOND, 9 * SECOND) | st.integers(-4, 9).map(lambda s: s * SECOND)
)


@settings(max_examples=examples(150, soak=2000))
@given(case=cases | of_itself, data=inputs, cuts=cut_at)
def test_a_tuple_is_paired_with_the_last_ones_of_the_other_side(
    case: Case, data: dict[str, list[Row]], cuts: set[int]
) -> None:
    boundaries = [*sorted(cuts - {20 * SECOND}), 20 * SECOND]
    made = by_interpreted_tasks(read(case.text), data, boundaries)["out"]
    assert rows_of(made) == case.pairs(data)
    assert by_interpreter(read(case.text), data)["out"] == case.pairs(data)


@pytest.mark.spark
@settings(max_examples=examples(3, soak=60), suppress_health_check=ONE_FIXTURE)
@given(case=cases | of_itself, data=inputs, cuts=cut_at)
def test_updates_at_one_time_apply_in_order_on_spark(
    spark: Spark, case: Case, data: dict[str, list[Row]], cuts: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        boundaries = [*sorted(cuts)[:2], 20 * SECOND]
        made = by_spark(spark, Path(folder), read(case.text), data, boundaries)["out"]
    assert rows_of(made) == case.pairs(data)


@pytest.mark.parametrize("left", [Buffer("TUPLES", 3), Buffer("VALUES", 3)])
def test_the_boxes_of_a_join_are_printed_in_all_languages(left: Buffer) -> None:
    document = read(Case(left, Buffer("TUPLES", 4), "left.number = right.at").text)
    schemas = schemas_of(document)
    inputs = {each.name: schemas[each.name] for each in document.streams}
    check_printed(document.queries[0], inputs)


@pytest.mark.parametrize("revised", ["s", "u"])
def test_tuples_that_may_be_revised_are_not_numbered(revised: str) -> None:
    text = Case(Buffer("TUPLES", 3), Buffer("TUPLES", 3), "true").text
    document = read_document(
        text.replace(
            f'"{revised}_tuple" time',
            f'"{revised}_tuple" key="{"number" if revised == "s" else "at"}" time',
        ),
        BASE,
    )
    schemas = {each.name: each for each in document.schemas}
    entries = {
        each.name: StreamEntry(StreamDefinition(each.name, each.schema), schemas[each.schema])
        for each in document.streams
    }
    beside = revisions_entry(entries[f"{BASE}/{revised}"])
    network = Network(document.queries[0], {**entries, beside.stream.name: beside})
    half = {"s": "left", "u": "right"}[revised]
    words = (
        f"^{BASE}/out/{half}/numbered numbers the tuples of {BASE}/{revised}, .* a buffer, of time$"
    )
    with pytest.raises(InvalidInputError, match=words):
        network.tasks()


def test_sides_and_fields_of_an_expression_get_other_names() -> None:
    sides = {"left": ("right", {"stime": "at", "k": "k k"}), "right": ("left", {"k": "or"})}
    for text, other in (
        (
            'left.k = right.k and "left".x>right.stime',
            'right."k k" = left."or" AND right.x > left.stime',
        ),
        (
            "\"left.k\"='left.k' or left(left.k, 3) = ''",
            "right.\"k k\" = 'left.k' OR left(right.\"k k\", 3) = ''",
        ),
        ("left.stime - INTERVAL '5' MINUTE < right . z", "right.at - INTERVAL '5' MINUTE < left.z"),
        ("position(left.k in right.y) = 1", 'position(right."k k", left.y) = 1'),
        ("left + 1", '"left" + 1'),
    ):
        assert renamed(text, sides) == other
