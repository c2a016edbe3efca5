"""Computes the changes of an output from revisions of its input: sans IO, and vectorised.

The output is computed for scenarios: tuples as they were before some revisions, and as they are
after them. The difference between the results is the revision of the output. All scenarios go
through one job; a field has the scenario's number.

* A task without a window treats each tuple alone. So the deleted tuples of one position are one
  scenario, the inserted ones another.
* A window is computed before and after the revisions. Its revision at position p is emitted at
  max(p, e), where e is the window's last microsecond. A window that is still open at p is emitted
  unrevised, together with its revision.
* The same holds for the pairs of a join, the matches of a pattern, sessions and cumulating windows.
  Each has an e of its own: its stime.

The position of a change depends on the inputs alone, and so does its content: the difference
between the result with all revisions up to there and the result before. The cut into epochs does
not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import (
    BEGINNING,
    END,
    REVISED_STIME,
    REVISION_KIND,
    SCENARIO,
    STIME,
    Schema,
)
from medusa.engine.operators.shared.step import Windows
from medusa.engine.streams.ordering import between
from medusa.engine.streams.revisions.columns import SIGN, multiplied, net, with_sign
from medusa.engine.streams.revisions.corrections import Kind

POSITION: Final = "position "
"""The name of the column with a revision's position; no field's name has a blank."""


@dataclass
class Scenarios:
    """Cases, by their numbers.

    Attributes:
        comes: the position at which a case's result appears; None: it existed before. goes: the
            position at which it disappears; None: it stays. ends: the stime of its results; other
            results belong to incomplete windows, and are ignored. None: all count. spans: the first
            and the last stime of the results, if they depend on tuples near each other; other
            results are incomplete, and are ignored. Each appears or disappears at its stime at the
            earliest. None: they depend on one tuple or one window.
    """

    comes: list[int | None] = field(default_factory=list)
    goes: list[int | None] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)
    spans: list[tuple[int, int] | None] = field(default_factory=list)

    def add(
        self,
        comes: int | None,
        goes: int | None,
        end: int | None = None,
        span: tuple[int, int] | None = None,
    ) -> int:
        self.comes.append(comes)
        self.goes.append(goes)
        self.ends.append(end)
        self.spans.append(span)
        return len(self.comes) - 1

    def changes(self, results: Sequence[pa.Table], schema: Schema) -> pa.Table:
        """The revisions to log, in canonical order.

        Args:
            results: the tuples of all cases, with their numbers. schema: the schema of the log.
        """
        table = pa.concat_tables(results)
        case = table.column(SCENARIO).combine_chunks()
        ends = pa.array(self.ends, pa.int64()).take(case)
        table = table.filter(pc.or_kleene(pc.is_null(ends), pc.equal(ends, table.column(STIME))))
        table = self._within_spans(table)
        case = table.column(SCENARIO).combine_chunks()
        joined = pa.array([span is not None for span in self.spans], pa.bool_()).take(case)
        stime = table.column(STIME).combine_chunks()
        table = table.drop_columns([SCENARIO])
        both: list[pa.Table] = []
        for positions, sign in ((self.comes, 1), (self.goes, -1)):
            at = pa.array(positions, pa.int64()).take(case)
            later = pc.max_element_wise(at, stime, skip_nulls=False)
            at = pc.if_else(joined, later, at)
            placed = with_sign(table.append_column(POSITION, at), sign)
            both.append(placed.filter(pc.is_valid(at)))
        summed = net(both)
        parts = [
            _logged(multiplied(summed, -1), Kind.DELETION, schema),
            _logged(multiplied(summed, 1), Kind.INSERTION, schema),
        ]
        found = pa.concat_tables(parts)
        keys = [(name, "ascending") for name in found.column_names]
        return found.take(pc.sort_indices(found, sort_keys=keys))

    def _within_spans(self, table: pa.Table) -> pa.Table:
        case = table.column(SCENARIO).combine_chunks()
        stime = table.column(STIME)
        spans = [span or (BEGINNING, END) for span in self.spans]
        first = pa.array([each[0] for each in spans], pa.int64()).take(case)
        last = pa.array([each[1] for each in spans], pa.int64()).take(case)
        return table.filter(pc.and_(pc.greater_equal(stime, first), pc.less_equal(stime, last)))


def _logged(tuples: pa.Table, kind: Kind, schema: Schema) -> pa.Table:
    columns = {
        STIME: tuples.column(POSITION),
        REVISED_STIME: tuples.column(STIME),
        REVISION_KIND: pa.repeat(pa.scalar(str(kind)), tuples.num_rows),
    }
    shape = schema.derived
    columns |= {n: tuples.column(n) for n in shape.names if n not in columns}
    return pa.table(columns).cast(shape)


def apart(revisions: pa.Table) -> tuple[Scenarios, pa.Table]:
    """The cases of a task without a window, and their tuples.

    Args:
        revisions: signed, with POSITION.
    """
    cases = Scenarios()
    positions = pc.unique(revisions.column(POSITION))
    for position in positions.to_pylist():
        cases.add(None, position)
        cases.add(position, None)
    number = pc.multiply(pc.index_in(revisions.column(POSITION), positions), 2)
    number = pc.add(number.cast(pa.int64()), pc.greater(revisions.column(SIGN), 0).cast(pa.int64()))
    tuples = revisions.drop_columns([SIGN, POSITION])
    return cases, tuples.append_column(SCENARIO, number)


@dataclass(frozen=True, slots=True)
class Revised:
    """A window (end - size, end], and the positions of its revisions, ascending."""

    end: int
    positions: tuple[int, ...]


def revised_windows(revisions: pa.Table, window: Windows, after: int, upto: int) -> list[Revised]:
    """The windows whose revision is emitted in (after, upto], in order.

    Args:
        revisions: all revisions up to `upto` that are about tuples of those windows, with POSITION.
    """
    times = revisions.column(STIME).combine_chunks()
    at = revisions.column(POSITION).combine_chunks()
    last = _last_window(times, window.advance_us)
    found: list[pa.Table] = []
    for back in range(-(-window.size_us // window.advance_us)):
        end = pc.add(last, window.size_us - 1 - back * window.advance_us)
        position = pc.max_element_wise(at, end)
        due = pc.and_(pc.greater(position, after), pc.less_equal(position, upto))
        table = pa.table({"end": end, POSITION: position})
        found.append(table.filter(pc.and_(due, pc.greater_equal(end, times))))
    pairs = pa.concat_tables(found).group_by(["end", POSITION]).aggregate([])
    pairs = pairs.sort_by([("end", "ascending"), (POSITION, "ascending")])
    by_end: dict[int, list[int]] = {}
    for end, position in zip(*(column.to_pylist() for column in pairs.columns), strict=True):
        by_end.setdefault(end, []).append(position)
    return [Revised(end, tuple(positions)) for end, positions in by_end.items()]


def _last_window(times: pa.Array, advance: int) -> pa.Array:
    """The start of the last window that holds each time."""
    # the quotient is rounded towards zero, but windows are aligned downwards
    quotient = pc.divide(times, advance)
    below = pc.and_(pc.less(times, 0), pc.not_equal(pc.multiply(quotient, advance), times))
    return pc.multiply(pc.subtract(quotient, below.cast(pa.int64())), advance)


def contents(
    cases: Scenarios,
    revised: Revised,
    size_us: int,
    tuples: pa.Table,
    revisions: pa.Table,
    *,
    after: int,
) -> Iterator[pa.Table]:
    """The contents of a window before its first revision after `after`, and after each later one,
    as cases.

    Args:
        tuples: the input's tuples in order of stime, the window's among them.
        revisions: signed, with POSITION, in order of stime.
    """
    end = revised.end
    unrevised = between(tuples, end - size_us, end)
    about = between(revisions, end - size_us, end)
    position = pc.max_element_wise(about.column(POSITION), end)
    about = about.drop_columns([POSITION])
    for come, go in pairwise((None, *revised.positions, None)):
        known = about.filter(pc.less_equal(position, after if come is None else come))
        case = cases.add(come, go, end)
        rows = _applied(unrevised, known)
        yield rows.append_column(SCENARIO, pa.repeat(pa.scalar(case, pa.int64()), rows.num_rows))


@dataclass(frozen=True, slots=True)
class Run:
    """Revised tuples that are near each other.

    Attributes:
        first, last: their least and greatest stime. positions: the positions of their revisions,
            ascending.
    """

    first: int
    last: int
    positions: tuple[int, ...]


def revised_runs(revisions: Sequence[pa.Table], span_us: int, since: int) -> list[Run]:
    """The revised tuples of some inputs, in groups that share no result. Args: revisions: the
    revisions of each input, with POSITION. span_us: how long a tuple contributes to results. since:
    only tuples that are revised at a later position, microseconds.
    """
    table = pa.concat_tables([each.select([STIME, POSITION]) for each in revisions])
    table = table.filter(pc.greater(table.column(POSITION), since)).sort_by(STIME)
    runs: list[Run] = []
    times: list[int] = []
    positions: set[int] = set()
    for stime, position in zip(*(column.to_pylist() for column in table.columns), strict=True):
        if times and stime - times[-1] > 2 * span_us:
            runs.append(Run(times[0], times[-1], tuple(sorted(positions))))
            times, positions = [], set()
        times.append(stime)
        positions.add(position)
    if times:
        runs.append(Run(times[0], times[-1], tuple(sorted(positions))))
    return runs


def joined_contents(
    cases: Scenarios,
    run: Run,
    span_us: int,
    tuples: Mapping[str, pa.Table],
    revisions: Mapping[str, pa.Table],
    *,
    since: int,
) -> dict[str, pa.Table]:
    """The inputs around a run, before its first revision after `since` and after each, as cases.

    Args:
        tuples: for each input its tuples in order of stime, with all tuples that may share a result
            with the run's. revisions: for each input its revisions, signed, with POSITION, in order
            of stime.
    """
    made: dict[str, list[pa.Table]] = {name: [] for name in tuples}
    for come, go in pairwise((None, *run.positions, None)):
        case = cases.add(come, go, span=(run.first, run.last + span_us))
        for name, unrevised in tuples.items():
            about = between(revisions[name], run.first - span_us - 1, run.last + span_us)
            known = about.filter(
                pc.less_equal(about.column(POSITION), since if come is None else come)
            )
            rows = _applied(unrevised, known.drop_columns([POSITION]))
            number = pa.repeat(pa.scalar(case, pa.int64()), rows.num_rows)
            made[name].append(rows.append_column(SCENARIO, number))
    return {name: pa.concat_tables(parts) for name, parts in made.items()}


def _applied(tuples: pa.Table, revisions: pa.Table) -> pa.Table:
    """The tuples after these revisions, in any order."""
    if not revisions.num_rows:
        return tuples
    times = revisions.column(STIME).unique()
    touched = pc.is_in(tuples.column(STIME), times)
    changed = net([with_sign(tuples.filter(touched), 1), revisions])
    return pa.concat_tables([tuples.filter(pc.invert(touched)), multiplied(changed, 1)])
