"""Failover where queries read from queries, at the same peer and at others."""

from __future__ import annotations

import msgspec
import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, rows, until
from moving_tasks import Sums, expected, post, windows
from replicated_queries import LOSSLESS, QUICK, Made, asked, begin_stood_by, passed, stands_by

from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.schema import END
from medusa.engine.replication.following.messages import ReadReplica
from medusa.engine.replication.replicas.messages import Dismiss, Incumbent, KeepUp, KeptUp, StandBy
from medusa.engine.streams.messages import Done, Subscribe, Tuples
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.gossip.events import Health
from medusa.overlay.identity import parse_peer_id

pytestmark = pytest.mark.cluster(timing=QUICK)


@pytest.mark.parametrize("mode", LOSSLESS)
async def test_a_chain_whose_primaries_all_die_at_once(
    cluster: Cluster, made: Made, mode: Mode
) -> None:
    """One peer stands by for both queries: after the takeover one of its queries reads the other's
    results."""
    home, first, second, secondary, reader = await cluster.siblings(5)
    poster, one, two, client = await cluster.clients(home, first, second, reader)
    source = await make_stream(poster, home, "s")
    await begin(one, asked(passed(home, source, "mid"), mode, secondary))
    await begin(two, asked(windows(home, home.name("mid")), mode, secondary))
    sums = Sums(client, home.name("out"))
    await sums.feed(poster, source, range(250))
    await stands_by(first, secondary, "q/mid")
    await stands_by(second, secondary, "q/out")
    await sums.feed(poster, source, range(250, 520))
    await trio.sleep(0.3)
    dead = [first.id, second.id]
    await cluster.stop(first)
    await cluster.stop(second)
    for peer in dead:
        for witness in (home, secondary, reader):
            made[bytes.fromhex(witness.id)].notify(peer, Health.DEAD)
    await sums.take(519)
    await sums.feed(poster, source, range(520, 777))
    await sums.finish(poster, source, range(777, 900))


async def test_readers_at_the_old_and_the_new_primary_go_on(cluster: Cluster, made: Made) -> None:
    """Each of the two peers has a query that reads the stream which changes its producer."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, one, two, client = await cluster.clients(home, primary, secondary, reader)
    source = await make_stream(poster, home, "s")
    mode = Mode.ACTIVE_STANDBY
    await begin(one, asked(passed(home, source, "mid"), mode, secondary))
    await one.create_query(windows(home, home.name("mid"), "a"))
    await two.create_query(windows(home, home.name("mid"), "b"))
    for owner, path in ((one, "a"), (two, "b")):
        await owner.start_query(home.name(f"q/{path}"))
    sums = [Sums(client, home.name("a")), Sums(client, home.name("b"))]
    await post(poster, source, range(250))
    await stands_by(primary, secondary, "q/mid")
    made[bytes.fromhex(secondary.id)].notify(primary.id, Health.DEAD)
    serving = primary.up.engine.store.serving
    await until(lambda: serving(home.name("mid")) is None, "it steps down")
    await poster.post_event(source, rows((at, at) for at in range(250, 777)), end=True)
    for each in sums:
        await each.take(END)
        assert each.rows == expected(range(777))


async def test_consumers_never_outrun_a_standby_that_promises_precision(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "out"), Mode.PASSIVE_STANDBY, secondary)
    await begin(owner, query)
    await post(poster, source, range(10))
    state = primary.state(home.name("out"))
    await until(lambda: state.gate is not None, "it is caught up")
    subscription = client.subscribe(home.name("out"))
    for start in range(10, 400, 13):
        await post(poster, source, range(start, start + 13))
        while subscription.boundary < start:
            await anext(subscription)
            standby = secondary.up.engine.standbys.get(query.name)
            assert standby is not None
            assert subscription.boundary <= standby.boundaries[home.name("out")]


async def test_consumers_wait_for_a_standby_that_copies_nothing_no_longer_than_the_bound(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby lives, but its disk is full, for example. Once it copies again, results wait for
    it again."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "out"), Mode.PASSIVE_STANDBY, secondary)
    bound = msgspec.structs.replace(query.availability, bound_s=1.0)
    query = msgspec.structs.replace(query, availability=bound)
    await begin(owner, query)
    await post(poster, source, range(10))
    state = primary.state(home.name("out"))
    await until(lambda: state.gate is not None and state.gate.value == 9, "it is copied")
    with monkeypatch.context() as patch:
        patch.setattr(
            "medusa.engine.replication.replicas.secondary_state.has_copied", lambda *_: None
        )
        await post(poster, source, range(10, 20))
        await until(lambda: state.log.boundary == 19)
        assert state.gate is not None
        assert state.gate.value == 9
        subscription = client.subscribe(home.name("out"))
        with trio.fail_after(DEADLINE_S):
            while subscription.boundary < 19:
                await anext(subscription)
    await post(poster, source, range(20, 30))
    await until(lambda: state.gate is not None and state.gate.value == 29)


async def test_producers_keep_what_a_backup_may_need_and_no_more(
    cluster: Cluster, made: Made
) -> None:
    """The source may declare ever so short a history."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s", history_us=0)
    query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
    await begin_stood_by(owner, query, primary, secondary)
    slow = client.subscribe(home.name("out"), subscriber="slow")
    log = home.state(source).log
    await post(poster, source, range(0, 1000, 7))
    await until(lambda: primary.state(home.name("out")).log.boundary > 900, "computed")
    while slow.boundary < 250:
        await anext(slow)
    await trio.sleep(0.5)
    assert log.retention.held(frozenset()) <= slow.boundary
    while slow.boundary < 980:
        await anext(slow)
    with trio.move_on_after(0.2):
        await anext(slow)  # reading the next epoch acknowledges the last one
    await until(lambda: log.retention.held(frozenset()) > 850, "they let go of it")


async def test_strangers_and_bystanders_are_refused(cluster: Cluster, made: Made) -> None:
    home, primary, secondary = await cluster.siblings(3)
    stranger = await cluster.settle("utah.edu")
    await cluster.acquainted(home, primary, secondary, stranger)
    async with home.client() as poster, primary.client() as owner:
        source = await make_stream(poster, home, "s")
        query = asked(windows(home, source), Mode.PASSIVE_STANDBY, secondary)
        await begin_stood_by(owner, query, primary, secondary)
    stored = primary.up.engine.queries.get(query.name).stored
    term_number = stored.term.number

    async def ask(by: Place, to: Place, method: str, message: msgspec.Struct) -> None:
        connection = await by.up.engine.overlay.connect(parse_peer_id(to.id))
        kind = KeptUp if method in {"replica.stand_by", "replica.keep_up"} else Done
        await connection.call(method, message, kind, timeout_s=DEADLINE_S)

    with pytest.raises(NotAuthorisedError):  # the peer belongs to another participant
        await ask(stranger, secondary, "replica.stand_by", StandBy(stored))
    with pytest.raises(InvalidInputError):  # the peer is a sibling that is not the primary
        await ask(home, secondary, "replica.stand_by", StandBy(stored))
    for wrong in (term_number, 2**60):
        with pytest.raises(NotAuthorisedError):
            await ask(stranger, secondary, "replica.dismiss", Dismiss(query.name, wrong))
    with pytest.raises(ConflictError, match="has not let go of it"):
        await ask(home, secondary, "replica.dismiss", Dismiss(query.name, term_number))
    keep_up, incumbent = (
        KeepUp(query.name, term_number, {}, {}),
        Incumbent(query.name, term_number),
    )
    read = ReadReplica(query.name, term_number, source, 0)
    await ask(home, secondary, "replica.keep_up", keep_up)
    with pytest.raises(MedusaError):
        await ask(home, primary, "replica.incumbent", incumbent)
    with pytest.raises(NotFoundError):
        await ask(home, primary, "replica.read", read)
    for method, message in (
        ("replica.keep_up", keep_up),
        ("replica.incumbent", incumbent),
        ("replica.read", read),
    ):
        with pytest.raises(NotAuthorisedError, match="own participant"):
            await ask(stranger, secondary, method, message)
    assert secondary.up.engine.standbys.get(query.name) is not None
    # and a term of another participant does not depose the primary
    connection = await stranger.up.engine.overlay.connect(parse_peer_id(primary.id))
    subscribe = Subscribe(home.name("out"), term_number=2**60)
    with pytest.raises(NotFoundError):
        async with connection.open("subscribe", subscribe) as duplex:
            await duplex.receive(Tuples)
    await trio.sleep(0.2)
    assert primary.up.engine.queries.get(query.name).stored.term.number == term_number


async def test_a_deleted_query_leaves_no_standby(cluster: Cluster, made: Made) -> None:
    home, primary, secondary = await cluster.siblings(3)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin_stood_by(owner, query, primary, secondary)
    await post(poster, source, range(250))
    await owner.stop_query(query.name)
    await owner.delete_query(query.name)
    standbys = secondary.up.engine.standbys
    await until(lambda: standbys.get(query.name) is None, "it is dismissed")
    await until(lambda: not secondary.up.engine.store.all(), "nothing of it is left")
    recreated = asked(windows(home, source), Mode.AMNESIA, secondary, Recovery.GAP)
    await owner.create_query(recreated)
