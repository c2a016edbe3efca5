"""subscribe at complete peers (`engine_peers`): from any boundary, through any peer, slowly, and
over restarts."""

from __future__ import annotations

import pyarrow as pa
import pytest
import trio
from engine_peers import (
    DEADLINE_S,
    Cluster,
    make_stream,
    pairs_of,
    received,
    rows,
    scattered,
    send_rows,
    to_the_end,
    until,
)

from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.retention import Hold, Kind
from medusa.engine.streams.messages import Acknowledge, Subscribe, Tuples
from medusa.engine.streams.store.store import StreamStore
from medusa.overlay.errors import (
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    NotRetainedError,
    UnavailableError,
)

pytestmark = pytest.mark.cluster(timing=Timing(maintenance_s=0.02))


async def test_a_subscription_begins_at_a_boundary_unless_it_is_too_old(cluster: Cluster) -> None:
    mit, _utah, client, other, stream = await cluster.owner_and_guest(history_us=20)
    for stime in (10, 20, 30, 40, 50):
        await send_rows(client, stream, [(stime, stime)], boundary=stime)
        await until(lambda b=stime: mit.state("s").log.boundary == b)
    await until(lambda: mit.state("s").log.start == 30)
    state = [(40, 40), (50, 50)]
    for reader in (client, other):
        assert await received(reader.subscribe(stream, after=40), 1) == [(50, 50)]
        assert await received(reader.subscribe(stream), len(state)) == state
        with pytest.raises(NotRetainedError, match="from boundary 30 on"):
            await anext(reader.subscribe(stream, after=5))
        with pytest.raises(NotFoundError, match=r"edu/none"):
            await anext(reader.subscribe(mit.name("none")))
        with pytest.raises(InvalidInputError, match="subscriber"):
            await anext(reader.subscribe(stream, subscriber="x" * 129))


async def test_an_early_subscriber_reads_a_stream_that_begins_late_from_its_beginning(
    cluster: Cluster,
) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    state = mit.state("s")
    followed: list[tuple[int, int]] = []

    async def pull() -> None:
        epoch = await client.receive_events(stream, timeout_s=DEADLINE_S)
        assert epoch is not None
        assert (epoch.upto, pairs_of(epoch.table)) == (350, [(350, 7)])

    async def follow() -> None:
        followed.extend(await received(client.subscribe(stream), 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pull)
        nursery.start_soon(follow)
        await until(lambda: state.subscribers == 1)
        await trio.sleep(0.1)  # the pull waits, as well
        state.log.begin(348)
        await client.post_event(stream, rows([(350, 7)]), boundary=350)
    assert followed == [(350, 7)]


async def test_pulling_from_near_and_far(cluster: Cluster) -> None:
    mit, _utah, client, other, stream = await cluster.owner_and_guest(readers=("utah.edu",))
    for puller in (client, other):
        assert await puller.receive_events(stream) is None
    await send_rows(client, stream, [(1, 1), (2, 2)], boundary=5)
    for puller in (client, other):
        epoch = await puller.receive_events(stream, timeout_s=DEADLINE_S)
        assert epoch is not None
        assert (epoch.upto, pairs_of(epoch.table)) == (5, [(1, 1), (2, 2)])
        assert await puller.receive_events(stream, after=5) is None
    await send_rows(client, stream, end=True)
    await until(lambda: mit.state("s").log.boundary == END, "the end is there")
    for puller in (client, other):  # neither pull waits
        epoch = await puller.receive_events(stream, after=5)
        assert epoch is not None
        assert (epoch.upto, epoch.table.num_rows) == (END, 0)
        assert await puller.receive_events(stream, after=END) is None
    with pytest.raises(NotFoundError):
        await other.receive_events(mit.name("none"))


async def test_only_readers_may_subscribe(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client, other = await cluster.clients(mit, utah)
    connection = await utah.up.engine.overlay.connect(bytes.fromhex(mit.id))
    for path, readers, refused in (
        ("own", (), True),
        ("brown", ("brown.edu",), True),
        ("utah", ("utah.edu",), False),
    ):
        stream = await make_stream(client, mit, path, readers=readers)
        await client.post_event(stream, rows([(1, 1)]), boundary=1)
        await send_rows(client, stream, [(1, 1)])
        assert await received(client.subscribe(stream), 1) == [(1, 1)]
        for name in (stream, f"{stream}/late"):
            if not refused:
                assert await received(other.subscribe(name), 1)
                continue
            with pytest.raises(NotAuthorisedError, match="does not let you read"):
                await anext(other.subscribe(name))
            async with connection.open("subscribe", Subscribe(name)) as duplex:
                with pytest.raises(NotAuthorisedError, match=r"utah\.edu may not read"):
                    await duplex.receive(Tuples)


async def test_a_subscription_goes_on_when_peers_come_back(cluster: Cluster) -> None:
    """The connection breaks anywhere; every tuple still comes, once and in order."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client(producer="p") as client, utah.client() as other:
        stream = await make_stream(client, mit, "s")
        reader = other.subscribe(stream)
        found = []
        number = 0

        async def some_more() -> None:
            nonlocal number
            await client.post_event(stream, rows([(number, number), (number + 1, number)]))
            number += 2
            await client.flush()

        await some_more()
        found += await received(reader, 1)
        (connection,) = utah.up.engine.overlay.transport.connections()
        connection.close("cut by the test")
        await some_more()
        found += await received(reader, 2)
        await cluster.restart(mit)
        await some_more()
        found += await received(reader, 2)
        await cluster.restart(utah)
        await some_more()
        found += await received(reader, 2)
        await cluster.stop(mit)
        with pytest.raises(UnavailableError):
            async with mit.client(patience_s=0.1) as impatient:
                await impatient.status()
        await cluster.start(mit)
        await client.post_event(stream, None, end=True)
        found += await to_the_end(reader)
        assert found == [pair for n in range(0, number, 2) for pair in ((n, n), (n + 1, n))]


@pytest.mark.cluster(recent_bytes=2**20)
async def test_a_slow_reader_delays_no_other_and_fills_no_memory(cluster: Cluster) -> None:
    """The reader receives what its credit allows, and the rest waits on disk; other readers and
    posters continue."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client, other, third = await cluster.clients(mit, utah, utah)
    stream = await make_stream(client, mit, "s", history_us=1)
    slow = [client.subscribe(stream, subscriber="slow"), other.subscribe(stream)]
    quick = third.subscribe(stream)
    await client.post_event(stream, rows([(0, 0), (1, 1)]))
    for reader in (*slow, quick):
        await received(reader, 1)
    count, rounds = 20_000, 40
    total = pa.total_allocated_bytes()
    moved = 0
    for turn in range(rounds):
        first = 2 + turn * count
        await send_rows(client, stream, [(n, scattered(n)) for n in range(first, first + count)])
        moved += len(await received(quick, 1))
        assert pa.total_allocated_bytes() - total < 40 * 2**20
    assert moved >= (rounds - 1) * count
    log = mit.state("s").log
    assert log.files.rows > rounds * count, "the slow ones are waited for"
    await client.post_event(stream, None, end=True)
    for reader in slow:
        assert len(await to_the_end(reader)) == rounds * count + 1
    assert moved + len(await to_the_end(quick)) == rounds * count + 1
    await until(lambda: log.files.bytes < 2**20, "and once all have it, it goes")


async def test_a_named_subscriber_is_waited_for(cluster: Cluster) -> None:
    """A stream keeps tuples for a named subscriber over its absence and over a restart of the peer,
    and not for one without a name."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client = await cluster.client(mit)
    streams = {
        name: await make_stream(client, mit, path, history_us=1)
        for name, path in (("me", "named"), ("", "unnamed"))
    }
    for name, stream in streams.items():
        async with utah.client() as other:
            await client.post_event(stream, rows([(10, 1)]), boundary=10)
            async with other.subscribe(stream, subscriber=name) as reader:
                assert await received(reader, 1) == [(10, 1)]
                await client.post_event(stream, rows([(20, 2)]), boundary=20)
                assert await received(reader, 1) == [(20, 2)]
    await cluster.restart(mit)
    for number, stime in enumerate((30, 40, 50), 3):
        for stream in streams.values():
            await send_rows(client, stream, [(stime, number)], boundary=stime)
            state = mit.state(stream)
            await until(lambda k=state, b=stime: k.log.boundary == b)
    await until(lambda: mit.state("unnamed").log.start >= 30, "history alone counts")
    other = await cluster.client(utah)
    named = other.subscribe(streams["me"], after=20, subscriber="me")
    assert await received(named, 3) == [(30, 3), (40, 4), (50, 5)]
    with pytest.raises(NotRetainedError):
        await anext(other.subscribe(streams[""], after=20))


@pytest.mark.parametrize("kind", ["task", "bill", "replica", "call"])
async def test_no_subscriber_has_the_name_of_a_hold_of_the_peer_itself(
    cluster: Cluster, kind: Kind
) -> None:
    """A participant may have the name of a kind of hold, and its subscriber that of a task."""
    mit, evil = await cluster.settle("mit.edu"), await cluster.settle(kind)
    await cluster.acquainted(mit, evil)
    client, other = await cluster.clients(mit, evil)
    stream = await make_stream(client, mit, "s")
    await client.post_event(stream, rows([(10, 1), (20, 2), (30, 3)]), boundary=30)
    await until(lambda: mit.state("s").log.boundary == 30)
    log = mit.state("s").log
    log.retention.hold(Hold(kind, mit.name("q")), 5)
    following = other.subscribe(stream, after=20, subscriber=mit.name("q"))
    assert await received(following, 1) == [(30, 3)]
    assert log.upkeep.needed(frozenset()) == 5


@pytest.mark.cluster(lease_s=0.2)
async def test_a_lease_runs_out(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream(history_us=1)
    await client.post_event(stream, rows([(10, 1)]), boundary=10)
    async with client.subscribe(stream, subscriber="me") as reader:
        await received(reader, 1)
    for stime in (20, 30, 40):
        await send_rows(client, stream, [(stime, 1)], boundary=stime)
        await until(lambda b=stime: mit.state("s").log.boundary == b)
    await until(lambda: mit.state("s").log.start >= 20)


async def test_a_peer_that_is_starting_or_stopping(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer's overlay answers already, or still; the call gets "not available now"."""
    opened, closed = trio.Event(), trio.Event()
    load, close = StreamStore.load, StreamStore.close

    async def slow_load(store: StreamStore) -> None:
        await opened.wait()
        await load(store)

    async def slow_close(store: StreamStore) -> None:
        with trio.move_on_after(15):
            await closed.wait()
        await close(store)

    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    there = bytes.fromhex(mit.id)

    async def answer() -> str:
        connection = await utah.up.engine.overlay.connect(there)
        try:
            async with connection.open("subscribe", Subscribe(stream)) as duplex:
                await duplex.receive(Tuples)
        except UnavailableError as error:
            return str(error)
        return "served"

    async def answered(text: str) -> None:
        with trio.fail_after(DEADLINE_S):
            while True:
                try:
                    if text in await answer():
                        return
                except UnavailableError:
                    pass  # not even its overlay runs
                await trio.sleep(0.01)

    async with mit.client(producer="p") as client, utah.client() as other:
        stream = await make_stream(client, mit, "s")
        await client.post_event(stream, rows([(10, 1)]), boundary=10)
        reader = other.subscribe(stream)
        assert await received(reader, 1) == [(10, 1)]
        monkeypatch.setattr(StreamStore, "load", slow_load)
        monkeypatch.setattr(StreamStore, "close", slow_close)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.restart, mit)
            await answered("the peer is stopping")
            closed.set()
            await answered("the peer is starting")
            opened.set()
        await client.post_event(stream, rows([(20, 2)]), boundary=20)
        assert await received(reader, 1) == [(20, 2)]


async def test_a_producer_that_hangs_up_is_asked_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer ends the call at once, without an error, although it lives."""
    _mit, utah, client, other, stream = await cluster.owner_and_guest()
    await client.post_event(stream, rows([(10, 1)]), boundary=10)
    calls = 0

    async def hang_up(*_: object, **__: object) -> None:
        nonlocal calls
        calls += 1

    with monkeypatch.context() as patch:
        patch.setattr("medusa.engine.streams.reading.feed.Feed.serve", hang_up)
        box = Filter("f", stream, (utah.name("out"),), ("value > 1",))
        await other.create_query(Query(utah.name("q"), (box,)))
        await until(lambda: calls >= 3)
    await until(lambda: utah.state(stream).log.boundary == 10)
    assert utah.state(stream).log.files.rows == 1


async def test_hostile_acknowledgements(cluster: Cluster) -> None:
    """Wrong acknowledgements harm only the client that sends them."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client = await cluster.client(mit)
    stream = await make_stream(client, mit, "s")
    await client.post_event(stream, rows([(10, 1)]), boundary=10)
    honest = client.subscribe(stream, subscriber="me")
    connection = await utah.up.engine.overlay.connect(bytes.fromhex(mit.id))
    for after in (BEGINNING, END, 10**15):
        async with connection.open("subscribe", Subscribe(stream, after, "me")) as duplex:
            for upto in (END, BEGINNING, 5):
                await duplex.send(Acknowledge(upto))
    async with connection.open("subscribe", Subscribe(stream)) as duplex:
        await duplex.send(Subscribe(stream), b"not an acknowledgement")
        with pytest.raises(InvalidInputError):  # noqa: PT012
            while True:
                await duplex.receive(Tuples)
    assert await received(honest, 1) == [(10, 1)]
