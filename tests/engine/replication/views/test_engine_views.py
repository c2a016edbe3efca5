"""Views at complete peers (`engine_peers`) are created, read near and far, kept over restarts,
refused, and deleted."""

from __future__ import annotations

import pytest
from engine_peers import (
    DEADLINE_S,
    Cluster,
    make_stream,
    pairs_of,
    received,
    rows,
    send_rows,
    to_the_end,
    until,
)
from viewed_streams import caught_up, post

from medusa.engine.objects.catalog_records import PRODUCER, STREAM, VIEW
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.replication.views import host
from medusa.engine.replication.views.locating import HOLDERS
from medusa.engine.replication.views.messages import Locate, Located
from medusa.engine.streams.config import Timing
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    NotRetainedError,
)

pytestmark = pytest.mark.cluster(timing=Timing(maintenance_s=0.02, held_s=1.0))


async def test_the_last_tuples_move_and_what_is_frozen_does_not(cluster: Cluster) -> None:
    mit, _utah, client, other, stream = await cluster.owner_and_guest(history_us=20)
    await post(client, mit, stream, 10, 11, 12)
    moving, frozen = mit.name("moving"), mit.name("frozen")
    made = await client.create_view(View(moving, stream, Last(2)))
    assert (made.after, made.until) == (10, END)
    made = await client.create_view(View(frozen, stream, Last(2), frozen=True))
    assert (made.after, made.until) == (10, 12)
    reader = other.subscribe(moving)
    assert await received(reader, 2) == [(11, 11), (12, 12)]
    for stimes in ((40, 41), (60,), (80,), (100, 101)):  # the stream drops old tuples meanwhile
        await post(client, mit, stream, *stimes)
    await until(lambda: mit.state(stream).log.start >= 60)
    await caught_up(mit, moving, 101)
    assert await received(reader, 6) == [(t, t) for t in (40, 41, 60, 80, 100, 101)]
    for place in (client, other):
        assert await to_the_end(place.subscribe(frozen)) == [(11, 11), (12, 12)]
        assert await received(place.subscribe(moving), 2) == [(100, 100), (101, 101)]
    await until(lambda: mit.state(moving).log.start >= 80, "what it does not show goes")
    await cluster.restart(mit)
    assert await to_the_end(other.subscribe(frozen)) == [(11, 11), (12, 12)]
    again = other.subscribe(moving)
    assert await received(again, 2) == [(100, 100), (101, 101)]
    await post(client, mit, stream, 102)
    assert await received(again, 1) == [(102, 102)]
    await client.post_event(stream, None, end=True)
    assert await to_the_end(again) == []
    assert await to_the_end(client.subscribe(moving)) == [(101, 101), (102, 102)]


async def test_tuples_of_one_stime_stay_together(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    tied = [(1, 0), (2, 1), (2, 2), (2, 3), (3, 4)]
    await send_rows(client, stream, tied, boundary=5)
    await until(lambda: mit.state(stream).log.boundary == 5)
    for count, shown in ((1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (99, 5)):
        for frozen in (False, True):
            view = View(mit.name(f"v{count}{frozen}"), stream, Last(count), frozen)
            await client.create_view(view)
            reader = client.subscribe(view.name)
            assert await received(reader, shown) == tied[-shown:]
            if frozen:
                assert await to_the_end(reader) == []


async def test_the_last_seconds(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream(history_us=1)
    for stime in (10, 20, 30):
        await post(client, mit, stream, stime)
    await until(lambda: mit.state(stream).log.start == 20)
    moving, frozen = mit.name("moving"), mit.name("frozen")
    # the stream has dropped its past; a view that moves fills as new tuples arrive
    assert (await client.create_view(View(moving, stream, Recent(15)))).until == END
    with pytest.raises(NotRetainedError, match=rf"{stream} is kept from boundary \d+ on"):
        await client.create_view(View(frozen, stream, Recent(15), frozen=True))
    await post(client, mit, stream, 38, 40, 50)
    await caught_up(mit, moving, 50)
    assert await received(client.subscribe(moving), 3) == [(38, 38), (40, 40), (50, 50)]
    await client.create_view(View(frozen, moving, Recent(11), frozen=True))
    assert await to_the_end(client.subscribe(frozen)) == [(40, 40), (50, 50)]
    await post(client, mit, stream, 60)
    await caught_up(mit, moving, 60)
    assert await received(client.subscribe(moving), 2) == [(50, 50), (60, 60)]


async def test_a_range_lasts_however_little_the_stream_keeps(cluster: Cluster) -> None:
    mit, utah, client, other, stream = await cluster.owner_and_guest(history_us=20)
    for stime in (10, 20, 30):
        await post(client, mit, stream, stime)
    view = View(utah.name("range"), stream, Range(10, 45))
    made = await other.create_view(view)
    assert (made.after, made.until) == (10, 45)
    assert await other.create_view(view) == made, "the same again is no error"
    reader = client.subscribe(view.name)
    assert await received(reader, 2) == [(20, 20), (30, 30)]
    await cluster.restart(utah)  # the restart interrupts the copying
    for stime in (40, 45, 46, 60, 80):
        await post(client, mit, stream, stime)
    assert await to_the_end(reader) == [(40, 40), (45, 45)]
    await until(lambda: mit.state(stream).log.start >= 50, "nothing is held by it any more")
    with pytest.raises(NotRetainedError, match=rf"{stream} is kept .* 10 .*is older"):
        await other.create_view(View(utah.name("too_late"), stream, Range(10, 45)))
    await cluster.restart(utah)
    shown = [(20, 20), (30, 30), (40, 40), (45, 45)]
    assert await to_the_end(client.subscribe(view.name)) == shown
    assert await to_the_end(client.subscribe(view.name, after=30)) == shown[2:]
    with pytest.raises(NotRetainedError, match=rf"{view.name} is kept from boundary 10 on"):
        await anext(client.subscribe(view.name, after=9))
    beginning = View(utah.name("from_the_beginning"), view.name, Range(BEGINNING, 30))
    assert (await other.create_view(beginning)).after == 10
    assert await to_the_end(other.subscribe(beginning.name)) == shown[:2]
    epoch = await other.receive_events(beginning.name, timeout_s=DEADLINE_S)
    assert epoch is not None
    assert pairs_of(epoch.table) == shown[:2]


async def test_views_show_streams_that_begin_late_or_have_ended(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    with pytest.raises(InvalidInputError, match="has nothing yet"):
        await client.create_view(View(mit.name("none"), stream, Last(3), frozen=True))
    with pytest.raises(NotFoundError):
        await client.lookup_object(mit.name("none"))
    early = mit.name("early")
    await client.create_view(View(early, stream, Last(3)))
    reader = client.subscribe(early)
    await client.post_event(stream, None, boundary=5)
    await until(lambda: mit.state(stream).log.boundary == 5)
    empty = await client.create_view(View(mit.name("empty"), stream, Last(3), frozen=True))
    assert (empty.after, empty.until) == (BEGINNING, 5)
    assert await to_the_end(client.subscribe(empty.name)) == []
    await post(client, mit, stream, 6, 7, 8, 9)
    await client.post_event(stream, None, end=True)
    assert await to_the_end(reader) == [(6, 6), (7, 7), (8, 8), (9, 9)]
    for number, (shows, expected) in enumerate(
        ((Last(2), [8, 9]), (Recent(2), [8, 9]), (Range(5, 8), [6, 7, 8]))
    ):
        for frozen in (False, True):
            view = View(mit.name(f"ended{number}{frozen}"), stream, shows, frozen)
            await client.create_view(view)
            found = await to_the_end(client.subscribe(view.name))
            assert found == [(stime, stime) for stime in expected]


async def test_only_readers_may_create_and_read_views(cluster: Cluster) -> None:
    mit, utah, brown = await cluster.settle_all("mit.edu", "utah.edu", "brown.edu")
    client, other, third = await cluster.clients(mit, utah, brown)
    own = await make_stream(client, mit, "own", readers=())
    shared = await make_stream(client, mit, "shared", readers=("utah.edu",))
    open_ = await make_stream(client, mit, "open")
    for stream in (own, shared, open_):
        await post(client, mit, stream, 1)
    with pytest.raises(NotAuthorisedError, match=r"utah\.edu may not read medusa://mit\.edu/own"):
        await other.create_view(View(utah.name("v"), own, Last(1)))
    with pytest.raises(NotAuthorisedError, match=r"administered by mit\.edu"):
        await other.create_view(View(mit.name("v"), shared, Last(1)))
    await other.create_view(View(utah.name("v"), shared, Last(1)))
    assert await received(other.subscribe(utah.name("v")), 1) == [(1, 1)]
    with pytest.raises(NotAuthorisedError, match="does not let you read"):
        await anext(third.subscribe(utah.name("v")))
    with pytest.raises(NotAuthorisedError):
        await third.create_view(View(brown.name("v"), utah.name("v"), Last(1)))
    with pytest.raises(NotAuthorisedError):
        await client.delete_view(utah.name("v"))
    there = await brown.up.engine.overlay.connect(bytes.fromhex(mit.id))
    for name, shows, error in (
        (own, Last(1), NotAuthorisedError),
        (mit.name("none"), Last(1), NotFoundError),
        (open_, Last(-1), InvalidInputError),
        (open_, Range(5, 4), InvalidInputError),
    ):
        with pytest.raises(error):
            await there.call("locate", Locate(name, shows, True), Located)
    for number in range(2 * HOLDERS):
        found = await there.call("locate", Locate(open_, Last(1 + number), True), Located)
        assert (found.after, found.until) == (0 if not number else BEGINNING, 1)
    holds = [c for c in mit.state(open_).log.retention.consumers if "brown.edu" in c.id]
    assert len(holds) == HOLDERS
    poster = await other.poster(utah.name("v"))
    await poster.post(rows([(2, 2)]))
    with pytest.raises(InvalidInputError, match=f"is a view: post to {shared}"):
        await poster.flush()


async def test_names_and_numbers_that_cannot_be(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MAX_VIEWS", 2)
    mit, client, stream = await cluster.founder_with_stream()
    await post(client, mit, stream, 1, 2)
    name = mit.name("v")
    for view, error, text in (
        (View(name, stream, Last(0)), InvalidInputError, "the last 0 tuples: 1 to"),
        (View(name, stream, Last(10**9)), InvalidInputError, "1 to 100000000"),
        (View(name, stream, Recent(0)), InvalidInputError, "the last 0 s"),
        (View(name, stream, Recent(2**60)), InvalidInputError, "ten years"),
        (View(name, stream, Range(5, 5)), InvalidInputError, "later than it begins"),
        (View(name, stream, Range(1, END)), InvalidInputError, "must end"),
        (View(name, stream, Range(0, 2**60)), InvalidInputError, "at most ten years"),
        (View(name, stream, Last(1), False, "value"), InvalidInputError, "ordered by t"),
        (View(name, name, Last(1)), InvalidInputError, "cannot show itself"),
        (View(f"{stream}/late", stream, Last(1)), InvalidInputError, "late"),
        (View(name, mit.name("none"), Last(1)), NotFoundError, "not in the catalog"),
        (View(stream, stream + "2", Last(1)), ConflictError, "it is a stream"),
    ):
        with pytest.raises(error, match=text):
            await client.create_view(view)
    await client.create_view(View(name, stream, Last(1), order_on="t"))
    with pytest.raises(ConflictError, match="exists and differs"):
        await client.create_view(View(name, stream, Last(2), order_on="t"))
    await client.create_view(View(mit.name("w"), stream, Last(1), order_on="stime"))
    with pytest.raises(BusyError, match="keeps 2 views, no more are allowed: delete one"):
        await client.create_view(View(mit.name("x"), stream, Last(1)))
    listed = (await client.list_objects()).names
    assert listed["view"] == (name, mit.name("w"))
    assert set(listed["stream"]) >= {name, mit.name("w"), stream}


async def test_deleting_a_view_frees_the_tuples_that_it_kept(cluster: Cluster) -> None:
    mit, beside = await cluster.settle_all("mit.edu", "mit.edu")
    client, other = await cluster.clients(mit, beside)
    stream = await make_stream(client, mit, "s", history_us=1)
    await post(client, mit, stream, 1, 2, 3)
    view = mit.name("v")
    await other.create_view(View(view, stream, Range(BEGINNING, 100)))
    assert "view" in (await client.lookup_object(view)).entries
    reader = client.subscribe(view)
    assert await received(reader, 3) == [(1, 1), (2, 2), (3, 3)]
    folder = beside.up.engine.store.folders.of(LogKey(view))
    assert folder.exists()
    await client.delete_view(view)  # any peer of the participant takes the call
    assert not folder.exists()
    assert beside.up.engine.store.get(stream) is None, "its mirror went, too"
    with pytest.raises(NotFoundError):
        await anext(reader)
    with pytest.raises(NotFoundError):
        await client.delete_view(view)
    for stime in (10, 20, 30):
        await post(client, mit, stream, stime)
    await until(lambda: mit.state(stream).log.start >= 10)
    for kind in (STREAM, PRODUCER, VIEW):
        assert view not in [str(each.name) for each in beside.up.engine.catalog.own(kind)]
    await other.create_view(View(view, stream, Last(1)))
    assert await received(client.subscribe(view), 1) == [(30, 30)]
