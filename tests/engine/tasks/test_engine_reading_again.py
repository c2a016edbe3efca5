"""One failed call does not decide for ever where a stream is read: a working peer is read again as
soon as it answers, and no tuple is lost or repeated meanwhile."""

from __future__ import annotations

import pytest
from engine_peers import Cluster, Place, begin, make_stream, until
from moving_tasks import Sums, expected, post, windows

from medusa.engine.objects.query import Filter, Query
from medusa.engine.replication.records.placements import Deal
from medusa.overlay.connection import Connection
from medusa.overlay.errors import UnavailableError
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

pytestmark = [pytest.mark.usefixtures("interpreted"), pytest.mark.cluster(keep_alive_s=0.05)]


class Wall:
    """Lets a peer's dials to another peer fail, although the other peer is up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seen_from: Place, peer: PeerId) -> None:
        self.hit = 0
        self.is_up = True
        overlay = seen_from.up.engine.overlay
        connect = Overlay.connect

        async def dial(at: Overlay, to: PeerId) -> Connection:
            if at is overlay and to == peer and self.is_up:
                self.hit += 1
                raise UnavailableError("the dial failed, as the test wants")
            return await connect(at, to)

        monkeypatch.setattr(Overlay, "connect", dial)


def read_at(place: Place, stream: str) -> bool:
    """Whether a consumer reads the stream at that peer; the query's owner reads it at a worker,
    too."""
    kept = place.up.engine.store.serving(stream)
    return kept is not None and kept.subscribers > 0


def everything(place: Place, source: str) -> Query:
    return Query(place.name("q"), (Filter("all", source, (place.name("all"),), ("total >= 0",)),))


async def test_a_worker_that_could_not_be_dialled_is_read_when_it_answers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, worker = await cluster.siblings(2)
    utah = await cluster.settle("utah.edu")
    await cluster.acquainted(owner, worker, utah)
    client, reads = await cluster.clients(owner, utah)
    source, out = await make_stream(client, owner, "s"), owner.name("out")
    await begin(client, windows(owner, source))
    await begin(reads, everything(utah, out))
    reader = Sums(reads, utah.name("all"))
    await reader.feed(client, source, range(500))
    wall = Wall(monkeypatch, utah, worker.peer_id)
    await owner.up.engine.mover.move(out, worker.peer_id, Deal())
    await until(lambda: wall.hit > 0)
    await until(lambda: read_at(owner, out), "the owner has the worker's tuples, too")
    await reader.feed(client, source, range(500, 1000))
    assert read_at(owner, out)
    wall.is_up = False
    await until(lambda: not read_at(owner, out), "the worker is read")
    await reader.finish(client, source, range(1000, 1500))


async def test_a_reader_of_the_past_at_the_owner_reads_on_at_the_worker(cluster: Cluster) -> None:
    owner, worker = await cluster.siblings(2)
    utah = await cluster.settle("utah.edu")
    await cluster.acquainted(owner, worker, utah)
    client, reads = await cluster.clients(owner, utah)
    source, out = await make_stream(client, owner, "s", history_us=10**9), owner.name("out")
    await begin(client, windows(owner, source))
    await post(client, source, range(500))
    await until(lambda: owner.state(out).log.boundary >= 499)
    await owner.up.engine.mover.move(out, worker.peer_id, Deal())
    await post(client, source, range(500, 1000))
    await begin(reads, everything(utah, out))
    reader = Sums(reads, utah.name("all"))
    await reader.take(999)
    assert reader.rows == expected(range(1000))
    await until(lambda: not read_at(owner, out), "the worker is read")
    await reader.finish(client, source, range(1000, 1500))
