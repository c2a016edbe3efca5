"""A leader names a damaged file of a log, and fetches it from a peer that has it. The tests damage
files of complete peers (`engine_peers`), while a peer is away or runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio
from damaged_files import flip
from engine_peers import DEADLINE_S, Cluster, Place, Row, begin, make_stream, received, rows, until
from leaders_cluster import QUIET_S, new_leader, voter
from moving_tasks import Sums, expected, post, windows

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.objects.view import Range, View
from medusa.engine.replication.repair import LEND, Lend
from medusa.engine.streams.config import Timing
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import Post, Tuples
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.store.store import REPLICATED
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.errors import NotAuthorisedError, NotFoundError, NotRetainedError
from medusa.overlay.events import wall_clock
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = [
    pytest.mark.cluster(timing=Timing(mend_s=0.05, mend_again_s=0.3, maintenance_s=0.05)),
    pytest.mark.usefixtures("interpreted"),
]


def files(place: Place, key: str) -> list[Path]:
    """Return the files of a log that have rows, the oldest first."""
    found = place.home.data.glob(f"streams/{key}/log/*.parquet")
    with_rows = [path for path in found if pq.read_metadata(path).num_rows]
    return sorted(with_rows, key=lambda path: int(path.stem.partition("_")[0]))


def flip_a_value(path: Path) -> None:
    at = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    flip(path, at + 60)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


DAMAGE = {"flipped": flip_a_value, "cut": cut, "missing": Path.unlink}
Damage = Callable[[Path], None]


def said(place: Place) -> list[str]:
    return [event.text for event in place.up.engine.overlay.events.recent()]


def forget_recent(state: StreamState) -> None:
    """Drop the log's epochs in memory, as a log does that has grown: then readers read its
    files."""
    recent = state.log._recent
    while recent._epochs:
        recent.drop_oldest()


async def each_its_epoch(
    client: AsyncMedusaClient, place: Place, stream: str, stimes: range
) -> list[Row]:
    """Post so that each post becomes a file."""
    for at in stimes:
        await client.post_event(stream, rows([(at, at)]), boundary=at)
        await client.flush()
        await until(lambda at=at: place.state(stream).log.boundary == at)
    return [(at, at) for at in stimes]


async def all_of(place: Place, stream: str, count: int) -> list[Row]:
    async with place.client() as client:
        return await received(client.subscribe(stream, BEGINNING), count)


def whole(place: Place, stream: str) -> bool:
    return not place.state(stream).log.files.lost


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_source_gets_a_lost_file_from_a_mirror_of_its_own_participant(
    cluster: Cluster, damage: Damage
) -> None:
    one, two = await cluster.siblings(2)
    async with one.client() as client, two.client() as other:
        stream = await make_stream(client, one, "s")
        await begin(other, windows(two, stream))
        posted = await each_its_epoch(client, one, stream, range(1, 9))
        await until(lambda: two.state(stream).log.boundary == 8)
    await cluster.stop(one)
    path = files(one, "mit.edu,s")[4]
    damage(path)
    await cluster.start(one)
    assert await all_of(one, stream, 8) == posted
    assert whole(one, stream)
    whole_again = pq.read_table(path, page_checksum_verification=True)
    assert whole_again.column("stime").to_pylist() == [5]
    texts = said(one)
    assert any(
        text.startswith(f"misses rows of {stream}: {path} is damaged or missing") for text in texts
    )
    assert f"fetched the rows after boundary 4 up to 5 of {stream} again" in texts


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_file_without_a_copy_is_named_and_all_else_goes_on(
    cluster: Cluster, damage: Damage
) -> None:
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s")
        posted = await each_its_epoch(client, mit, stream, range(1, 9))
    await cluster.stop(mit)
    path = files(mit, "mit.edu,s")[4]
    copy = path.read_bytes()
    damage(path)
    await cluster.start(mit)
    client = await cluster.client(mit)
    for after in (BEGINNING, 1):
        reader = client.subscribe(stream, after)
        before = posted[max(0, after) : 4]
        assert await received(reader, len(before)) == before
        text = f"{stream}: the rows after boundary 4 up to 5 are damaged"
        with pytest.raises(NotRetainedError, match=text):
            await received(reader, 1)
    posted += await each_its_epoch(client, mit, stream, range(9, 12))
    assert await received(client.subscribe(stream, 5), 6) == posted[5:]
    named = [text for text in said(mit) if "is damaged or missing" in text]
    assert named[0].startswith(f"misses rows of {stream}: {path}")
    path.write_bytes(copy)
    await until(lambda: whole(mit, stream), "somebody has put a copy there")
    assert await received(client.subscribe(stream, 1), 10) == posted[1:]


async def test_a_mirror_gets_a_lost_file_from_its_producer(cluster: Cluster) -> None:
    """The mirror's task computes from the whole input, or not at all."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client() as client, utah.client() as other:
        stream = await make_stream(client, mit, "s")
        await begin(other, windows(utah, stream))
        sums = Sums(other, utah.name("out"))
        await each_its_epoch(client, mit, stream, range(1, 9))
        await until(lambda: utah.state(stream).log.boundary == 8)
        flip_a_value(files(utah, "mit.edu,s")[4])
        await post(client, stream, range(9, 150))
        await sums.take(99)
        assert sums.rows == expected(range(1, 150))[:1]
    assert any("is damaged or missing" in text for text in said(utah))


async def test_a_view_gets_a_lost_file_from_the_stream_that_it_shows(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client, other = await cluster.clients(mit, utah)
    stream = await make_stream(client, mit, "s")
    name = utah.name("range")
    await other.create_view(View(name, stream, Range(2, 1_000)))
    for at in range(1, 9):
        await each_its_epoch(client, mit, stream, range(at, at + 1))
        await until(lambda at=at: utah.state(name).log.boundary >= min(at, 8))
    path = files(utah, "utah.edu,range")[2]
    flip_a_value(path)
    forget_recent(utah.state(name))
    assert await received(other.subscribe(name), 6) == [(n, n) for n in range(3, 9)]
    assert any(text.startswith(f"misses rows of {name}: {path} is damaged") for text in said(utah))


async def test_an_output_is_computed_again(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    stream = await make_stream(client, mit, "s")
    await begin(client, windows(mit, stream))
    out = mit.name("out")
    for start in range(0, 500, 50):
        await post(client, stream, range(start, start + 50))
        await until(lambda end=start + 49: mit.state(out).log.boundary == end)
    before = expected(range(500))
    path = files(mit, "mit.edu,out")[2]
    flip_a_value(path)
    forget_recent(mit.state(out))
    sums = Sums(client, out)
    await sums.take(499)
    assert sums.rows == before
    assert whole(mit, out)
    assert any(text.startswith(f"misses rows of {out}: {path} is damaged") for text in said(mit))


async def test_an_output_is_not_computed_from_what_is_left_of_its_inputs(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    stream = await make_stream(client, mit, "s", history_us=10)
    await begin(client, windows(mit, stream))
    out = mit.name("out")
    for start in range(0, 500, 50):
        await post(client, stream, range(start, start + 50))
        await until(lambda end=start + 49: mit.state(out).log.boundary == end)
    await until(lambda: mit.state(stream).log.start > 200)
    flip_a_value(files(mit, "mit.edu,out")[2])
    forget_recent(mit.state(out))
    for _ in range(2):  # the call works again when the result is known
        with pytest.raises(NotRetainedError, match=r"are damaged.*: read from 349 on"):
            await Sums(client, out).take(499)
    later = Sums(client, out, 349)
    with trio.fail_after(DEADLINE_S):
        await later.take(499)
    assert later.rows == expected(range(500))[3:]


@pytest.mark.cluster(timing=Timing(), leader_silence_s=QUIET_S)
async def test_a_leader_gets_a_lost_file_from_a_replica(
    cluster: Cluster, places: list[Place]
) -> None:
    first = places[0]
    client = await cluster.client(first)
    stream = await make_stream(client, first, "s", k_safety=1)
    state = voter(first, stream).logs.state
    assert state is not None
    for at in range(1, 9):
        await client.post_event(stream, rows([(at, at)]), boundary=at)
        await client.flush()
        await until(lambda at=at: state.log.boundary == at)
    (replica,) = [
        place for place in places[1:] if place.up.engine.store.get(stream, REPLICATED) is not None
    ]
    copied = replica.up.engine.store.get(stream, REPLICATED)
    assert copied is not None
    await until(lambda: copied.log.boundary == 8)
    flip_a_value(files(first, "mit.edu,s@home")[3])
    forget_recent(state)
    home = await new_leader(places, stream)
    assert home is first
    assert await received(client.subscribe(stream), 8) == [(n, n) for n in range(1, 9)]
    assert not state.log.files.lost


@pytest.mark.cluster(timing=Timing(), leader_silence_s=QUIET_S)
async def test_a_leader_that_has_lost_a_part_for_good_finds_another_replica(
    cluster: Cluster, places: list[Place]
) -> None:
    """The new replica begins behind the lost part."""
    first = places[0]
    client = await cluster.client(first)
    stream = await make_stream(client, first, "s", k_safety=1)
    state = [place.up.engine.store.get(stream, REPLICATED) for place in places]
    logs = {p.id: each for p, each in zip(places, state, strict=True) if each}
    for at in range(1, 9):
        await client.post_event(stream, rows([(at, at)]), boundary=at)
        await client.flush()
        await until(lambda at=at: all(each.log.boundary == at for each in logs.values()))
    (replica, witness) = sorted(places[1:], key=lambda place: place.id not in logs)
    for place in (first, replica):
        flip_a_value(files(place, "mit.edu,s@home")[3])
        forget_recent(logs[place.id])
    with pytest.raises(NotRetainedError, match="after boundary 3 up to 4 are damaged"):
        await received(client.subscribe(stream, 1), 3)
    await cluster.stop(replica)
    await client.post_event(stream, rows([(9, 9)]), boundary=9)
    await client.flush()
    copied = witness.up.engine.store.get(stream, REPLICATED)
    assert copied is not None
    await until(lambda: copied.log.boundary == 9)
    assert copied.log.start == 4
    assert await received(client.subscribe(stream, 4), 5) == [(n, n) for n in range(5, 10)]


async def test_only_peers_of_its_participant_are_lent_a_stream(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    utah = await cluster.settle("utah.edu")
    await cluster.acquainted(one, two, utah)
    async with one.client() as client, utah.client() as other:
        stream = await make_stream(client, one, "s", readers=("mit.edu",))
        theirs = await make_stream(other, utah, "t")
        await each_its_epoch(client, one, stream, range(1, 4))

    async def borrow(place: Place, name: str, after: int, upto: int) -> None:
        overlay = place.up.engine.overlay
        connection = await overlay.connect(bytes.fromhex(one.id))
        async with connection.open(LEND, Lend(name, after, upto)) as duplex:
            await duplex.receive(Tuples)

    await borrow(two, stream, 1, 2)
    with pytest.raises(NotFoundError):
        await borrow(two, stream, 1, 9)
    with pytest.raises(NotAuthorisedError):
        await borrow(utah, stream, 1, 2)
    with pytest.raises(NotAuthorisedError):
        await borrow(two, theirs, 1, 2)


async def test_posts_missing_from_a_damaged_journal_are_reported(cluster: Cluster) -> None:
    """The event names the place of the damage at the start, and the producer once that producer
    continues."""
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s")

    async def put(number: int, boundary: int | None = None) -> None:
        home = mit.state(stream).leader
        assert home is not None
        body = encode(rows([(number, number)]))
        await home.post(
            PostRequest(Writer("p"), Post(number, boundary=boundary), body), now=wall_clock()
        )

    for number in range(1, 4):
        await put(number)
    await cluster.stop(mit)
    (journal,) = mit.home.data.glob("streams/mit.edu,s/journal/*.journal")
    flip(journal, -1)
    await cluster.start(mit)
    assert any(text.startswith(f"misses rows of {stream}: {journal}: ") for text in said(mit))
    await put(4, boundary=9)
    text = f"misses rows of {stream}: posts 3 to 3 of p are missing from the journal"
    await until(lambda: any(each.startswith(text) for each in said(mit)))
    assert await all_of(mit, stream, 3) == [(1, 1), (2, 2), (4, 4)]
