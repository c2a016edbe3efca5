"""For any posts, revisions, ends and reopenings of a stream with a replica, and any shipping,
settling, cutting, crashes, full disks and changes of leader, every peer's logs equal what plain
Python makes of the posts, and tuples that a reader saw before an end stay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import trio
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from revised_epochs import HISTORY_US, KEYED, Act
from revised_replicas import act, drawn_acts, gone, lived_through
from revising_cluster import Cluster, Peer, check, contents

from examples import examples
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.leader import open_leader
from medusa.engine.streams.source.post_request import PostRequest
from medusa.overlay.errors import UnavailableError

WEIGHTS = [4] * 5 + [3] * 2 + [4] * 2 + [4] * 3 + [2] * 2 + [3, 6]
"""The weights of the steps of `Cluster.do`: the last two are the end and the reopening."""


def drawn_steps(rng: Random) -> list[tuple[int, int]]:
    whats = rng.choices(range(len(WEIGHTS)), WEIGHTS, k=120)
    return [(what, rng.randrange(2**12)) for what in whats]


@settings(max_examples=examples(30, soak=100), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@example(64442, 44)  # the end of an empty stream is taken off, and the leader's log begins later
@given(st.integers(0, 2**64), st.just(HISTORY_US) | st.integers(5, 60))
def test_any_ends_and_reopenings(seed: int, history_us: int) -> None:
    rng = Random(seed)
    trio.run(lived_through, drawn_acts(rng), drawn_steps(rng), history_us)


async def ended(folder: Path, *acts: Act) -> Cluster:
    """Return a stream whose leader has its end in the log, and whose replica has the end in the
    journal alone."""
    cluster = Cluster(folder, [], HISTORY_US)
    await cluster.found()
    cluster.acts["p"] = list(acts)
    for _ in acts:
        await cluster.post(0)
    await cluster.end()
    await cluster.ship(10_000)
    await cluster.settle()
    while not cluster.leader.leader.logs.have_end:
        await cluster.leader.advance()
    return cluster


async def close(cluster: Cluster) -> None:
    for peer in cluster.peers:
        await peer.close()


async def to_the_end(peer: Peer) -> None:
    while peer.leader.logs.stream.boundary < END:
        await peer.advance()


async def test_a_replica_that_has_cut_the_end_and_not_stored_it(tmp_path: Path) -> None:
    """Its disk was full; the epoch that it had cut goes no further than the boundary that counts
    now."""
    cluster = await ended(tmp_path, act(10, 20))
    await cluster.notify()
    await cluster.replica.advance(full=1)
    assert cluster.replica.leader.source.waiting.has_cut
    await cluster.reopen(1)
    cluster.acts["p"].append(act(30))
    await cluster.finish()
    check(cluster)
    await close(cluster)


async def test_an_end_that_was_not_in_the_log_when_the_peer_died(tmp_path: Path) -> None:
    """The journal has the end and the reopening: the log is cut up to the end, and continues."""
    cluster = await ended(tmp_path, act(10, 20))
    await cluster.reopen(1)
    cluster.acts["p"].append(act(30, promise=40))
    await cluster.post(0)
    await cluster.ship(10_000)
    await cluster.settle()
    await cluster.notify()
    await cluster.replica.crash()
    await cluster.replica.leader.settle(cluster.replica.leader.source.journal.position, 0.0)
    await cluster.replica.advance()
    assert cluster.replica.leader.logs.stream.boundary == 40
    await cluster.finish()
    check(cluster)
    await close(cluster)


async def test_rows_after_the_end_do_not_move_it(tmp_path: Path) -> None:
    """Rows were late because the stream had ended: posted again, they are in time."""
    cluster = await ended(tmp_path, act(10, 20))
    cluster.acts["p"].append(act(500))
    await cluster.post(0)
    await cluster.all_settled()
    await cluster.reopen(1)
    assert cluster.leader.leader.boundary == 20
    await cluster.finish()
    check(cluster)
    await close(cluster)


async def test_a_reopened_stream_goes_on_behind_its_last_revision(tmp_path: Path) -> None:
    """The last revision has its place beyond the boundary; otherwise its log could not be read
    again."""
    cluster = await ended(tmp_path, act(10, promise=60), gone(10))
    await cluster.reopen(1)
    assert cluster.leader.leader.boundary == 61
    await cluster.leader.crash()
    revisions = cluster.leader.leader.logs.revisions
    assert revisions is not None
    assert not revisions.files.lost
    assert contents(revisions).num_rows == 1
    await close(cluster)


async def test_a_replica_with_the_old_end_receives_the_later_tuples(tmp_path: Path) -> None:
    """The stream was reopened and has ended again elsewhere: the peer receives the tuples between
    both ends."""
    cluster = await ended(tmp_path, act(10, 20))
    await cluster.notify()
    away = cluster.replica
    await to_the_end(away)
    await cluster.reopen(2 + 3)  # with the third peer, not with the replica
    assert cluster.third is away
    cluster.acts["p"].append(act(30, 40))
    await cluster.post(0)
    await cluster.finish()
    check(cluster)
    assert away.leader.logs.stream.start == BEGINNING or away.leader.logs.stream.files.rows
    await close(cluster)


async def test_a_stream_of_arrivals_goes_on_behind_its_last_one(tmp_path: Path) -> None:
    """A tuple that arrives after the end gets the end as its time."""
    schema = Schema("s", (Field("value", FieldType.INT),))
    one = encode(pa.table({"value": pa.array([1], pa.int32())}))
    opened = open_leader(tmp_path, "s", schema, SourceConfig(), history_us=10**9, now=1.0)
    async with opened as leader:
        await leader.post(PostRequest(Writer("p"), Post(1), one), now=2.0)
        await leader.post(PostRequest(Writer("p"), Post(2, end=True), one), now=3.0)
        await leader.post(PostRequest(Writer("p"), Post(3), one), now=4.0)
        await leader.advance(5.0)
        await leader.reopen()
        assert leader.boundary == leader.logs.stream.boundary == 3_000_000


async def test_an_end_that_is_being_read_stays(tmp_path: Path) -> None:
    """A file that is being read keeps its name, and of two names a restart takes the longer
    interval."""
    opened = open_leader(tmp_path, "s", KEYED, SourceConfig(), history_us=10**9, now=0.0)
    async with opened as leader:
        await leader.post(PostRequest(Writer("p"), Post(1, end=True), rows_of(act(10))), now=0.0)
        await leader.advance(0.0)
        with (
            leader.logs.stream.reader.pinned(BEGINNING, END),
            pytest.raises(UnavailableError, match="is being read: try again"),
        ):
            await leader.reopen()
        assert leader.boundary == leader.logs.stream.boundary == END
        await leader.reopen()
        assert leader.logs.stream.boundary == 10
    opened = open_leader(tmp_path, "s", KEYED, SourceConfig(), history_us=10**9, now=0.0)
    async with opened as leader:
        assert (leader.boundary, leader.logs.stream.boundary) == (10, 10)


def rows_of(done: Act) -> memoryview:
    return encode(pa.Table.from_pylist(done.rows, schema=KEYED.payload))
