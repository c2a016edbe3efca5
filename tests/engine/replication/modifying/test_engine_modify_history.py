"""The stored history of a query, over random modifications and without a peer, equals a list of all
editions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from modified_queries import chains, other_box, stored_query
from reference_networks import SOURCES, queries

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.records.query_history import (
    MAX_BYTES,
    follows,
    modified,
    postponed,
    settled,
    withdrawn,
)
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import (
    MAX_EDITIONS,
    Edition,
    changed,
    check_history,
    made_since,
    restored,
    succeeded,
    trimmed,
)
from medusa.overlay.encoding import encode
from medusa.overlay.errors import BusyError, InvalidInputError


@dataclass(frozen=True)
class Past:
    """A query that was modified.

    Attributes:
        stored: the stored query before all modifications, and after each of them. tasks: the tasks
            at the same moments. since: the boundary from which on each edition counts.
    """

    stored: Sequence[StoredQuery]
    tasks: Sequence[tuple[Task, ...]]
    since: Sequence[int]

    def edition_at(self, boundary: int) -> int:
        """Return the number of the edition that makes the results after the boundary."""
        return max(n for n, since in enumerate(self.since) if since <= boundary)


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Draw histories: modifications before the first result, and later ones, each over the result
    of the one before."""
    first = stored_query(draw(queries() | chains()))
    stored, tasks, since = [first], [first.network.tasks()], [BEGINNING]
    for _ in range(draw(st.integers(1, 5))):
        query = draw(others(stored[-1].entry.query))
        early = since[-1] == BEGINNING and draw(st.booleans())
        at = BEGINNING if early else max(since[-1], -20) + draw(st.integers(1, 9))
        try:
            now = Network(query, first.inputs, first.kept).tasks()
            if not changed(tasks[-1], now):
                continue
            tasks.append(succeeded(tasks[-1], now, at))
        except InvalidInputError:
            continue  # the changed box has other types or other fields
        stored.append(modified(stored[-1], query, at))
        since.append(at)
    event(f"{len(stored) - 1} modifications")
    return Past(stored, tasks, since)


@st.composite
def others(draw: st.DrawFn, query: Query) -> Query:
    """Draw another or the same box; the result may not type-check."""
    boxes = {box.name: box for box in query.boxes}
    box = other_box(draw, boxes[draw(st.sampled_from(sorted(boxes)))], check_query(query, SOURCES))
    if box is not None:
        boxes[box.name] = box
    return msgspec.structs.replace(query, boxes=tuple(boxes.values()))


boundaries = st.integers(-25, 40) | st.sampled_from([BEGINNING, END])


@settings(max_examples=50)
@given(pasts())
def test_a_restart_plans_what_was_running(past: Past) -> None:
    for stored, tasks in zip(past.stored, past.tasks, strict=True):
        assert stored.network.tasks() == tasks
        assert msgspec.json.decode(msgspec.json.encode(stored), type=StoredQuery) == stored


@settings(max_examples=50)
@given(pasts(), boundaries)
def test_tasks_follow_the_edition_of_their_boundary(past: Past, boundary: int) -> None:
    said = past.stored[past.edition_at(boundary)].entry.query
    plain = Network(said, past.stored[0].inputs, past.stored[0].kept).tasks()
    now = past.stored[-1].network.tasks()
    assert [task.at(boundary) for task in now] == list(plain)
    later = [since for since in past.since if since > boundary]
    for task in now:
        assert task.edition_until(boundary) >= min(later, default=END)


@settings(max_examples=50)
@given(pasts())
def test_the_history_returns_former_editions_unchanged(past: Past) -> None:
    query = past.stored[-1].entry.query
    for edition, stored in zip(past.stored[-1].editions[::-1], past.stored[-2::-1], strict=True):
        after, query = query, restored(query, edition)
        assert query == stored.entry.query
        assert all(box not in after.boxes for box in edition.boxes), "what stays is said once"
    assert past.stored[-1].entry.edition == len(past.stored) - 1
    assert past.stored[-1].entry.since == past.since[-1]


@settings(max_examples=50)
@given(pasts(), st.data())
def test_a_modification_that_is_withdrawn_never_was(past: Past, data: st.DataObject) -> None:
    for before, tasks in zip(past.stored[:-1], past.tasks[:-1], strict=True):
        computed = {task.name: data.draw(boundaries) for task in tasks}
        before = settled(before, tasks, computed)  # noqa: PLW2901 - whatever is forgotten of it
        query = data.draw(others(before.entry.query))
        if query != before.entry.query:
            at = max(before.entry.since, 0) + data.draw(st.integers(1, 9))
            event("settled" if len(before.editions) < before.entry.edition else "whole")
            assert withdrawn(modified(before, query, at)) == before


@settings(max_examples=50)
@given(pasts(), st.integers(1, 50))
def test_a_modification_that_is_put_off_was_made_for_then(past: Past, later: int) -> None:
    at = past.since[-1] + later
    assert postponed(modified(past.stored[0], past.stored[-1].entry.query, 0), at) == modified(
        past.stored[0], past.stored[-1].entry.query, at
    )


@settings(max_examples=50)
@given(pasts(), st.data())
def test_only_editions_that_no_peer_computes_are_forgotten(past: Past, data: st.DataObject) -> None:
    stored, tasks = past.stored[-1], past.tasks[-1]
    near = [since + by for since in past.since[1:] if since > BEGINNING for by in (-1, 0)]
    some = st.sampled_from([*near, BEGINNING, END])
    computed = {task.name: data.draw(some) for task in tasks}
    left = settled(stored, tasks, computed)
    gone = stored.editions[: len(stored.editions) - len(left.editions)]
    assert (*gone, *left.editions) == stored.editions, "the oldest"
    event(f"{len(gone)} forgotten")
    if gone:
        assert left.network.tasks() == trimmed(tasks, gone[-1].upto)
    for before, now in zip(tasks, left.network.tasks(), strict=True):
        for at in {computed[before.name], *(each.upto for each in before.editions)}:
            if at >= computed[before.name]:
                assert now.at(at) == before.at(at)
        assert now.editions or now == before or before.editions, "nothing is added"
    assert made_since(left.network.tasks(), left.since) == made_since(tasks, stored.since)
    if left.editions:
        upto = left.editions[0].upto
        behind = [
            task.name for task in left.network.tasks() if task.edition_until(upto - 1) == upto
        ]
        assert any(computed[name] < upto for name in behind), "it is still needed"
    assert settled(left, left.network.tasks(), computed) == left
    assert not settled(stored, tasks, dict.fromkeys(computed, END)).editions


@settings(max_examples=50)
@given(pasts())
def test_made_since_follows_the_tasks_that_read_a_changed_output(past: Past) -> None:
    """The oracle compares each edition with the one before, without the tasks' own history."""
    expected: dict[str, int] = {}
    for before, now, since in zip(past.tasks, past.tasks[1:], past.since[1:], strict=False):
        steps = {task.name: task.steps for task in before}
        other: set[str] = set()
        for task in now:  # each task follows the tasks whose output it reads
            if task.steps != steps[task.name] or other & set(task.inputs):
                other.add(task.name)
        expected |= dict.fromkeys(other, since)
    assert made_since(past.tasks[-1], {}) == expected


@settings(max_examples=50)
@given(pasts(), st.data())
def test_a_secondary_goes_on_with_one_modification_more_and_no_other(
    past: Past, data: st.DataObject
) -> None:
    known = data.draw(st.sampled_from(range(len(past.stored))))
    for told, stored in enumerate(past.stored):
        assert follows(past.stored[known], stored) == (told - known in {0, 1})
    stored, tasks = past.stored[known], past.tasks[known]
    after = past.stored[min(known + 1, len(past.stored) - 1)]
    for each, plans in ((stored, tasks), (after, after.network.tasks())):
        upto = data.draw(boundaries)
        part = settled(each, plans, dict.fromkeys((task.name for task in plans), upto))
        new = part.entry.edition > stored.entry.edition
        assert follows(stored, part) == (not new or len(part.editions) > 0), (
            "it says what was before"
        )
        if part != each:
            assert not follows(part, each), "what it has forgotten does not come back"
    if stored.editions:
        assert not follows(stored, postponed(stored, stored.editions[-1].upto + 1))
        assert not follows(stored, withdrawn(stored))
    for other in (
        msgspec.structs.replace(after, inputs={}),
        msgspec.structs.replace(after, kept=("x",)),
        of_version(after, 9),
        msgspec.structs.replace(after, entry=msgspec.structs.replace(after.entry, outputs=("x",))),
    ):
        assert not follows(stored, other)


def of_version(stored: StoredQuery, version: int) -> StoredQuery:
    query = msgspec.structs.replace(stored.entry.query, version=version)
    return msgspec.structs.replace(stored, entry=msgspec.structs.replace(stored.entry, query=query))


def sieve(predicate: str = "a > 0") -> StoredQuery:
    return stored_query(Query("q", (Filter("f", "s0", ("x",), (predicate,)),)))


def with_predicate(stored: StoredQuery, predicate: str) -> Query:
    (box,) = stored.entry.query.boxes
    box = msgspec.structs.replace(box, predicates=(predicate,))
    return msgspec.structs.replace(stored.entry.query, boxes=(box,))


def test_so_many_editions_are_remembered_and_no_more() -> None:
    stored = sieve()
    for number in range(1, MAX_EDITIONS + 1):
        stored = modified(stored, with_predicate(stored, f"a > {number}"), number)
    check_history(stored.entry.query, stored.editions)
    assert stored.network.tasks()[0].at(0).steps == sieve().network.tasks()[0].steps
    with pytest.raises(BusyError, match="q: its last 32 editions may all still be computed"):
        modified(stored, with_predicate(stored, "a > -1"), 1000)
    assert follows(stored, stored)


def test_so_large_they_may_be_and_no_larger() -> None:
    stored = sieve()
    room = MAX_BYTES - len(encode(modified(stored, with_predicate(stored, "a" * 2**18), 7)))
    most = "a" * (2**18 + room)
    assert len(encode(modified(stored, with_predicate(stored, most), 7))) == MAX_BYTES
    with pytest.raises(BusyError, match=f"would have over {MAX_BYTES} bytes"):
        modified(stored, with_predicate(stored, most + "a"), 7)


@pytest.mark.parametrize(
    "boundaries",
    [[2, 1], [1, 2, END], [END], [0] * (MAX_EDITIONS + 1)],
    ids=["backwards", "after the end", "at the end", "too many"],
)
def test_a_history_that_cannot_be_is_refused(boundaries: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="former editions"):
        check_history(sieve().entry.query, [Edition(upto, ()) for upto in boundaries])


def test_a_plan_that_takes_too_long_is_refused_by_modifier_and_planner() -> None:
    long = tuple("a > 0" + " " * 8_000 for _ in range(16))
    boxes = tuple(Filter(f"f{n}", "s0", (f"x{n}",), (each,)) for n, each in enumerate(long))
    stored = sieve()
    query = Query("q", (*stored.entry.query.boxes, *boxes))
    stored = msgspec.structs.replace(
        stored, entry=msgspec.structs.replace(stored.entry, query=query)
    )
    for change in range(7):
        box = Filter("f", "s0", ("x",), (f"a > {change}",))
        query = msgspec.structs.replace(query, boxes=(box, *boxes))
        stored = modified(stored, query, change + 1)
    check_history(query, stored.editions)
    excess = r"up to 1,1.* characters, at most 1,048,576 are allowed: let its consumers catch up"
    with pytest.raises(BusyError, match=f"q: .*{excess}"):
        modified(stored, query, 9)
    with pytest.raises(InvalidInputError, match=excess):
        check_history(query, (*stored.editions, Edition(9, ())))


def test_a_history_of_another_query_is_refused() -> None:
    stored = sieve()
    foreign = Edition(5, (Filter("g", "s0", ("x",), ("a > 0",)),))
    with pytest.raises(InvalidInputError, match="q has no box 'g'"):
        msgspec.structs.replace(stored, editions=(foreign,)).network.tasks()
    elsewhere = Edition(5, (Filter("f", "s1", ("x",), ("a > 0",)),))
    inputs = stored_query(with_predicate(stored, "a > 1")).inputs
    two = {**inputs, "s1": msgspec.structs.replace(inputs["s0"])}
    with pytest.raises(InvalidInputError, match="x was not made of these streams before"):
        msgspec.structs.replace(stored, inputs=two, editions=(elsewhere,)).network.tasks()
