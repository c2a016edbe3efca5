"""A replicated query keeps its inputs, and makes others keep them, for the right time."""

from __future__ import annotations

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, begin, make_stream, rows, until
from moving_tasks import Sums, expected, post, windows
from replicated_queries import (
    QUICK,
    Made,
    asked,
    begin_stood_by,
    believes,
    die,
    passed,
    standby_boundary,
    stands_by,
    taken_over,
)

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import END
from medusa.engine.streams.messages import Subscribe, Tuples
from medusa.overlay.gossip.events import Health
from medusa.overlay.identity import parse_peer_id

pytestmark = pytest.mark.cluster(timing=QUICK)


async def test_a_standby_that_reads_a_stream_made_here_survives_its_deletion(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    poster, one, two = await cluster.clients(home, primary, secondary)
    source = await make_stream(poster, home, "s")
    await begin(two, passed(home, source, "mid"))
    query = asked(windows(home, home.name("mid")), Mode.ACTIVE_STANDBY, secondary)
    await begin_stood_by(one, query, primary, secondary)
    await post(poster, source, range(250))
    boundary = standby_boundary(secondary, "q/out", "out")
    await until(lambda: boundary() == 249)
    await two.stop_query(home.name("q/mid"))
    await two.delete_query(home.name("q/mid"))
    await trio.sleep(0.2)
    await two.create_query(windows(home, source, "other"))  # the leader still works


async def test_two_standbys_of_one_input_do_not_hang_on_one_primary(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s", history_us=0)
    for path in ("a", "out"):
        query = asked(windows(home, source, path), Mode.PASSIVE_STANDBY, secondary)
        await begin_stood_by(owner, query, primary, secondary)
    sums = Sums(client, home.name("out"))
    await sums.feed(poster, source, range(250))
    await owner.stop_query(home.name("q/a"))
    await owner.delete_query(home.name("q/a"))
    standbys = secondary.up.engine.standbys
    await until(lambda: standbys.get(home.name("q/a")) is None, "it is dismissed")
    await sums.feed(poster, source, range(250, 520))
    carry = standby_boundary(secondary, "q/out", "s")
    await until(lambda: carry() == 519, "the carry goes on")
    await die(made, primary, cluster, home, secondary, reader)
    await sums.finish(poster, source, range(520, 777))


async def test_a_query_made_at_the_new_primary_reads_what_is_left_of_the_stream(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    poster, one, two = await cluster.clients(home, primary, secondary)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "mid"), Mode.UPSTREAM_BACKUP, secondary)
    await begin_stood_by(one, query, primary, secondary)
    await post(poster, source, range(250))
    await until(lambda: primary.state(home.name("mid")).log.boundary == 249)
    await trio.sleep(0.3)
    await taken_over(made, primary, secondary, query.name)
    served = secondary.up.engine.store.serving(home.name("mid"))
    assert served is not None
    assert served.log.start == 249
    await begin(two, windows(home, home.name("mid")))
    sums = Sums(poster, home.name("out"))
    await sums.end(poster, source, range(250, 777))
    assert sums.rows[-4:] == expected(range(777))[-4:]
    # and no request makes a peer hold rows that it does not have
    connection = await home.up.engine.overlay.connect(parse_peer_id(secondary.id))
    request = Subscribe(home.name("mid"), 300, "greedy", keep=1)
    async with connection.open("subscribe", request) as duplex:
        await duplex.receive(Tuples)
        assert served.log.retention.held(frozenset()) >= served.log.start


@pytest.mark.parametrize("mode", [Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY])
async def test_a_deleted_query_holds_nothing_of_its_inputs(
    cluster: Cluster, made: Made, mode: Mode
) -> None:
    home, secondary = await cluster.siblings(2)
    client = await cluster.client(home)
    source = await make_stream(client, home, "s")
    query = asked(windows(home, source), mode, secondary)
    await begin_stood_by(client, query, home, secondary)
    await post(client, source, range(250))
    retention = home.state(source).log.retention
    await until(lambda: len(retention.consumers) > 1)
    await client.stop_query(query.name)
    await client.delete_query(query.name)
    await until(lambda: secondary.up.engine.standbys.get(query.name) is None)
    await trio.sleep(0.2)
    held = [each for each in retention.consumers if "mit.edu " not in each.id]
    assert held == []


async def test_two_queries_do_not_hold_for_each_others_secondaries(
    cluster: Cluster, made: Made
) -> None:
    """The source drops the input when the last of the queries has it, not the first."""
    home, primary, secondary = await cluster.siblings(3)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    for path in ("a", "b"):
        query = asked(windows(home, source, path), Mode.PASSIVE_STANDBY, secondary)
        await begin_stood_by(owner, query, primary, secondary)
    retention = primary.state(source).log.retention
    assert len([each for each in retention.consumers if each.kind == "secondary"]) == 2


async def test_a_secondary_that_leads_the_input_releases_it(cluster: Cluster, made: Made) -> None:
    home, primary = await cluster.siblings(2)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s", history_us=0)
    query = asked(windows(home, source), Mode.PASSIVE_STANDBY, home)
    await begin_stood_by(owner, query, primary, home)
    for start in range(0, 1000, 50):
        await post(poster, source, range(start, start + 50))
    log = home.state(source).log
    await until(lambda: log.retention.held(frozenset()) > 800, "it is let go of")
    mirror = primary.state(source).log
    await until(lambda: mirror.retention.held(frozenset()) > 800, "and at the primary")


async def test_amnesia_goes_on_though_its_producer_keeps_no_history(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s", history_us=0)
    query = asked(passed(home, source, "out"), Mode.AMNESIA, secondary)
    await begin_stood_by(owner, query, primary, secondary)
    subscription = client.subscribe(home.name("out"))
    for start in range(0, 500, 50):
        await post(poster, source, range(start, start + 50))
        while subscription.boundary < start + 49:
            await anext(subscription)
    await die(made, primary, cluster, home, secondary, reader)
    await poster.post_event(source, rows((at, at) for at in range(500, 600)), end=True)
    got: list[int] = []
    with trio.fail_after(DEADLINE_S):
        while subscription.boundary < END:
            got += (await anext(subscription)).table.column("value").to_pylist()
    assert got == list(range(500, 600))


async def test_an_active_secondary_has_the_window_that_is_open_when_it_joins(
    cluster: Cluster, made: Made
) -> None:
    """The producer has dropped the input, but the primary has it."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    for place in (home, secondary, reader):
        believes(made, primary, place.id, Health.DEAD)  # no candidate is left
    source = await make_stream(poster, home, "s", history_us=0)
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin(owner, query)
    sums = Sums(client, home.name("out"))
    for start in range(0, 280, 20):
        await post(poster, source, range(start, start + 20))
        await sums.take(start + 19)
    log = home.state(source).log
    await until(lambda: log.start > 250, "the producer has let go of it")
    believes(made, primary, secondary.id, Health.ALIVE)
    await stands_by(primary, secondary, "q/out")
    boundary = standby_boundary(secondary, "q/out", "out")
    await until(lambda: boundary() >= 279, "it is where the primary is")
    await die(made, primary, cluster, home, secondary, reader)
    await sums.finish(poster, source, range(280, 777))
