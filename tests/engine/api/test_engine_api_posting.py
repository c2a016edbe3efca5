"""post_event at complete peers (`engine_peers`): by permitted writers, repeated, late, and on a
full disk."""

from __future__ import annotations

import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import (
    Cluster,
    Place,
    make_stream,
    received,
    rows,
    scattered,
    schema_of,
    send_rows,
    to_the_end,
    until,
)

from medusa.engine.objects.definitions import Idle
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import Timing
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import Post, Posted, PostEvent
from medusa.overlay.connection import Connection
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    SequenceGapError,
    StorageFullError,
)
from medusa.overlay.events import wall_clock
from medusa.tools.client.dialling import dial_to

TOO_LONG = "nine char"


async def peer_connection(cluster: Cluster, there: Place, here: Place) -> Connection:
    await cluster.acquainted(there, here)
    return await here.up.engine.overlay.connect(bytes.fromhex(there.id))


async def post_one(
    connection: Connection,
    stream: str,
    sequence: int,
    table: pa.Table,
    offsets: tuple[bytes, bytes] | None = None,
) -> Posted:
    """Send one post in a call of its own, unchecked by our client."""
    async with connection.open("post_event", PostEvent(stream, "p")) as duplex:
        await duplex.send(Post(sequence, offsets=offsets), encode(table))
        return (await duplex.receive(Posted))[0]


async def test_a_post_is_passed_on_to_the_streams_leader(cluster: Cluster) -> None:
    _mit, utah, client, other, stream = await cluster.owner_and_guest(writers=("utah.edu",))
    await other.post_event(stream, rows([(3, 2), (5, 1), (9, 3)]))
    await send_rows(other, stream, [(12, 4)], end=True)
    await client.post_event(stream, None, end=True)  # only the owner may end the stream
    assert utah.up.engine.store.get(stream) is None
    expected = [(3, 2), (5, 1), (9, 3), (12, 4)]
    assert await to_the_end(client.subscribe(stream)) == expected
    assert await to_the_end(other.subscribe(stream)) == expected


async def test_only_writers_may_post(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client, other = await cluster.clients(mit, utah)
    own = await make_stream(client, mit, "own")
    for stream, refused in (
        (own, True),
        (await make_stream(client, mit, "brown", writers=("brown.edu",)), True),
        (await make_stream(client, mit, "utah", writers=("utah.edu",)), False),
        (await make_stream(client, mit, "all", writers=("*",)), False),
    ):
        await other.post_event(stream, rows([(1, 1)]))
        poster = await other.poster(stream)
        if not refused:
            await poster.flush()
            continue
        with pytest.raises(NotAuthorisedError, match=r"utah\.edu may not post to .*mit"):
            await poster.flush()
    # utah.edu does not succeed at the home itself, either
    connection = await utah.up.engine.overlay.connect(bytes.fromhex(mit.id))
    with pytest.raises(NotAuthorisedError, match=r"utah\.edu may not post"):
        await post_one(connection, own, 1, rows([(1, 1)]))
    assert mit.state("own").log.boundary == BEGINNING


async def test_bad_posts_are_refused_where_they_enter(cluster: Cluster) -> None:
    """The client refuses a bad post before it sends it, and the leader refuses it from any sender;
    nothing is stored."""
    mit, utah, client, other, stream = await cluster.owner_and_guest(writers=("*",))
    wrong = rows([(1, 1)]).set_column(2, "value", pa.array(["one"]))
    null = rows([(1, 1), (2, 2)]).set_column(2, "value", pa.array([1, None], pa.int32()))
    long = rows([(1, 1)], name=TOO_LONG)
    missing = rows([(1, 1)]).drop_columns("value")
    connection = await utah.up.engine.overlay.connect(bytes.fromhex(mit.id))
    for table, text in ((wrong, "value"), (null, "value"), (long, "name"), (missing, "value")):
        for poster in (client, other):
            with pytest.raises(InvalidInputError, match=text):
                await poster.post_event(stream, table)
        with pytest.raises(InvalidInputError, match=text):
            await post_one(connection, stream, 1, table)
    for body in (b"no arrow at all", bytes(100), encode(rows([(1, 1)]))[:-20]):
        async with connection.open("post_event", PostEvent(stream, "p")) as duplex:
            await duplex.send(Post(1), body)
            with pytest.raises(InvalidInputError):
                await duplex.receive(Posted)
    for producer in ("", "x" * 129, "a\nb"):
        async with connection.open("post_event", PostEvent(stream, producer)) as duplex:
            with pytest.raises(InvalidInputError, match="producer"):
                await duplex.receive(Posted)
    with pytest.raises(NotFoundError, match=r"mit\.edu/none"):
        await other.post_event(mit.name("none"), rows([(1, 1)]))
    with pytest.raises(InvalidInputError, match=r"event is no stream but: schema"):
        await other.post_event(schema_of("mit.edu").name, rows([(1, 1)]))
    # the refused post has not used up its number
    assert await post_one(connection, stream, 1, rows([(1, 1)])) == Posted(1, 1, 0, 0)


async def test_numbers_of_posts(cluster: Cluster) -> None:
    mit, utah = await cluster.settle("mit.edu"), await cluster.settle("utah.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s", writers=("*",))
    connection = await peer_connection(cluster, mit, utah)
    assert await post_one(connection, stream, 1, rows([(1, 1)])) == Posted(1, 1, 0, 0)
    again = await post_one(connection, stream, 1, rows([(7, 7)]))
    assert again == Posted(1, 0, 0, 0, duplicate=True)
    with pytest.raises(SequenceGapError, match=r"\b2\b"):
        await post_one(connection, stream, 3, rows([(9, 9)]))
    assert (await post_one(connection, stream, 2, rows([(9, 9)]))).rows == 1
    await cluster.restart(mit)
    connection = await peer_connection(cluster, mit, utah)
    assert (await post_one(connection, stream, 2, rows([(9, 9)]))).duplicate
    client = await cluster.client(mit)
    await client.post_event(stream, None, end=True)
    assert await to_the_end(client.subscribe(stream)) == [(1, 1), (9, 9)]


async def test_a_writer_takes_no_number_of_anothers_producer(cluster: Cluster) -> None:
    """A writer takes another producer's name, and posts through any peer."""
    mit, utah, evil = [await cluster.settle(f"{name}.edu") for name in ("mit", "utah", "evil")]
    await cluster.acquainted(mit, utah, evil)
    client = await cluster.client(mit)
    honest = await cluster.open(utah.client(producer="p"))
    stream = await make_stream(client, mit, "s", writers=("*",), slack_us=100)
    connection = await peer_connection(cluster, mit, evil)
    for number in (2**62, END):
        with pytest.raises(SequenceGapError, match="begins at 1"):
            await post_one(connection, stream, number, rows([]))
    for number in range(1, 5):
        assert not (await post_one(connection, stream, number, rows([]))).duplicate
    async with mit.client(producer="p") as owner:
        for poster, value in ((honest, 1), (owner, 2), (honest, 3)):
            await send_rows(poster, stream, [(value, value)])
    await client.post_event(stream, None, end=True)
    assert await to_the_end(client.subscribe(stream)) == [(1, 1), (2, 2), (3, 3)]


async def test_promises_late_tuples_and_the_end(cluster: Cluster) -> None:
    mit, _utah, client, other, stream = await cluster.owner_and_guest(slack_us=10)
    following, late = other.subscribe(stream), other.subscribe(f"{stream}/late")
    await client.post_event(stream, rows([(100, 1)]))
    poster = await client.poster(stream)
    await poster.flush()
    assert poster.boundary == 89, "the greatest stime, less the slack"
    await client.post_event(stream, rows([(90, 2), (89, 3)]))
    await poster.flush()
    assert (poster.rows, poster.late) == (2, 1)
    await client.post_event(stream, None, boundary=150)
    assert await received(following, 2) == [(90, 2), (100, 1)]
    await until(lambda: mit.state("s").log.boundary == 150)
    await client.post_event(stream, rows([(150, 4), (151, 5)]), end=True)
    await poster.flush()
    await client.post_event(stream, rows([(999, 6)]))
    await poster.flush()
    assert (poster.boundary, poster.rows, poster.late) == (END, 3, 3)
    assert await to_the_end(following) == [(151, 5)]
    assert [value for _, value in await received(late, 3)] == [3, 4, 6]
    status = {stream.name: stream for stream in (await client.status()).peers[0].streams}
    assert status[stream].late == 3
    assert status[f"{stream}/late"].rows == 3


async def test_a_stream_of_the_present_goes_on_by_the_clock(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    stream = await make_stream(
        client, mit, "s", idle=Idle.CLOCK, idle_timeout_us=0, slack_us=100_000
    )
    now = int(wall_clock() * 1e6)
    await client.post_event(stream, rows([(now, 1)]))
    assert await received(client.subscribe(stream), 1) == [(now, 1)]
    await until(lambda: mit.state("s").log.boundary > now + 200_000)
    await client.post_event(stream, rows([(now, 1)]), boundary=END + 1)
    with pytest.raises(InvalidInputError, match="boundary"):
        await client.flush()


async def test_a_producer_that_is_gone_is_waited_for_from_a_restart_on(cluster: Cluster) -> None:
    """The wait begins at the restart, not at the next post."""
    mit = await cluster.settle("mit.edu")
    async with mit.client() as gone, mit.client() as other:
        stream = await make_stream(gone, mit, "s", idle_timeout_us=300_000)
        await send_rows(gone, stream, [(10, 1)])
        await cluster.restart(mit)
        await until(
            lambda: mit.state("s").leader.source.acceptance.presence.count == 0,
            "it is waited for no longer",
        )
        await send_rows(other, stream, [(20, 1)])
        assert mit.state("s").leader.boundary == 19


@pytest.mark.cluster(disk_bytes=300000, timing=Timing(maintenance_s=0.02))
async def test_a_full_disk_is_reported_until_there_is_room(cluster: Cluster) -> None:
    """A reader that does not read fills the disk; the poster receives the reason; no tuple is
    lost."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    count = 2_000
    client = await cluster.client(mit)
    stream = await make_stream(client, mit, "s", history_us=1)
    reader = client.subscribe(stream, subscriber="slow")
    sent = 0
    async with mit.client(patience_s=0.2) as impatient:
        with pytest.raises(StorageFullError, match=r"engine\.disk_bytes"):  # noqa: PT012
            for _ in range(200):
                table = rows([(n, scattered(n)) for n in range(sent, sent + count)])
                await send_rows(impatient, stream, table)
                sent += count
                boundary = sent - 2
                await until(lambda b=boundary: mit.state("s").log.boundary >= b)
        with pytest.raises(StorageFullError):  # noqa: PT012
            async with utah.client(patience_s=0.2) as far:
                writable = await make_stream(client, mit, "w", writers=("*",))
                await send_rows(far, writable, [(1, 1)])
    assert 3 * count < sent < 100 * count, sent
    found = await received(reader, sent - 1)
    await client.post_event(stream, rows([(sent, scattered(sent))]), end=True)

    async def acknowledge_by_reading() -> None:
        found.extend(await to_the_end(reader))

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acknowledge_by_reading)
            await client.flush()
    assert found == [(n, scattered(n)) for n in range(sent + 1)]


async def test_where_a_producer_is_in_its_source_is_kept_with_its_tuples(cluster: Cluster) -> None:
    """The leader keeps the position over restarts, answers through any peer, and keeps one for each
    participant."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s", writers=("*",))
    places = {1: b"one", 2: b"two", 3: b"three"}

    def place(part: pa.Table) -> bytes:
        return places[part.column("value")[-1].as_py()]

    async with utah.client(producer="tail") as client:
        poster = await client.poster(stream)
        assert await poster.resume() is None
        await poster.post(rows([(1, 1)]), offset_after=place)
        await poster.post(rows([(2, 2)]), offset_after=place)
        await poster.flush()
        assert poster.stored == b"two"
    await cluster.restart(mit)
    await cluster.acquainted(mit, utah)
    async with utah.client(producer="tail") as client:
        poster = await client.poster(stream)
        assert await poster.resume() == b"two"
        await poster.post(rows([(3, 3)]), offset_after=place)
        await poster.flush()
        assert await (await client.poster(stream)).resume() == b"three"
    client = await cluster.open(mit.client(producer="tail"))
    assert await (await client.poster(stream)).resume() is None
    await client.post_event(stream, None, end=True)
    assert await to_the_end(client.subscribe(stream)) == [(1, 1), (2, 2), (3, 3)]


async def test_two_that_post_the_same_at_a_time_store_it_once(cluster: Cluster) -> None:
    """Two clients post the same rows under one producer's name, each cut into posts at other rows:
    the rows are stored once, and the later client is refused until it continues where the first one
    is."""
    mit = await cluster.settle("mit.edu")
    one = await cluster.open(mit.client(producer="p"))
    other = await cluster.open(mit.client(producer="p"))
    stream = await make_stream(one, mit, "s")
    first, second = await one.poster(stream), await other.poster(stream)
    assert (await first.resume(), await second.resume()) == (None, None)
    await first.post(rows([(1, 1), (2, 2)]), offset_after=lambda _: b"2 rows")
    await first.flush()
    await second.post(rows([(1, 1)]), offset_after=lambda _: b"1 row")
    with pytest.raises(ConflictError, match="somebody else posts the same"):
        await second.flush()
    async with dial_to(mit.home.folder, None)() as connection:
        for sequence, offsets in ((2, (b"1 row", b"3 rows")), (1, (b"", b"1 row"))):
            with pytest.raises(ConflictError):
                await post_one(connection, stream, sequence, rows([(3, 3)]), offsets)
        again = await post_one(connection, stream, 1, rows([(3, 3)]), (b"", b"2 rows"))
        assert again.duplicate
        with pytest.raises(InvalidInputError, match="at most 128 bytes"):
            await post_one(connection, stream, 2, rows([(3, 3)]), (b"2 rows", b"x" * 129))
    await first.post(None, end=True, offset_after=lambda _: b"2 rows")
    assert await to_the_end(one.subscribe(stream)) == [(1, 1), (2, 2)]
