"""Other participants may keep a part of a peer's disk, and cannot stop anybody's posts by it."""

from __future__ import annotations

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, make_stream, received, send_rows, until
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.messages import Subscribe, Tuples
from medusa.engine.streams.store.disk_quota import (
    OF_ALL,
    OF_PARTICIPANT,
    OF_STREAM,
    Held,
    to_release,
)
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import NotRetainedError
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.cluster(recent_bytes=1)


DISK = 160_000

holds = st.lists(
    st.builds(
        Held,
        st.builds(LogKey, st.sampled_from(["s1", "s2", "s3"])),
        st.builds(Hold, st.just("task"), st.integers(0, 99).map(str)),
        st.sampled_from(["evil.org", "utah.edu", "brown.edu"]),
        st.integers(1, DISK),
        st.floats(0, 100),
    ),
    max_size=12,
    unique_by=lambda held: (held.key, held.consumer),
)


def bytes_of(held: list[Held], **of: str) -> int:
    chosen = [h for h in held if all(getattr(h, name) == value for name, value in of.items())]
    return sum(max(h.bytes for h in chosen if h.key == key) for key in {h.key for h in chosen})


@given(holds, st.integers(0, DISK))
def test_foreign_holds_stay_within_bounds_and_none_goes_without_need(
    held: list[Held], short: int
) -> None:
    gone = to_release(held, disk_bytes=DISK, short_bytes=short, hold_s=60.0, now=100.0)
    left = [each for each in held if each not in gone]
    assert all(each.since >= 40.0 for each in left)
    for holder in {each.holder for each in held}:
        assert bytes_of(left, holder=holder) <= DISK * OF_PARTICIPANT
        for key in {each.key for each in held}:
            assert bytes_of(left, holder=holder, key=key) <= DISK * OF_STREAM
    assert bytes_of(left) <= DISK * OF_ALL
    recent = [each for each in held if each.since >= 40.0]
    if not short and bytes_of(recent) <= DISK * OF_STREAM:
        assert left == recent


def test_when_room_is_short_the_consumers_that_keep_most_go_first() -> None:
    small, large = (
        Held(LogKey("s1"), Hold("task", name), name, size, 0.0)
        for name, size in (("a", 10), ("b", 100))
    )
    other = Held(LogKey("s2"), Hold("task", "c"), "c", 60, 0.0)
    gone = to_release([small, large, other], disk_bytes=DISK, short_bytes=80, hold_s=9, now=1)
    assert set(gone) == {large}
    assert "room is short" in gone[large]


async def fill(client: AsyncMedusaClient, mit: Place, stream: str, first: int, posts: int) -> None:
    """Post 500 tuples at a time, each post an epoch; the history keeps no tuples."""
    for number in range(first, first + posts):
        stimes = range(number * 500, number * 500 + 500)
        await send_rows(client, stream, [(at, 0) for at in stimes], boundary=stimes[-1])
        await mit.state(stream).log.wait_beyond(stimes[-1] - 1)


async def besieged(cluster: Cluster) -> tuple[Place, Place]:
    mit, evil = await cluster.settle_all("mit.edu", "evil.org")
    return mit, evil


@pytest.mark.cluster(disk_bytes=400000)
@pytest.mark.parametrize("name", ["", "me"])
async def test_a_foreign_reader_that_acknowledges_nothing_does_not_stop_posts(
    cluster: Cluster, name: str
) -> None:
    mit, evil = await besieged(cluster)
    client = await cluster.client(mit)
    stream = await make_stream(client, mit, "s", history_us=1)
    other = await make_stream(client, mit, "other", history_us=1)
    await fill(client, mit, stream, 1, 1)
    connection = await evil.up.engine.overlay.connect(bytes.fromhex(mit.id))
    request = Subscribe(stream, subscriber=name)
    async with connection.open("subscribe", request) as duplex:
        await duplex.receive(Tuples)
        with trio.fail_after(DEADLINE_S):
            await fill(client, mit, stream, 2, 45)
            await fill(client, mit, other, 1, 3)
        with pytest.raises(NotRetainedError, match="you are waited for no"):  # noqa: PT012
            while True:
                await duplex.receive(Tuples)
    await until(lambda: mit.state("s").log.start > 1000, "it keeps nothing any more")
    own = await cluster.client(mit)
    assert len(await received(own.subscribe(stream), 1)) >= 1


@pytest.mark.cluster(disk_bytes=400000)
async def test_a_visit_of_a_second_does_not_keep_the_disk_for_a_day(cluster: Cluster) -> None:
    mit, evil = await besieged(cluster)
    client, reader = await cluster.clients(mit, evil)
    stream = await make_stream(client, mit, "s", history_us=1)
    await fill(client, mit, stream, 1, 1)
    async with reader.subscribe(stream, subscriber="me") as visit:
        await received(visit, 1)
        boundary = visit.boundary
    with trio.fail_after(DEADLINE_S):
        await fill(client, mit, stream, 2, 45)
    await until(lambda: mit.state("s").log.start > boundary)
    back = reader.subscribe(stream, after=boundary, subscriber="me")
    with pytest.raises(NotRetainedError, match="bytes were kept for it in this stream"):
        await received(back, 1)


@pytest.mark.cluster(foreign_hold_s=0.3)
async def test_our_own_reader_is_waited_for_as_long_as_its_lease(cluster: Cluster) -> None:
    mit, utah = await besieged(cluster)
    client, other = await cluster.clients(mit, utah)
    for reader, path in ((client, "ours"), (other, "theirs")):
        stream = await make_stream(client, mit, path, history_us=1)
        await fill(client, mit, stream, 1, 1)
        async with reader.subscribe(stream, subscriber="me") as visit:
            await received(visit, 1)
        await fill(client, mit, stream, 2, 3)
    await until(lambda: not mit.state("theirs").log.retention.consumers)
    assert mit.state("ours").log.retention.consumers == (Hold("subscriber", "mit.edu me"),)
    assert mit.state("ours").log.start < mit.state("theirs").log.start
