"""Tables and joins at whole peers: a standby goes on with totals, a join is moved, and a task that
keeps a table is not."""

from __future__ import annotations

import pytest
import trio
from engine_peers import Place, Town, begin, make_stream, until
from moving_tasks import Reader
from replicated_queries import QUICK, Made, asked, die, stands_by

from engine.objects.availability import Mode
from engine.objects.query import AggregateFunction, Function, Join, JoinKind, Query, Totals
from engine.objects.schema import END
from engine.replication.moves.messages import Deal
from overlay.errors import InvalidInputError

pytestmark = pytest.mark.town(timing=QUICK)


def counted(place: Place, source: str) -> Query:
    """How many values of each name there are so far, and their sum."""
    functions = (
        AggregateFunction(Function.COUNT, None, "n"),
        AggregateFunction(Function.SUM, "value", "total"),
        AggregateFunction(Function.COUNT_DISTINCT, "value", "values"),
    )
    box = Totals("totals", source, place.name("out"), ("name",), functions)
    return Query(place.name("q/out"), (box,))


def totals(stimes: range) -> list[tuple[int, int, int, int]]:
    return [(at, at + 1, at * (at + 1) // 2, at + 1) for at in stimes]


async def test_totals_go_on_at_a_standby(town: Town, made: Made) -> None:
    home, primary, secondary, reader = await town.siblings(4)
    poster, owner, client = await town.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    await begin(owner, asked(counted(home, source), Mode.PASSIVE_STANDBY, secondary))
    answers = Reader(client, home.name("out"), "n", "total", "values")
    await answers.feed(poster, source, range(250))
    await stands_by(primary, secondary, "q/out")
    await answers.feed(poster, source, range(250, 520))
    await trio.sleep(0.3)  # positions and checkpoints are told
    await die(made, primary, town, home, secondary, reader)
    await answers.feed(poster, source, range(520, 600))
    await answers.end(poster, source, range(600, 700))
    assert answers.rows == totals(range(700))


async def test_totals_go_on_after_a_restart(town: Town, made: Made) -> None:
    (place,) = await town.siblings(1)
    client = await town.client(place)
    source = await make_stream(client, place, "s")
    await begin(client, counted(place, source))
    answers = Reader(client, place.name("out"), "n", "total", "values")
    await answers.feed(client, source, range(50))
    await town.restart(place)
    await answers.feed(client, source, range(50, 80))
    await answers.end(client, source, range(80, 100))
    assert answers.rows == totals(range(100))


@pytest.mark.parametrize("mode", [Mode.ACTIVE_STANDBY, Mode.UPSTREAM_BACKUP, Mode.AMNESIA])
async def test_totals_have_no_standby_that_does_not_copy_them(
    town: Town, made: Made, mode: Mode
) -> None:
    one, two = await town.siblings(2)
    client = await town.client(one)
    source = await make_stream(client, one, "s")
    with pytest.raises(InvalidInputError, match="keeps a table"):
        await client.create_query(asked(counted(one, source), mode, two))


async def test_a_task_that_keeps_a_table_stays(town: Town, made: Made) -> None:
    one, two = await town.siblings(2)
    client = await town.client(one)
    source = await make_stream(client, one, "s")
    await begin(client, counted(one, source))
    with pytest.raises(InvalidInputError, match="stays with it"):
        await one.up.engine.mover.move(one.name("out/panes"), two.peer_id, Deal(giver=one.id))


async def test_a_join_is_moved(town: Town, made: Made) -> None:
    one, two = await town.siblings(2)
    client = await town.client(one)
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
