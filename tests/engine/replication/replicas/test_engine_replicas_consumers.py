"""Consumers of a replicated query are away when its peers die, and return to another peer."""

from __future__ import annotations

from typing import NoReturn

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, rows, until
from moving_tasks import Sums, expected, post, windows
from replicated_queries import Made, asked, begin_stood_by, die, has, standby_boundary, stands_by

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import END
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.retention import Hold
from medusa.overlay.errors import UnavailableError
from medusa.overlay.gossip.events import Health
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.cluster(
    timing=Timing(maintenance_s=0.05, grace_s=0.1, keep_up_s=0.05, settle_s=0.1)
)


NAME = "away"


async def read_up_to(client: AsyncMedusaClient, stream: str, after: int, upto: int) -> int:
    """Read as a named subscriber, and leave; return the boundary reached."""
    with trio.fail_after(DEADLINE_S):
        async with client.subscribe(stream, after, NAME) as epochs:
            while epochs.boundary < upto:
                await anext(epochs)
            with trio.move_on_after(0.2):
                await anext(epochs)  # reading on acknowledges the earlier epochs
            return epochs.boundary


def leased(place: Place, stream: str) -> list[int]:
    """Return the boundaries of the named subscribers whose tuples this peer keeps, microseconds."""
    return [lease.boundary for lease in place.up.engine.subscriptions.of(place.name(stream))]


@pytest.mark.parametrize("mode", [Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY, Mode.ACTIVE_STANDBY])
async def test_a_named_subscriber_is_waited_for_by_the_secondary_too(
    cluster: Cluster, made: Made, mode: Mode
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    await begin(owner, asked(windows(home, source), mode, secondary))
    await stands_by(primary, secondary, "q/out")
    await post(poster, source, range(250))
    boundary = await read_up_to(client, home.name("out"), -(2**63), 249)
    await until(lambda: leased(secondary, "out") == [boundary], "the lease is told")
    await die(made, primary, cluster, home, secondary, reader)
    await poster.post_event(source, rows((at, at) for at in range(250, 520)), end=True)
    await until(lambda: has(secondary, home.name("q/out")), "it is taken over")
    log = secondary.up.engine.store.serving(home.name("out")).log  # type: ignore[union-attr]
    log.retention.release(Hold("primary"))  # the primary's grace period is over
    assert log.upkeep.needed(frozenset()) == boundary


@pytest.mark.parametrize("copied", [True, False])
async def test_a_first_reader_after_a_takeover_finds_the_past(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """A passive secondary that joined late also copies tuples that no consumer waits for; one that
    has copied nothing yet computes all of it anew."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    for place in (home, reader):
        for at in (primary, secondary):
            made[bytes.fromhex(at.id)].notify(place.id, Health.DEAD)  # not chosen
    made[bytes.fromhex(primary.id)].notify(secondary.id, Health.DEAD)  # not yet
    if not copied:
        monkeypatch.setattr(
            "medusa.engine.replication.replicas.primaries.Primaries.replicated", refused
        )
    query = asked(windows(home, source), Mode.PASSIVE_STANDBY, secondary)
    await begin(owner, query)
    await post(poster, source, range(250))
    (task,) = primary.up.engine.queries.get(query.name).tasks
    await until(lambda: task.boundary == 249)
    made[bytes.fromhex(primary.id)].notify(secondary.id, Health.ALIVE)
    await stands_by(primary, secondary, "q/out")
    boundary = standby_boundary(secondary, "q/out", "out")
    if copied:
        await until(lambda: boundary() == 249)
    else:
        await until(lambda: hears(secondary, query.name), "how far its primary is")
        assert boundary() < 0
    await die(made, primary, cluster, home, secondary, reader)
    await poster.post_event(source, rows((at, at) for at in range(250, 520)), end=True)
    sums = Sums(client, home.name("out"))
    await sums.take(END)
    assert sums.rows == expected(range(520))


def hears(place: Place, query: str) -> bool:
    """Whether the peer knows of results that it does not have yet."""
    standby = place.up.engine.standbys.get(query)
    return standby is not None and standby.behind_us > 0


def refused(*_: object) -> NoReturn:
    raise UnavailableError("a test has it so")


async def test_a_consumer_that_is_away_while_two_primaries_die_misses_nothing(
    cluster: Cluster, made: Made
) -> None:
    """With upstream backup the second successor begins with the tuples that consumers of the first
    one need, also those of consumers that never reached the first one."""
    home, one, two, three, reader = await cluster.siblings(5)
    poster, owner, client = await cluster.clients(home, one, reader)
    source = await make_stream(poster, home, "s")
    await begin(owner, asked(windows(home, source), Mode.UPSTREAM_BACKUP, two))
    await stands_by(one, two, "q/out")
    await post(poster, source, range(250))
    boundary = await read_up_to(client, home.name("out"), -(2**63), 249)
    await trio.sleep(0.3)  # positions are sent
    for at in (two, three):
        for place in (home, reader):
            made[bytes.fromhex(at.id)].notify(place.id, Health.DEAD)  # not chosen
    await die(made, one, cluster, home, two, three, reader)
    await post(poster, source, range(250, 520))
    await until(lambda: has(two, home.name("q/out")), "it is taken over")
    await stands_by(two, three, "q/out")
    await trio.sleep(0.5)  # past the grace period of readers without a name
    await die(made, two, cluster, home, three, reader)
    await poster.post_event(source, rows((at, at) for at in range(520, 777)), end=True)
    sums = Sums(client, home.name("out"))
    sums._subscription = client.subscribe(home.name("out"), boundary, NAME)
    await sums.take(END)
    assert sums.rows == [row for row in expected(range(777)) if row[0] > boundary]


async def test_a_secondary_that_was_the_worker_gives_consumers_all_tuples(
    cluster: Cluster, made: Made
) -> None:
    """As a worker the peer began at the boundary of its assignment; as the secondary it has the
    past as well."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin_stood_by(owner, query, primary, secondary)
    await post(poster, source, range(250))
    boundary = await read_up_to(client, home.name("out"), -(2**63), 249)
    await post(poster, source, range(250, 520))
    await until(lambda: primary.state("out").log.boundary == 519, "it is computed")
    await primary.up.engine.mover.move(home.name("out"), secondary.peer_id, Deal())
    await die(made, primary, cluster, home, secondary, reader)
    sums = Sums(client, home.name("out"))
    sums._subscription = client.subscribe(home.name("out"), boundary, NAME)
    await sums.take(519)
    await sums.end(poster, source, range(520, 777))
    assert sums.rows == [row for row in expected(range(777)) if row[0] > boundary]
