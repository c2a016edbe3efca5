"""When the primary dies, the secondary continues the query: complete peers (`engine_peers`), whose
failure detector the test controls."""

from __future__ import annotations

import pytest
import trio
from engine_peers import Cluster, begin, make_stream, until
from moving_tasks import Sums, expected, post, windows
from replicated_queries import LOSSLESS, QUICK, Made, asked, die, stands_by

from medusa.engine.objects.availability import Mode
from medusa.overlay.gossip.events import Health

pytestmark = pytest.mark.cluster(timing=QUICK)


@pytest.mark.parametrize("mode", LOSSLESS)
async def test_a_dead_primary_is_succeeded_without_loss_or_repetition(
    cluster: Cluster, made: Made, mode: Mode
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    await begin(owner, asked(windows(home, source), mode, secondary))
    sums = Sums(client, home.name("out"))
    await sums.feed(poster, source, range(250))
    await stands_by(primary, secondary, "q/out")
    await sums.feed(poster, source, range(250, 520))
    await trio.sleep(0.3)  # positions and checkpoints are sent
    await die(made, primary, cluster, home, secondary, reader)
    await sums.feed(poster, source, range(520, 777))
    running = secondary.up.engine.queries.get(home.name("q/out"))
    assert running.stored.term.holder == secondary.peer_id
    await sums.finish(poster, source, range(777, 900))


async def test_amnesia_loses_the_windows_that_were_open_and_goes_on(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    await begin(owner, asked(windows(home, source), Mode.AMNESIA, secondary))
    sums = Sums(client, home.name("out"))
    await sums.feed(poster, source, range(250))
    await stands_by(primary, secondary, "q/out")
    await sums.feed(poster, source, range(250, 550))
    await trio.sleep(0.3)
    await die(made, primary, cluster, home, secondary, reader)
    await sums.end(poster, source, range(550, 900))
    whole = expected(range(900))
    assert sums.rows == [row for row in whole if row[0] != 599]


async def test_a_slow_primary_steps_down_and_becomes_a_standby(
    cluster: Cluster, made: Made
) -> None:
    """The primary never died: it receives the higher term, and loses its readers."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin(owner, query)
    sums = Sums(client, home.name("out"))
    await sums.feed(poster, source, range(250))
    await stands_by(primary, secondary, "q/out")
    made[bytes.fromhex(secondary.id)].notify(primary.id, Health.DEAD)
    await until(lambda: primary.up.engine.store.serving(home.name("out")) is None, "it steps down")
    made[bytes.fromhex(secondary.id)].notify(primary.id, Health.ALIVE)
    made[bytes.fromhex(secondary.id)].notify(home.id, Health.DEAD)
    made[bytes.fromhex(secondary.id)].notify(reader.id, Health.DEAD)
    await stands_by(secondary, primary, "q/out")
    await sums.finish(poster, source, range(250, 777))


async def test_a_query_fails_over_again_and_again(cluster: Cluster, made: Made) -> None:
    home, one, two, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, one, reader)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.PASSIVE_STANDBY, two)
    await begin(owner, query)
    sums = Sums(client, home.name("out"))
    posted = 0
    for round_ in range(3):
        primary, other = (one, two) if round_ % 2 == 0 else (two, one)
        for place in (home, reader):
            for at in (one, two):
                made[bytes.fromhex(at.id)].notify(place.id, Health.DEAD)  # not chosen
        await stands_by(primary, other, "q/out")
        await post(poster, source, range(posted, posted + 250))
        posted += 250
        await sums.take(posted - 1)
        await die(made, primary, cluster, home, reader, other)
        await post(poster, source, range(posted, posted + 130))
        posted += 130
        await sums.take(posted - 1)
        gone = primary.home
        await cluster.start(primary)
        assert primary.home is gone
        for witness in (home, reader, other):
            made[bytes.fromhex(witness.id)].notify(primary.id, Health.ALIVE)
    await sums.end(poster, source, range(posted, 1300))
    assert sums.rows == expected(range(1300))


async def test_the_first_to_return_of_two_that_died_goes_on(cluster: Cluster, made: Made) -> None:
    """The successor of the primary took over, alone, and died as well: no other peer has the
    query."""
    home, one, two, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, one, reader)
    for place in (home, reader):
        for at in (one, two):
            made[bytes.fromhex(at.id)].notify(place.id, Health.DEAD)  # not chosen
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, two)
    await begin(owner, query)
    sums = Sums(client, home.name("out"))
    await stands_by(one, two, "q/out")
    await sums.feed(poster, source, range(250))
    await die(made, one, cluster, home, reader, two)
    await sums.feed(poster, source, range(250, 520))
    await until(lambda: two.up.engine.directory.number(home.name("out")) > 0, "announced")
    await trio.sleep(0.5)
    await die(made, two, cluster, home, reader)
    await cluster.start(one)
    made[bytes.fromhex(one.id)].notify(query.availability.secondary, Health.DEAD)
    for witness in (home, reader):
        made[bytes.fromhex(witness.id)].notify(one.id, Health.ALIVE)
    await sums.finish(poster, source, range(520, 777))
