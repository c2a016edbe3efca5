"""Copies of queries over history repeat the original's results of that time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, rows, send_rows, until

from medusa.engine.language.check import check_query
from medusa.engine.language.history_range import copy_of
from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Filter,
    Map,
    Query,
    QueryStatus,
    Union,
)
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.retention import Hold
from medusa.overlay.errors import ConflictError, InvalidInputError, NotFoundError, NotRetainedError
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = [
    pytest.mark.cluster(timing=Timing(maintenance_s=0.02, held_s=1.0)),
    pytest.mark.usefixtures("interpreted"),
]


OUTPUTS = ("odd", "sums", "peaks")
"""The streams of the chain `network`: each is derived from the one before."""

HORIZONS = {"odd": 0, "sums": 29, "peaks": 29 + 99}
"""How far behind its input each stream begins, in microseconds: its windows and all windows before
it."""


def network(place: Place, *sources: str) -> Query:
    """Return odd values, counted in windows of 30 every 10, and the greatest of these counts in
    windows of 100: three tasks in a chain."""

    def name(path: str) -> str:
        return place.name(path)

    total = AggregateCall("sum", "value", "total")
    peak = AggregateCall("max", "total", "peak")
    return Query(
        name("q"),
        (
            Union("merge", sources, name("all")),
            Filter("odd", name("all"), (name("odd"),), ("value % 2 = 1",)),
            Aggregate("sums", name("odd"), name("sums"), 30, 10, ("name",), (total,)),
            Map("same", name("sums"), name("mapped"), (("total", "total"),)),
            Aggregate("peaks", name("mapped"), name("peaks"), 100, 100, (), (peak,)),
        ),
        (name("odd"), name("sums")),
    )


async def post(client: AsyncMedusaClient, stream: str, stimes: range) -> None:
    pairs = [(at, at * 7919 % 101) for at in stimes]
    await send_rows(client, stream, rows(pairs, name="xyz"[len(pairs) % 3]), boundary=stimes[-1])


Found = list[dict[str, Any]]


async def gathered(client: AsyncMedusaClient, stream: str, boundary: int) -> Found:
    """Return the stream's tuples up to that boundary."""
    found: Found = []
    with trio.fail_after(DEADLINE_S):
        async with client.subscribe(stream) as subscription:
            while subscription.boundary < boundary:
                found += (await anext(subscription)).table.to_pylist()
    return [row for row in found if row["stime"] <= boundary]


def since(found: Found, boundary: int) -> Found:
    return [row for row in found if row["stime"] > boundary]


async def two_sources(client: AsyncMedusaClient, place: Place, **options: object) -> list[str]:
    return [await make_stream(client, place, path, **options) for path in ("s0", "s1")]


async def fill(client: AsyncMedusaClient, sources: list[str], until: int, *, step: int) -> None:
    """Fill the streams with a tuple at each microsecond up to `until`, with different cuts in each
    stream."""
    for first in range(0, until, step):
        await post(client, sources[0], range(first, min(first + step, until), 2))
        await post(client, sources[1], range(first, min(first + step, until), 3))
    for source in sources:
        await client.post_event(source, None, boundary=until)
    await client.flush()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_copy_makes_what_the_original_made(cluster: Cluster, elsewhere: bool) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    at = utah if elsewhere else mit
    client, copier = await cluster.clients(mit, at)
    sources = await two_sources(client, mit)
    await begin(client, network(mit, *sources))
    await fill(client, sources, 700, step=130)
    made = {path: await gathered(client, mit.name(path), 690) for path in OUTPUTS}
    for number, (after, ends) in enumerate(
        ((BEGINNING, 500), (103, 500), (99, 499), (200, 200 + 128), (650, END))
    ):
        copy = at.name(f"copy{number}")
        names = await copier.copy_query(mit.name("q"), copy, after, ends)
        assert set(names) == {copy, *(f"{copy}/{path}" for path in OUTPUTS)}
        for path in OUTPUTS:
            begins = BEGINNING if after == BEGINNING else after + HORIZONS[path]
            stands = min(ends, 690)
            if begins >= stands:
                continue
            original = [row for row in since(made[path], begins) if row["stime"] <= stands]
            found = await gathered(copier, f"{copy}/{path}", stands)
            assert found == original, (copy, path)
            if ends < END:
                assert await gathered(copier, f"{copy}/{path}", END) == original, "it ends"
    # the last copy continues with the original
    await fill(client, sources, 1000, step=200)
    for path in OUTPUTS:
        found = await gathered(client, mit.name(path), 990)
        copied = await gathered(copier, f"{copy}/{path}", 990)
        assert copied == since(found, 650 + HORIZONS[path])


async def test_a_copy_is_another_version_and_goes_alone(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    sources = await two_sources(client, mit, history_us=250)
    await begin(client, network(mit, *sources))
    await fill(client, sources, 300, step=100)
    log = mit.state(sources[0]).log
    await client.copy_query(mit.name("q"), mit.name("q2"), 100)
    await client.copy_query(mit.name("q2"), mit.name("q3"), 110)
    engine = mit.up.engine
    numbers = [engine.copies.version(mit.state(path)) for path in ("sums", "q2/sums", "q3/sums")]
    assert numbers == [0, 1, 2]
    assert "q3/sums" in str(await client.list_objects())
    with pytest.raises(ConflictError, match="exists and differs"):
        await client.copy_query(mit.name("q"), mit.name("q2"), 105)
    names = await client.copy_query(mit.name("q"), mit.name("q2"), 100)  # copying again is no error
    assert mit.name("q2/peaks") in names
    expected = await gathered(client, mit.name("sums"), 290)
    assert await gathered(client, mit.name("q2/sums"), 290) == since(expected, 129)
    await client.delete_query(mit.name("q2"))
    with pytest.raises(NotFoundError):
        await client.lookup_object(mit.name("q2/sums"))
    await client.delete_query(mit.name("q"))
    await fill(client, sources, 500, step=100)
    assert since(await gathered(client, mit.name("q3/sums"), 490), 290)
    await client.delete_query(mit.name("q3"))
    await fill(client, sources, 800, step=100)
    await until(lambda: log.start >= 498, "nobody holds the past any more")


async def test_tuples_that_are_not_kept_any_more_are_refused(cluster: Cluster) -> None:
    mit, utah, client, other, source = await cluster.owner_and_guest(history_us=50)
    await client.create_query(network(mit, source))
    for first in range(0, 300, 50):
        await post(client, source, range(first, first + 50))
        await until(lambda at=first: mit.state(source).log.boundary > at)
    await client.start_query(mit.name("q"))
    await gathered(client, mit.name("peaks"), 299)
    log = mit.state(source).log
    await until(lambda: log.start >= 149)
    oldest = log.start
    for place, at in ((client, mit), (other, utah)):
        with pytest.raises(
            NotRetainedError, match=rf"{source} is kept from boundary {oldest} on.*100"
        ):
            await place.copy_query(mit.name("q"), at.name("q2"), 100)
        for after, ends in ((200, 200), (200, 100), (END - 1, END)):
            with pytest.raises(InvalidInputError, match="the end must be later"):
                await place.copy_query(mit.name("q"), at.name("q2"), after, ends)
        with pytest.raises(NotFoundError, match="nothing is known"):
            await place.copy_query(mit.name("none"), at.name("q2"), oldest)
        with pytest.raises(InvalidInputError, match="no query but"):
            await place.copy_query(source, at.name("q2"), oldest)
        await place.copy_query(mit.name("q"), at.name("q2"), oldest, 280)
        expected = await gathered(client, mit.name("sums"), 280)
        found = await gathered(place, at.name("q2/sums"), END)
        assert found == since(expected, oldest + 29)
    await until(lambda: utah.up.engine.store.get(source) is None, "it is read no more")
    await cluster.restart(utah)
    assert await gathered(other, utah.name("q2/sums"), END) == found
    await until(lambda: utah.up.engine.store.get(source) is None, "nor after a restart")
    await other.delete_query(utah.name("q2"))


async def test_the_history_for_a_copy_outlives_a_restart(cluster: Cluster) -> None:
    """The sources keep the history of a created copy that has not run yet, over restarts, too."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client, other = await cluster.clients(mit, utah)
    sources = await two_sources(client, mit, history_us=1)
    await client.create_query(network(mit, *sources))
    await fill(client, sources, 300, step=100)
    entry = msgspec.json.decode(
        (await client.lookup_object(mit.name("q"))).entries["query"], type=QueryEntry
    )
    for place, at in ((client, mit), (other, utah)):
        await place.create_query(copy_of(entry, at.name("q2"), 100, 400))
    await client.start_query(mit.name("q"))
    await gathered(client, mit.name("peaks"), 299)
    await until(lambda: mit.state(sources[0]).log.retention.floor(300, 300, 1e12) == 100)
    for place in (mit, utah):
        await cluster.restart(place)
    await fill(client, sources, 600, step=100)
    for place, at in ((client, mit), (other, utah)):
        await place.start_query(at.name("q2"))
        for path in OUTPUTS:
            expected = await gathered(client, mit.name(path), 400)
            found = await gathered(place, at.name(f"q2/{path}"), END)
            assert found == since(expected, 100 + HORIZONS[path])
    for place in (mit, utah):
        await cluster.restart(place)
        snapshot = await client.status(federation=True)
    tasks = [t for p in snapshot.peers for t in p.tasks if t.query.endswith("q2")]
    assert {task.boundary for task in tasks} == {END}


async def test_a_copy_moves_to_another_peer(cluster: Cluster) -> None:
    one, two = await cluster.settle_all("mit.edu", "mit.edu")
    client = await cluster.client(one)
    sources = await two_sources(client, one)
    await begin(client, network(one, *sources))
    await fill(client, sources, 300, step=100)
    await client.copy_query(one.name("q"), one.name("q2"), 100, 500)
    await gathered(client, one.name("q2/sums"), 250)
    for path in OUTPUTS:
        await client.move_task(one.name(f"q2/{path}"), two.id)
    placed = one.up.engine.queries.find(one.name("q2/sums"))[1]
    there = two.up.engine.assignments.all()
    sums = next(each for each in there if each.task.name == placed.name)
    assert sums.copy is not None
    began = sums.boundary
    for state in sums.copy.inputs.values():  # the input is counted once the task has ended
        state.log.retention.hold(Hold("test", "count"), began)
    await fill(client, sources, 700, step=100)
    for path in OUTPUTS:
        expected = await gathered(client, one.name(path), 500)
        found = await gathered(client, one.name(f"q2/{path}"), END)
        assert found == since(expected, 100 + HORIZONS[path])
    # the bytes read are the bytes paid for, at both sides alike
    for after, upto in ((began, END), (began, 450), (450, END), (500, END)):
        assert placed.count(after, upto) == sums.count(after, upto)
    assert placed.count(109, END) == placed.count(109, 500) > 0  # whole panes, from 100 on
    assert placed.count(500, END) == 0


async def test_a_query_over_a_frozen_view_is_a_batch(cluster: Cluster) -> None:
    """The query ends, and so do streams derived from it; over a moving view it continues."""
    mit, utah, client, other, source = await cluster.owner_and_guest()
    await post(client, source, range(300))
    views = {
        mit.name("range"): (Range(99, 249), False),
        mit.name("last"): (Last(100), True),
        mit.name("recent"): (Recent(150), True),
    }
    for name, (shows, frozen) in views.items():
        await client.create_view(View(name, source, shows, frozen))
    count = (AggregateCall("count", None, "rows"),)
    expected = {
        "range": [(109 + 10 * n, 10) for n in range(15)],
        "last": [(209 + 10 * n, 10) for n in range(10)],
        "recent": [(159 + 10 * n, 10) for n in range(15)],
    }
    for place, at in ((client, mit), (other, utah)):
        for name in views:
            path = name.rsplit("/", 1)[1]
            box = Aggregate("count", name, at.name(f"per/{path}"), 10, 10, (), count)
            await begin(place, Query(at.name(f"q/{path}"), (box,)))
            found = await gathered(place, at.name(f"per/{path}"), END)
            assert [(row["stime"], row["rows"]) for row in found] == expected[path]
    with pytest.raises(ConflictError, match=r"is read by medusa://mit\.edu/q/range"):
        await client.delete_view(mit.name("range"))
    await client.delete_query(mit.name("q/range"))
    await client.delete_view(mit.name("range"))
    moving = mit.name("moving")
    await client.create_view(View(moving, source, Last(100)))
    for place, at in ((client, mit), (other, utah)):
        box = Aggregate("count", moving, at.name("per/moving"), 10, 10, (), count)
        await begin(place, Query(at.name("q/moving"), (box,)))
        found = await gathered(place, at.name("per/moving"), 299)
        assert [row["stime"] for row in found] == [209 + 10 * n for n in range(10)]
    await post(client, source, range(300, 320))
    found = await gathered(other, utah.name("per/moving"), 319)
    assert [row["rows"] for row in found] == [10] * 12


def entry_of(query: Query, *outputs: str) -> QueryEntry:
    return QueryEntry(query, QueryStatus.RUNNING, "ab" * 20, outputs)


def test_streams_of_a_copy_are_called_after_it() -> None:
    a, b, c = (f"medusa://mit.edu/{path}" for path in ("web/a", "web/b", "c"))
    boxes = (
        Filter("f", c, (a, b), ("x > 1",), pass_on_false=True),
        Union("u", (a, b), "medusa://mit.edu/d"),
    )
    query = Query("medusa://mit.edu/web", boxes, (a,), Availability(Mode.ACTIVE_STANDBY))
    copy = copy_of(entry_of(query, a, b), "medusa://utah.edu/mine", 5, 9)
    at = "medusa://utah.edu/mine"
    assert copy == Query(
        at,
        (
            Filter("f", c, (f"{at}/a", f"{at}/b"), ("x > 1",), pass_on_false=True),
            Union("u", (f"{at}/a", f"{at}/b"), f"{at}/d"),
        ),
        (f"{at}/a", f"{at}/b"),
        after=5,
        until=9,
        version=1,
    )
    clash = Query(query.name, (Filter("f", c, (a, "medusa://mit.edu/a"), ("x", "y")),))
    (box,) = copy_of(entry_of(clash), at, BEGINNING, END).boxes
    assert isinstance(box, Filter)
    assert box.outputs == (f"{at}/web/a", f"{at}/a")
    with pytest.raises(InvalidInputError, match="at most 256"):
        copy_of(entry_of(query), at + "/" + "x" * 222 + "/long/name", 5, 9)


@pytest.mark.parametrize(
    "changed",
    [
        {"after": 7, "until": 7},
        {"after": END},
        {"version": -1},
        {"until": 9, "availability": Availability(bound_s=2.0)},
    ],
)
def test_a_time_that_is_none_is_refused(changed: dict[str, Any]) -> None:
    query = Query(
        "medusa://mit.edu/q", (Filter("f", "medusa://mit.edu/s", ("medusa://mit.edu/o",), ("x",)),)
    )
    with pytest.raises(InvalidInputError, match=r"query medusa://mit\.edu/q"):
        check_query(msgspec.structs.replace(query, **changed), {})
