"""Checks the streams: no tuple is lost, repeated or wrong beyond the promises.

* A subscriber's epochs follow one another: boundaries never go back, no tuple is outside its epoch.
* All subscribers of a stream have the same tuples up to the lower one's boundary. Each begins at
  the beginning of the stream; for a query with amnesia or upstream backup, at the start of the new
  primary's history.
* Every acknowledged row is in its source stream or among its late tuples, once. An unacknowledged
  row is there once or not at all. No other row is anywhere.
* A derived stream equals one batch run of its query over the inputs that subscribers have. With
  recovery `gap`, a standby may leave tuples out: every one that comes must be in the batch answer.
  One consumer of such a stream may have a tuple that another never saw, so streams made from it are
  not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Query, streams_read, streams_written
from medusa.engine.objects.schema import BEGINNING, END, SEQ, STIME
from medusa.engine.reference.interpreter import run_query
from medusa.engine.tasks.network import Network
from medusa.testnet.simulation.history import (
    Acknowledged,
    Attempted,
    History,
    Late,
    Posted,
    Received,
    Row,
    Violation,
    found,
    schema_of,
)
from medusa.testnet.simulation.manifest import Check, Manifest

_STREAMS: Final = Check.STREAMS


@dataclass
class Record:
    """One subscriber's part of a stream: all tuples with begin < stime <= boundary."""

    subscriber: str
    stream: str
    begin: int
    boundary: int
    rows: list[Row]

    def within(self, begin: int, boundary: int) -> list[Row]:
        return [row for row in self.rows if begin < row[STIME] <= boundary]


def check_streams(history: History, manifest: Manifest) -> list[Violation]:
    """Run the checks above."""
    records: dict[str, Record] = {}
    wrong = list(_follow(history, records))
    longest: dict[str, Record] = {}
    for record in records.values():
        other = longest.setdefault(record.stream, record)
        if (-record.begin, record.boundary) > (-other.begin, other.boundary):
            longest[record.stream] = record
    forgetful, patchy = _outputs(manifest, _forgets), _patchy(manifest)
    wrong += [
        found(_STREAMS, f"{record.subscriber} was given {record.stream} from {record.begin} on")
        for record in records.values()
        if record.begin > BEGINNING and record.stream not in forgetful
    ]
    wrong += _disagreements(records, longest, patchy)
    for stream in manifest.streams:
        wrong += _unaccounted(history, stream.name, longest.get(stream.name))
    wrong += _differences(manifest, longest)
    return wrong


def _follow(history: History, records: dict[str, Record]) -> Iterator[Violation]:
    for epoch in history.of(Received):
        record = records.setdefault(
            epoch.subscriber,
            Record(epoch.subscriber, epoch.stream, epoch.after, epoch.after, []),
        )
        where = f"{epoch.subscriber} at {epoch.peer}, {epoch.at:.3f} s"
        if epoch.after != record.boundary or epoch.upto < epoch.after:
            yield found(
                _STREAMS,
                f"{where}: after boundary {record.boundary} came ({epoch.after}, {epoch.upto}]",
            )
        outside = [row for row in epoch.rows if not epoch.after < row[STIME] <= epoch.upto]
        if outside:
            what = f"{where}: tuples outside of their epoch ({epoch.after}, {epoch.upto}]"
            yield found(_STREAMS, what, outside)
        record.boundary = max(record.boundary, epoch.upto)
        record.rows.extend(epoch.rows)


def _disagreements(
    records: Mapping[str, Record], longest: Mapping[str, Record], patchy: frozenset[str]
) -> Iterator[Violation]:
    for record in records.values():
        other = longest[record.stream]
        boundary = min(record.boundary, other.boundary)
        ours, theirs = (each.within(record.begin, boundary) for each in (record, other))
        if ours != theirs and record.stream not in patchy:
            yield found(
                _STREAMS,
                f"{record.stream}: {record.subscriber} and {other.subscriber} differ",
                _difference(ours, theirs),
            )


def _difference(got: list[Row], wanted: list[Row]) -> list[str]:
    """The tuples that are in only one of the two."""
    ours, theirs = (Counter(_key(row) for row in rows) for rows in (got, wanted))
    lines = [f"unexpected: {dict(row)}" for row in (ours - theirs).elements()]
    lines += [f"missing: {dict(row)}" for row in (theirs - ours).elements()]
    return lines or ["the same tuples in another order"]


def _key(row: Row) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(row.items()))


# -- source streams --------------------------------------------------------------------------------


def _unaccounted(history: History, stream: str, record: Record | None) -> Iterator[Violation]:
    posted: dict[tuple[str, int], Posted] = {}
    for attempt in history.of(Attempted):
        if attempt.stream == stream:
            posted |= {(row.poster, row.number): row for row in attempt.rows}
    late = [row for each in history.of(Late) if each.stream == stream for row in each.rows]
    there: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in (*(record.rows if record else ()), *late):
        there[row["poster"], row["number"]].append(row)
    forged = [rows[0] for name, rows in there.items() if not _is(posted.get(name), rows[0])]
    if forged:
        yield found(_STREAMS, f"{stream} has rows that nobody posted", forged)
    repeated = [rows for rows in there.values() if len(rows) > 1]
    if repeated:
        yield found(_STREAMS, f"{stream} has rows twice", repeated)
    read_late = any(each.stream == stream for each in history.of(Late))
    if record is None or record.boundary < END or not read_late:
        return
    acknowledged = {each.poster: each.upto for each in history.of(Acknowledged)}
    lost = [
        row
        for name, row in posted.items()
        if row.number <= acknowledged.get(row.poster, 0) and name not in there
    ]
    if lost:
        yield found(_STREAMS, f"{stream} lost acknowledged rows", lost)


def _is(posted: Posted | None, row: Row) -> bool:
    if posted is None:
        return False
    return (posted.t, posted.key, posted.value) == (row["t"], row["key"], row["value"])


# -- derived streams -------------------------------------------------------------------------------


def _differences(manifest: Manifest, longest: Mapping[str, Record]) -> Iterator[Violation]:
    """Differences between each query's outputs and a batch run over its inputs as received."""
    entries: dict[str, StreamEntry] = {
        stream.name: StreamEntry(
            StreamDefinition(stream.name, schema_of(stream.name).name), schema_of(stream.name)
        )
        for stream in manifest.streams
    }
    known = {name: longest[name] for name in entries if name in longest}
    waiting = [table.query() for table in manifest.queries]
    while ready := [query for query in waiting if _inputs(query) <= known.keys()]:
        for query in ready:
            waiting.remove(query)
            yield from _compare(query, entries, known, longest)


def _inputs(query: Query) -> frozenset[str]:
    return streams_read(query) - streams_written(query)


def _compare(
    query: Query,
    entries: dict[str, StreamEntry],
    known: dict[str, Record],
    longest: Mapping[str, Record],
) -> Iterator[Violation]:
    inputs = {name: entries[name] for name in _inputs(query)}
    schemas = Network(query, inputs).schemas()
    upto = min(known[name].boundary for name in inputs)
    made = run_query(query, {name: known[name].rows for name in inputs}, schemas)
    for stream in sorted(streams_written(query)):
        definition = StreamDefinition(stream, schemas[stream].name, query=query.name)
        entries[stream] = StreamEntry(definition, schemas[stream])
        answer = Record("a batch run", stream, BEGINNING, upto, made[stream])
        record = longest.get(stream)
        if record is None:
            if not _may_miss(query):
                known[stream] = answer
            continue
        # if a stream has a gap, one consumer may have a tuple that another never saw
        if record.begin == BEGINNING and not _may_miss(query):
            known[stream] = record
        boundary = min(record.boundary, upto)
        got, wanted = (
            [
                {k: v for k, v in row.items() if k != SEQ}
                for row in each.within(record.begin, boundary)
            ]
            for each in (record, answer)
        )
        if _may_miss(query):
            extra = Counter(map(_key, got)) - Counter(map(_key, wanted))
            if extra:
                text = f"{stream}: tuples that no batch run makes"
                yield found(_STREAMS, text, map(dict, extra.elements()))
        elif got != wanted:
            text = f"{stream} differs from one batch run of {query.name}, up to {boundary}"
            yield found(_STREAMS, text, _difference(got, wanted))


def _may_miss(query: Query) -> bool:
    """Whether a takeover may lose tuples: the query has a standby, and recovery `gap`."""
    wanted = query.availability
    return wanted.recovery is Recovery.GAP and wanted.mode is not Mode.NONE


def _patchy(manifest: Manifest) -> frozenset[str]:
    """The outputs of queries that may miss tuples, and all streams derived from these: where two
    peers of a participant are cut off from each other, each copy computes from its own gaps."""
    patchy: set[str] = set()
    for query in (table.query() for table in manifest.queries):  # a query reads earlier ones
        if _may_miss(query) or not patchy.isdisjoint(_inputs(query)):
            patchy |= streams_written(query)
    return frozenset(patchy)


def _forgets(query: Query) -> bool:
    """Whether a new primary may lack the history of the outputs."""
    return query.availability.mode in {Mode.AMNESIA, Mode.UPSTREAM_BACKUP}


def _outputs(manifest: Manifest, holds: Callable[[Query], bool]) -> frozenset[str]:
    """The streams of the queries for which `holds` is true."""
    queries = (table.query() for table in manifest.queries)
    return frozenset(name for query in queries if holds(query) for name in streams_written(query))
