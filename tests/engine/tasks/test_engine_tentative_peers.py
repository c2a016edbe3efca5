"""Results continue without a missing input, and are corrected when it comes."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, Row, begin, make_stream, pairs_of, rows, until

from medusa.engine.objects.availability import Availability
from medusa.engine.objects.query import Aggregate, AggregateCall, Box, Filter, Query, Union
from medusa.engine.objects.schema import END
from medusa.engine.streams.log.suffix import State
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind
from medusa.tools.client.async_client import AsyncMedusaClient

BOUND_S = 0.5
MIT, UTAH = "mit.edu", "utah.edu"
ALL = 10**6


pytestmark = pytest.mark.usefixtures("interpreted")


async def define(client: AsyncMedusaClient, place: Place, *boxes: Box, bound_s: float) -> None:
    name = place.name(f"{boxes[-1].name}-query")
    query = Query(name, boxes, (), Availability(bound_s=bound_s))
    await begin(client, query)


async def chain(cluster: Cluster) -> tuple[Place, Place, AsyncMedusaClient]:
    """Return two streams at mit.edu, their union there, and a filter of that at utah.edu."""
    mit, utah = await cluster.settle_all(MIT, UTAH)
    poster, client = await cluster.clients(mit, utah)
    for path in ("a", "b"):
        await make_stream(poster, mit, path)
    merge = Union("merge", (mit.name("a"), mit.name("b")), mit.name("merged"))
    await define(poster, mit, merge, bound_s=BOUND_S)
    some = Filter("some", mit.name("merged"), (utah.name("some"),), ("value < 1000",))
    await define(client, utah, some, bound_s=BOUND_S)
    return mit, utah, poster


async def post(client: AsyncMedusaClient, stream: str, values: list[Row], upto: int) -> None:
    await client.post_event(stream, rows(values) if values else None, boundary=upto)
    await client.flush()


class ReceivedChanges:
    """The messages that a client receives, in order."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    async def follow(self, place: Place, stream: str, how: Corrections) -> None:
        async with place.client() as client:
            async for change in client.follow(stream, how):
                self.changes.append(change)

    def kinds(self) -> list[str]:
        return [c.kind.value for c in self.changes if c.table.num_rows or c.kind in BARE]

    def rows(self, *kinds: Kind) -> list[Row]:
        return [row for c in self.changes if c.kind in kinds for row in pairs_of(c.table)]

    @property
    def boundary(self) -> int:
        return self.changes[-1].boundary if self.changes else -1


BARE = {Kind.UNDO, Kind.REC_DONE}


async def test_a_chain_goes_on_without_an_input_and_corrects_itself(cluster: Cluster) -> None:
    mit, utah, poster = await chain(cluster)
    undo, revisions = ReceivedChanges(), ReceivedChanges()
    cluster.nursery.start_soon(undo.follow, utah, utah.name("some"), Corrections.UNDO)
    cluster.nursery.start_soon(revisions.follow, mit, utah.name("some"), Corrections.REVISIONS)
    for path, values in (("a", [(10, 1)]), ("b", [(11, 2)])):
        await post(poster, mit.name(path), values, 100)
    await until(lambda: min(undo.boundary, revisions.boundary) >= 100)

    began = trio.current_time()
    await post(poster, mit.name("a"), [(150, 3), (160, 4)], 200)
    await until(lambda: len(undo.rows(Kind.TENTATIVE)) == 2)
    waited = trio.current_time() - began
    assert waited >= 0.9 * BOUND_S, "it might have come"
    assert undo.rows(Kind.TENTATIVE) == [(150, 3), (160, 4)]
    assert undo.boundary == 100
    for place in (mit, utah):
        (status,) = [
            s
            for s in place.up.engine.store.status()
            if s.name == (mit.name("merged") if place is mit else utah.name("some"))
        ]
        assert status.state == State.UP_FAILURE

    await post(poster, mit.name("b"), [(155, 5)], 200)
    await until(lambda: "REC_DONE" in undo.kinds())
    assert undo.kinds() == ["INSERTION", "TENTATIVE", "UNDO", "INSERTION", "REC_DONE"]
    final = [(10, 1), (11, 2), (150, 3), (155, 5), (160, 4)]
    assert undo.rows(Kind.INSERTION) == final
    await until(lambda: revisions.rows(Kind.INSERTION) == [(10, 1), (11, 2), (155, 5)])
    assert revisions.kinds() == ["INSERTION", "TENTATIVE", "INSERTION"]
    assert mit.state("merged").suffix.state is State.STABLE


async def test_an_input_that_comes_within_the_bound_is_not_missed(cluster: Cluster) -> None:
    mit, utah, poster = await chain(cluster)
    told = ReceivedChanges()
    cluster.nursery.start_soon(told.follow, utah, utah.name("some"), Corrections.UNDO)
    await post(poster, mit.name("a"), [(10, 1)], 100)
    await post(poster, mit.name("b"), [], 100)
    await until(lambda: told.boundary >= 100)
    await post(poster, mit.name("a"), [(150, 3)], 200)
    await trio.sleep(BOUND_S / 2)
    await post(poster, mit.name("b"), [(140, 2)], 200)
    await until(lambda: told.boundary >= 200)
    assert told.kinds() == ["INSERTION", "INSERTION"]


async def test_without_a_bound_results_wait(cluster: Cluster) -> None:
    mit = await cluster.settle(MIT)
    client = await cluster.client(mit)
    for path in ("a", "b"):
        await make_stream(client, mit, path)
    merge = Union("merge", (mit.name("a"), mit.name("b")), mit.name("merged"))
    await define(client, mit, merge, bound_s=0.0)
    for path in ("a", "b"):
        await post(client, mit.name(path), [(10, 1)], 100)
    merged = mit.state("merged")
    await until(lambda: merged.log.boundary >= 100)
    await post(client, mit.name("a"), [(150, 3)], 200)
    await trio.sleep(2 * BOUND_S)
    assert merged.suffix.visible == merged.log.boundary


async def test_windows_are_given_as_they_seem_and_then_as_they_are(cluster: Cluster) -> None:
    mit, utah, poster = await chain(cluster)
    count = AggregateCall("count", None, "rows")
    windows = Aggregate("windows", mit.name("merged"), mit.name("windows"), ALL, ALL, (), (count,))
    await define(poster, mit, windows, bound_s=BOUND_S)
    told: list[tuple[str, list[int]]] = []

    async def follow() -> None:
        async with utah.client() as client:
            async for change in client.follow(mit.name("windows"), Corrections.REVISIONS):
                if change.table.num_rows:
                    found = change.table.column("rows").to_pylist()
                    told.append((change.kind.value, found))

    cluster.nursery.start_soon(follow)
    for path in ("a", "b"):
        await post(poster, mit.name(path), [(10, 1)], 100)
    await post(poster, mit.name("a"), [(ALL - 5, 1)], 2 * ALL)
    await until(lambda: told == [("TENTATIVE", [3])])
    await post(poster, mit.name("b"), [(ALL - 4, 1)], 2 * ALL)
    await until(lambda: told[1:] == [("REPLACEMENT", [4])])


async def test_results_survive_a_failure_during_corrections(cluster: Cluster) -> None:
    """The first input that was missing comes back for a while, and is missing again."""
    mit, utah, poster = await chain(cluster)
    told = ReceivedChanges()
    cluster.nursery.start_soon(told.follow, utah, utah.name("some"), Corrections.UNDO)
    for path in ("a", "b"):
        await post(poster, mit.name(path), [(10, 1)], 100)
    await until(lambda: told.boundary >= 100)
    await post(poster, mit.name("a"), [(150, 3), (250, 4)], 300)
    await until(lambda: len(told.rows(Kind.TENTATIVE)) == 2)
    await post(poster, mit.name("b"), [(140, 2)], 200)
    await until(lambda: told.boundary >= 200)
    await post(poster, mit.name("a"), [(350, 5)], 400)
    await until(lambda: len(told.rows(Kind.TENTATIVE)) == 3)
    assert told.kinds().count("REC_DONE") == 0
    for path in ("a", "b"):
        await poster.post_event(mit.name(path), None, end=True)
    await until(lambda: told.boundary == END and "REC_DONE" in told.kinds())
    assert told.kinds().count("UNDO") == told.kinds().count("REC_DONE") == 1
    wanted = [(10, 1), (10, 1), (140, 2), (150, 3), (250, 4), (350, 5)]
    assert Counter(told.rows(Kind.INSERTION)) == Counter(wanted)


async def test_a_restart_forgets_only_tentative_tuples(cluster: Cluster) -> None:
    mit, utah, poster = await chain(cluster)
    for path in ("a", "b"):
        await post(poster, mit.name(path), [(10, 1)], 100)
    await post(poster, mit.name("a"), [(150, 3)], 200)
    await until(lambda: utah.state("some").suffix.visible >= 200)
    await cluster.restart(utah)
    await until(lambda: utah.state("some").suffix.visible >= 200)
    assert utah.state("some").log.boundary == 100
    await post(poster, mit.name("b"), [(140, 2)], 200)
    await until(lambda: utah.state("some").log.boundary >= 200)
    async with utah.client() as client:
        with trio.fail_after(DEADLINE_S):
            epoch = await client.receive_events(utah.name("some"), timeout_s=DEADLINE_S)
    assert epoch is not None
    assert pairs_of(epoch.table) == [(10, 1), (10, 1), (140, 2), (150, 3)]
