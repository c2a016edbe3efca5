"""Tables and joins at complete peers (`engine_peers`): a standby continues group aggregates, a join
moves, and a task that keeps a table does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from engine_peers import Cluster, Place, begin, make_stream, until
from moving_tasks import Reader
from replicated_queries import QUICK, Made, asked, die, stands_by

from medusa.engine.language.modification import BoxChange
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.query import AggregateCall, Join, JoinKind, Query, Totals, TupleWindows
from medusa.engine.objects.schema import END
from medusa.engine.replication.records.placements import Deal
from medusa.overlay.errors import InvalidInputError

pytestmark = pytest.mark.cluster(timing=QUICK)


def counted(place: Place, source: str) -> Query:
    """Return a query of the number and the sum of each name's values so far."""
    functions = (
        AggregateCall("count", None, "n"),
        AggregateCall("sum", "value", "total"),
        AggregateCall("count_distinct", "value", "values"),
    )
    box = Totals("totals", source, place.name("out"), ("name",), functions)
    return Query(place.name("q/out"), (box,))


def totals(stimes: range) -> list[tuple[int, int, int, int]]:
    return [(at, at + 1, at * (at + 1) // 2, at + 1) for at in stimes]


def recent(place: Place, source: str) -> Query:
    """Return a query of the sum and values of the last three tuples of each name, and the number of
    the last."""
    _, *functions = counted(place, source).boxes[0].functions  # type: ignore[union-attr]
    parts = (3, 1, ("name",), tuple(functions), True, "n")
    box = TupleWindows("recent", source, place.name("out"), *parts)
    return Query(place.name("q/out"), (box,))


def of_the_last(stimes: range) -> list[tuple[int, int, int, int]]:
    return [(at, at + 1, sum(range(max(at - 2, 0), at + 1)), min(at + 1, 3)) for at in stimes]


KEPT = pytest.mark.parametrize(("query", "expected"), [(counted, totals), (recent, of_the_last)])
QueryOver = Callable[[Place, str], Query]
Expected = Callable[[range], list[tuple[int, int, int, int]]]


@KEPT
async def test_totals_go_on_at_a_standby(
    cluster: Cluster, made: Made, query: QueryOver, expected: Expected
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    await begin(owner, asked(query(home, source), Mode.PASSIVE_STANDBY, secondary))
    answers = Reader(client, home.name("out"), "n", "total", "values")
    await answers.feed(poster, source, range(250))
    await stands_by(primary, secondary, "q/out")
    await answers.feed(poster, source, range(250, 520))
    await trio.sleep(0.3)  # positions and checkpoints are sent
    await die(made, primary, cluster, home, secondary, reader)
    await answers.feed(poster, source, range(520, 600))
    await answers.end(poster, source, range(600, 700))
    assert answers.rows == expected(range(700))


@KEPT
async def test_totals_go_on_after_a_restart(
    cluster: Cluster, made: Made, query: QueryOver, expected: Expected
) -> None:
    (place,) = await cluster.siblings(1)
    client = await cluster.client(place)
    source = await make_stream(client, place, "s")
    await begin(client, query(place, source))
    answers = Reader(client, place.name("out"), "n", "total", "values")
    await answers.feed(client, source, range(50))
    await cluster.restart(place)
    await answers.feed(client, source, range(50, 80))
    await answers.end(client, source, range(80, 100))
    assert answers.rows == expected(range(100))


@pytest.mark.parametrize("mode", [Mode.ACTIVE_STANDBY, Mode.UPSTREAM_BACKUP, Mode.AMNESIA])
async def test_totals_have_no_standby_that_does_not_copy_them(
    cluster: Cluster, made: Made, mode: Mode
) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    for query in (counted, recent):
        with pytest.raises(InvalidInputError, match="keeps a table"):
            await client.create_query(asked(query(one, source), mode, two))


async def test_a_task_that_keeps_a_table_stays(cluster: Cluster, made: Made) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    await begin(client, counted(one, source))
    with pytest.raises(InvalidInputError, match="stays with it"):
        await one.up.engine.mover.move(one.name("out/panes"), two.peer_id, Deal(giver=one.id))


async def test_windows_of_tuples_are_modified(cluster: Cluster, made: Made) -> None:
    """From T on the windows have fewer tuples; more tuples or other fields are refused, since they
    were not kept."""
    (one,) = await cluster.siblings(1)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    await begin(client, recent(one, source))
    answers = Reader(client, one.name("out"), "n", "total", "values")
    await answers.feed(client, source, range(50))

    async def change(name: str, value: str) -> int:
        done = await client.modify_query(one.name("q/out"), [BoxChange("recent", ((name, value),))])
        return done.since

    for name, value, why in (
        ("window-size", "4", "of each group the last 3 with the fields value: make another"),
        ("aggregate-function.0", "sum(t)", "or make another query"),
        ("number-field", "place", "or make another query"),
        ("window-size-by", "VALUES", "windows of time stay so"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            await change(name, value)
    since = await change("window-size", "2")
    await answers.feed(client, source, range(50, 80))
    await answers.end(client, source, range(80, 100))
    fewer = [(at, at + 1, at + at - 1, 2) for at in range(since + 1, 100)]
    assert 49 <= since < 90
    assert answers.rows == [*of_the_last(range(since + 1)), *fewer]


async def test_tuples_that_may_be_revised_are_not_numbered(cluster: Cluster, made: Made) -> None:
    (one,) = await cluster.siblings(1)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s", lateness_us=10)
    with pytest.raises(InvalidInputError, match="which may be revised, and then each later one"):
        await client.create_query(recent(one, source))
    with pytest.raises(InvalidInputError, match=r"table of what .*/s has so far, whose tuples"):
        await client.create_query(counted(one, source))


async def test_a_join_is_moved(cluster: Cluster, made: Made) -> None:
    one, two = await cluster.siblings(2)
    client = await cluster.client(one)
    source = await make_stream(client, one, "s")
    fields = (("mine", "left.value"), ("other", "right.value"))
    near = "left.value <> right.value"
    box = Join("pairs", source, source, one.name("out"), JoinKind.INNER, 1, 0, near, fields)
    await begin(client, Query(one.name("q/out"), (box,)))
    pairs = Reader(client, one.name("out"), "mine", "other")
    await pairs.feed(client, source, range(50))
    await one.up.engine.mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
    await pairs.feed(client, source, range(50, 90))
    await pairs.end(client, source, range(90, 100))
    assert pairs.rows == [(at, at, at - 1) for at in range(1, 100)]
    await until(lambda: one.state("out").log.boundary == END)
