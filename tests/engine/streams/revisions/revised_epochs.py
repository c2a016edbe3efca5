"""Draws sources and tasks under revisions, with the expected results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import strategies as st
from reference_networks import SOURCE_FIELDS

from medusa.engine.evaluation.expressions import Row
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Map, Query, Union
from medusa.engine.objects.schema import Field, FieldType, Schema

SLACK_US = 20


HISTORY_US = 10**9


FIELDS = (*SOURCE_FIELDS, Field("t", FieldType.LONG))


KEYED = Schema("s0", FIELDS, time="t", key=("b",))


PLAIN = Schema("s1", FIELDS, time="t")


SCHEMAS = {"s0": KEYED, "s1": PLAIN}


payloads = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-3, 5),
        "b": st.integers(-3, 5),
        "c": st.none() | st.sampled_from(["", "x", "X", "x.y"]),
        "d": st.integers(-8, 8).map(lambda n: n / 4),
        "t": st.integers(-40, 60),
    }
)


revisions = st.tuples(st.sampled_from(["DELETION", "REPLACEMENT"]), payloads)


@dataclass(frozen=True)
class Act:
    """One post of tuples, or of revisions of s0. promise: a boundary."""

    stream: str
    rows: list[Row] = field(default_factory=list)
    revised: list[tuple[str, Row]] = field(default_factory=list)
    promise: int | None = None


acts = st.one_of(
    st.builds(Act, st.sampled_from(["s0", "s1"]), st.lists(payloads, max_size=6)),
    st.builds(Act, st.just("s0"), st.just([]), st.lists(revisions, min_size=1, max_size=5)),
    st.builds(Act, st.sampled_from(["s0", "s1"]), st.just([]), st.just([]), st.integers(-50, 70)),
)


class Model:
    """A source in plain Python. state: its tuples, with all revisions."""

    def __init__(self, history_us: int, lateness_us: int = 0) -> None:
        self.state: list[Row] = []
        self.boundary = self.greatest = self.revised_at = -(2**63)
        self.number = 0
        self._history_us = history_us
        self._lateness_us = lateness_us

    def take(self, act: Act) -> list[int]:
        """Apply the post; return the numbers of revisions that found no tuple."""
        missed = self._revise(act.revised)
        for row in act.rows:
            reach = self.boundary - (self._lateness_us if self.boundary < 2**63 - 1 else 0)
            if row["t"] > reach:
                self.state.append({**row, "stime": row["t"], "seq": self.number})
            if reach < row["t"] <= self.boundary:
                self.revised_at = max(self.boundary + 1, self.revised_at)
            self.number += 1
            self.greatest = max(self.greatest, row["t"])
            self.boundary = max(self.boundary, self.greatest - SLACK_US - 1)
        if act.promise is not None:
            self.boundary = max(self.boundary, act.promise)
        return missed

    def _revise(self, revised: Sequence[tuple[str, Row]]) -> list[int]:
        least = max(self.boundary + 1, self.revised_at)
        state, missed, times = self._revised(revised, least - self._history_us)
        position = max(least, *times, -(2**63))
        if any(time <= position - self._history_us for time in times):
            state, missed, times = self._revised(revised, position - self._history_us)
            position = max(least, *times, -(2**63))
        if times:
            self.state, self.revised_at = state, position
        return missed

    def _revised(
        self, revised: Sequence[tuple[str, Row]], after: int
    ) -> tuple[list[Row], list[int], list[int]]:
        state, missed, times = list(self.state), [], []
        for number, (kind, new) in enumerate(revised):
            found = [row for row in state if row["b"] == new["b"] and row["stime"] > after]
            newest = max(found, key=lambda row: (row["stime"], row["seq"]), default=None)
            if newest is None or (kind == "REPLACEMENT" and new["t"] <= after):
                missed.append(number)
                continue
            state.remove(newest)
            times.append(newest["stime"])
            if kind == "REPLACEMENT":
                state.append({**new, "stime": new["t"], "seq": newest["seq"]})
                times.append(new["t"])
        return state, missed, times

    @property
    def rows(self) -> list[Row]:
        return sorted(self.state, key=lambda row: (row["stime"], row["seq"]))


def entry_of(schema: Schema, history_us: int = HISTORY_US, lateness_us: int = 0) -> StreamEntry:
    definition = StreamDefinition(
        schema.name, schema.name, history_us=history_us, lateness_us=lateness_us
    )
    return StreamEntry(definition, schema)


def as_rows(table: pa.Table) -> list[Row]:
    columns = {
        name: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns).to_pylist()


SUM = AggregateCall("sum", "b", "total")


LAST = AggregateCall("lastval", "a", "last")


DENSE = Query(
    "q",
    (
        Aggregate("sliding", "s0", "sliding", 30, 10, ("c",), (SUM, LAST)),
        Filter("odd", "s0", ("odd", "even"), ("b % 2 = 1",), pass_on_false=True),
        Aggregate("odd_sums", "odd", "odd_sums", 20, 20, (), (SUM,)),
        Union("both", ("odd", "s1"), "both"),
        Aggregate("of_both", "both", "of_both", 7, 7, (), (SUM, LAST)),
        Map("total", "odd_sums", "totals", (("b", "total"),)),
        Aggregate("again", "totals", "again", 40, 40, (), (SUM,)),
    ),
)


def after(rows: Sequence[Row], boundary: int) -> list[Row]:
    return [row for row in rows if row["stime"] > boundary]
