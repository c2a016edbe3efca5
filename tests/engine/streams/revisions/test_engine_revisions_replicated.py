"""For any posts and revisions of a stream with a replica, and any shipping, settling, cutting,
crashes, full disks and changes of leader, each post counts once and is answered the same, and every
peer's logs equal what plain Python makes of the posts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import trio
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from revised_epochs import HISTORY_US, KEYED, Act, acts
from revised_replicas import act, drawn_acts, gone, lived_through
from revising_cluster import Cluster, Peer, check

from examples import examples
from medusa.engine.objects.schema import REVISION_KIND
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import Post
from medusa.engine.streams.revisions.columns import request_schema
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.overlay.errors import NotRetainedError, UnavailableError

OF_S0 = st.lists(acts.map(lambda act: replace(act, stream="s0")), min_size=4, max_size=20)
STEPS = st.lists(st.tuples(st.integers(0, 13), st.integers(0, 2**12 - 1)), min_size=30, max_size=70)


@settings(max_examples=40)
@given(OF_S0, STEPS)
def test_any_posts(done: list[Act], steps: list[tuple[int, int]]) -> None:
    trio.run(lived_through, done, steps, HISTORY_US)


def drawn_steps(rng: Random) -> list[tuple[int, int]]:
    """Draw many leaders that have tuples which their replicas lack."""
    weights = [4] * 5 + [2] * 4 + [4] * 3 + [2] * 2
    whats = rng.choices(range(len(weights)), weights, k=80)
    return [(what, rng.randrange(2**12)) for what in whats]


@settings(max_examples=examples(30, soak=100), phases=(Phase.explicit, Phase.reuse, Phase.generate))
# a peer had cut off late tuples that the next leader did not have yet
@example(7_099_542_953_069_151, 37)
@example(5908, 5)  # the found tuples depended on when retention had run
@given(st.integers(0, 2**64), st.just(HISTORY_US) | st.integers(5, 60))
def test_dense_revisions(seed: int, history_us: int) -> None:
    """All revisions are drawn at once: in Hypothesis' own draws, a leader fails before many tuples
    are revised."""
    rng = Random(seed)
    trio.run(lived_through, drawn_acts(rng), drawn_steps(rng), history_us)


@settings(max_examples=examples(20, soak=100), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 2**64), st.integers(1, 30))
def test_late_tuples_are_inserted_once(seed: int, lateness_us: int) -> None:
    rng = Random(seed)
    trio.run(lived_through, drawn_acts(rng), drawn_steps(rng), HISTORY_US, lateness_us)


async def test_unsettled_entries_are_nowhere(tmp_path: Path) -> None:
    done = [act(10, 20, promise=25), gone(10), act(40, promise=45)]
    cluster = Cluster(tmp_path, [], HISTORY_US)
    cluster.acts |= {"p": done, "q": [gone(20)]}
    await cluster.found()
    await cluster.post(0)
    await cluster.ship(10_000)
    await cluster.settle()
    await cluster.post(0)
    await cluster.post(0)
    await cluster.leader.advance()
    await cluster.fail_over(1)
    await cluster.post(1)
    await cluster.finish()
    check(cluster)
    for peer in cluster.peers:
        await peer.close()


async def test_a_peer_that_does_not_lead_revises_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [act(10), gone(10)], HISTORY_US)
    await cluster.found()
    await cluster.post(0)
    cluster.leader.leader.replica.settling.leading = False
    with pytest.raises(UnavailableError, match="not its leader"):
        await cluster._post(gone(10), 2)
    for peer in cluster.peers:
        await peer.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_leader_is_succeeded_while_it_looks_a_tuple_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaced: bool
) -> None:
    """Another peer leads while the leader looks the tuple up; this holds even if it leads again by
    the end of the look-up."""
    cluster = Cluster(tmp_path, [act(10, promise=20)], HISTORY_US)
    await cluster.found()
    await cluster.post(0)
    leader = cluster.leader.leader
    run_sync, body = trio.to_thread.run_sync, revision(10)

    async def overtaken(function: Any, *args: Any) -> Any:
        found = await run_sync(function, *args)
        if getattr(function, "__name__", "") == "look_up" and args[0] is body:
            cluster.leader.leader.replica.settling.leading = False
            if not replaced:
                await cluster.ship(10_000)
            await cluster.fail_over(1)
            posted = await cluster._post(gone(10), 1 if replaced else 2)
            assert (posted.rows, posted.missed) == ((0, (0,)) if replaced else (1, ()))
            await cluster.ship(10_000)
            await cluster.fail_over(1)
        return found

    with monkeypatch.context() as patch:
        patch.setattr("trio.to_thread.run_sync", overtaken)
        with pytest.raises(UnavailableError, match="leader is changing"):
            await leader.revise(
                PostRequest(Writer("q"), Post(1, revisions=True), body),
                history_us=HISTORY_US,
                now=0.0,
            )
    assert cluster.leader.leader is leader
    for peer in cluster.peers:
        await peer.close()


def revision(key: int) -> memoryview:
    shape = request_schema(KEYED).payload
    return encode(pa.Table.from_pylist([{REVISION_KIND: "DELETION", "b": key}], schema=shape))


async def test_no_tuple_goes_behind_either_log(tmp_path: Path) -> None:
    """A loss of power has left the journal shorter than the logs."""
    peer = Peer(tmp_path, 1000)
    await peer.open()
    peer.leader.logs.all[0].append(500, None)
    peer.leader.logs.all[1].append(400, None)
    await peer.crash()
    peer.lead(2)
    assert peer.leader.boundary == 500
    await peer.close()


@pytest.mark.parametrize("late", [0, 1])
async def test_a_revision_of_a_tuple_that_the_log_lacks_is_refused(
    tmp_path: Path, late: int
) -> None:
    """The logs begin later than the stream's history: that of the tuples, or that of the
    revisions."""
    peer = Peer(tmp_path, 1000)
    await peer.open()
    peer.leader.logs.all[late].begin(500)
    peer.leader.logs.all[1 - late].append(500, None)
    await peer.crash()
    peer.lead(2)
    replica = peer.leader.replica
    replica.settling.leading = True
    boundary = {"promise": 600}
    cluster = Cluster(tmp_path / "none", [], 1000)
    cluster.leader = peer
    await cluster._post(act(510, 520, **boundary), 1)
    with pytest.raises(NotRetainedError, match="row 2: the tuple may be of before boundary 500"):
        await cluster._post(gone(510, 400), 2)
    posted = await cluster._post(gone(510), 2)
    assert posted.missed == ()
    await cluster._post(act(1600, promise=1600), 3)  # that time is now behind the history
    assert (await cluster._post(gone(510, 400), 4)).missed == (0, 1)
    await peer.close()
