"""Views whose streams are deleted or change their leader, on full disks, and after crashes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from engine_peers import Cluster, begin, make_stream, received, rows, send_rows, to_the_end, until
from leaders_cluster import QUIET_S, new_leader, replicas_of
from viewed_streams import caught_up, post

from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.view import Last, Range, View
from medusa.engine.replication.following.book import Followers
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import ConflictError, NotFoundError, StorageFullError, UnavailableError

QUICK = Timing(maintenance_s=0.02, view_again_s=0.05)
pytestmark = pytest.mark.cluster(timing=QUICK)


async def test_views_of_views_and_of_deleted_streams(cluster: Cluster, interpreted: None) -> None:
    mit, utah, client, other, stream = await cluster.owner_and_guest()
    odd = Filter("odd", stream, (mit.name("odd"),), ("value % 2 = 1",))
    await begin(client, Query(mit.name("q"), (odd,)))
    await post(client, mit, stream, 1, 2, 3, 4, 5)
    await until(lambda: mit.state("odd").log.boundary == 5)
    moving, frozen = mit.name("moving"), mit.name("frozen")
    await client.create_view(View(moving, mit.name("odd"), Last(2)))
    await client.create_view(View(frozen, moving, Last(2), frozen=True))
    await other.create_view(View(utah.name("far"), moving, Last(1)))
    await client.create_view(View(mit.name("near"), moving, Last(1)))
    assert await to_the_end(other.subscribe(frozen)) == [(3, 3), (5, 5)]
    assert await received(other.subscribe(utah.name("far")), 1) == [(5, 5)]
    assert await received(other.subscribe(mit.name("near")), 1) == [(5, 5)]
    with pytest.raises(ConflictError, match=r"is read by medusa://mit\.edu/near: delete"):
        await client.delete_view(moving)
    with pytest.raises(ConflictError, match=f"{moving} is a view of"):
        await client.create_query(
            Query(mit.name("r"), (Filter("f", stream, (moving,), ("value > 0",)),))
        )
    await client.delete_query(mit.name("q"))
    with pytest.raises(NotFoundError):
        await client.lookup_object(mit.name("odd"))
    for place in (mit, utah):
        await cluster.restart(place)
    assert await received(client.subscribe(moving), 2) == [(3, 3), (5, 5)]
    assert await received(other.subscribe(utah.name("far")), 1) == [(5, 5)]
    await client.delete_view(mit.name("near"))
    await client.delete_view(moving)
    assert await to_the_end(client.subscribe(frozen)) == [(3, 3), (5, 5)]
    assert (await client.list_objects()).names["view"] == (frozen, utah.name("far"))


async def test_a_view_that_cannot_go_on_at_a_start_goes_on_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client = await cluster.client(mit)
    stream = await make_stream(client, mit, "s", history_us=10**9)
    await send_rows(client, stream, [(1, 1)], boundary=1)
    view = utah.name("v")
    async with utah.client() as other:
        await other.create_view(View(view, stream, Range(0, 1_000)))
        assert await received(other.subscribe(view), 1) == [(1, 1)]
    await cluster.stop(utah)
    follow, refused = Followers.follow_history, list[str]()

    async def once(at: Followers, *arguments: Any) -> Any:
        if not refused:
            refused.append("once")
            raise UnavailableError("it failed, as the test wants")
        return await follow(at, *arguments)

    monkeypatch.setattr(Followers, "follow_history", once)
    await cluster.start(utah)
    assert refused
    await client.post_event(stream, rows([(2, 2)]), boundary=2)
    async with utah.client() as other:
        assert await received(other.subscribe(view), 2) == [(1, 1), (2, 2)]


async def test_a_full_disk_only_delays_a_view(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 3
    commit = StreamLog.commit

    async def sometimes(log: StreamLog, upto: int, table: pa.Table | None) -> float:
        nonlocal failures
        if "v" in log.folder.parts[-2] and failures:
            failures -= 1
            raise StorageFullError("as the test wants")
        return await commit(log, upto, table)

    monkeypatch.setattr(StreamLog, "commit", sometimes)
    mit, client, stream = await cluster.founder_with_stream(history_us=1)
    for stime in (1, 2, 3):
        await post(client, mit, stream, stime)
    await client.create_view(View(mit.name("v"), stream, Last(3)))
    reader = client.subscribe(mit.name("v"))
    for stime in (10, 20, 30):
        await post(client, mit, stream, stime)
    assert (await received(reader, 4))[-3:] == [(10, 10), (20, 20), (30, 30)]
    notes = [str(event.text) for event in mit.up.engine.overlay.events.recent()]
    told = [note for note in notes if note.endswith("v: as the test wants")]
    assert (len(told), failures) == (1, 0)


async def test_the_remains_of_a_half_deleted_view_are_removed(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    await post(client, mit, stream, 1, 2, 3)
    view = View(mit.name("v"), stream, Last(3), frozen=True)
    await client.create_view(view)
    await to_the_end(client.subscribe(view.name))
    folder = mit.up.engine.store.folders.of(LogKey(view.name))
    await cluster.stop(mit)
    gone = folder.with_name("~" + "0" * 64)
    folder.rename(gone)  # a peer that is killed while it deletes a view leaves such a folder
    await cluster.start(mit)
    assert not gone.exists()
    with pytest.raises(NotFoundError):
        await anext(client.subscribe(view.name))
    await client.create_view(view)
    assert await to_the_end(client.subscribe(view.name)) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.cluster(leader_silence_s=QUIET_S)
async def test_a_view_of_a_stream_whose_leader_dies_reads_from_the_next_leader(
    cluster: Cluster,
) -> None:
    """The view is at the leader itself, at a voter that becomes the leader, and at another peer."""
    places = await cluster.siblings(4)
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        voters = [p for p in places if p.up.engine.leaders.get(stream) is not None]
        (replica,) = replicas_of(voters, stream, first)
        await send_rows(client, stream, [(1, 1), (2, 2), (3, 3)], boundary=3)
    makers = [place for place in places if place is not first]
    for number, place in enumerate(makers):
        async with place.client() as client:
            await client.create_view(View(first.name(f"moving{number}"), stream, Last(2)))
            view = View(first.name(f"range{number}"), stream, Range(1, 5))
            await client.create_view(view)
    await cluster.stop(first)
    home = await new_leader(voters, stream)
    assert home is replica
    async with home.client() as client:
        await send_rows(client, stream, [(4, 4), (5, 5), (6, 6)], boundary=6)
        for number in range(len(makers)):
            shown = await to_the_end(client.subscribe(first.name(f"range{number}")))
            assert shown == [(2, 2), (3, 3), (4, 4), (5, 5)]
            await caught_up(makers[number], first.name(f"moving{number}"), 6)
            moving = client.subscribe(first.name(f"moving{number}"))
            assert await received(moving, 2) == [(5, 5), (6, 6)]
