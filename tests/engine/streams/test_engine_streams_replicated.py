"""A source with a replica: both have the same bytes and the same stream, and no reader sees a tuple
before both have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_streams_data import CONFIG, NOW, Replica, Row, all_rows, body
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medusa.engine.objects.definitions import Idle
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.journal.entries import split
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest
from medusa.overlay.errors import DecodeError, UnavailableError

POSTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 99)), max_size=4),
        st.one_of(st.none(), st.integers(0, 60)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    posts=POSTS,
    limit=st.integers(1, 2000),
    shared=st.floats(0, 1),
    crash=st.booleans(),
    cut=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_the_replica_continues_where_the_leader_was(
    *,
    tmp_path_factory: pytest.TempPathFactory,
    posts: list[tuple[list[Row], int | None]],
    limit: int,
    shared: float,
    crash: bool,
    cut: list[bool],
) -> None:
    """The leader dies with posts that the replica lacks. The clients post all unanswered posts
    again, and the stream has each once."""
    folder = tmp_path_factory.mktemp("s")
    leader, replica, alone = (Replica(folder / name) for name in ("home", "replica", "alone"))
    leader.lead(2)
    alone.lead(2)
    reached = int(shared * len(posts))
    for number, (rows, boundary) in enumerate(posts, 1):
        data = body(rows) if rows else b""
        leader.source.post(
            PostRequest(Writer("p"), Post(number, boundary=boundary), data), now=NOW + number
        )
        alone.source.post(
            PostRequest(Writer("p"), Post(number, boundary=boundary), data), now=NOW + number
        )
        if number <= reached:
            replica.take(leader, limit)
            leader.settle(replica.source.journal.position)
            replica.settle(replica.source.journal.position)
        if cut[number - 1]:
            leader.cut()
            replica.cut()
    seen, late_seen = leader.rows, all_rows(leader.late_log)
    leader.cut()
    assert leader.log.boundary <= replica.source.boundary, "nothing that one peer alone has is seen"
    if crash:
        replica.crash()
    replica.lead(3)
    replica.settle(replica.source.journal.position)
    for number, (rows, boundary) in enumerate(posts, 1):
        data = body(rows) if rows else b""
        posted = replica.source.post(
            PostRequest(Writer("p"), Post(number, boundary=boundary), data), now=NOW + number
        )
        assert posted.duplicate or number > reached
    replica.settle(replica.source.journal.position)
    alone.settle(alone.source.journal.position)
    replica.cut()
    alone.cut()
    assert replica.rows == alone.rows
    assert all_rows(replica.late_log) == all_rows(alone.late_log)
    assert replica.rows[: len(seen)] == seen
    assert all_rows(replica.late_log)[: len(late_seen)] == late_seen
    for each in (leader, replica, alone):
        each.close()


def test_a_peer_that_does_not_lead_takes_no_posts(tmp_path: Path) -> None:
    with Replica(tmp_path) as replica, pytest.raises(UnavailableError, match="not its leader"):
        replica.source.post(PostRequest(Writer("p"), Post(1), body([(1, 1)])), now=NOW)


def test_the_leaders_clock_moves_both_boundaries(tmp_path: Path) -> None:
    config = replace(CONFIG, idle=Idle.CLOCK)
    leader, replica = Replica(tmp_path / "h", config), Replica(tmp_path / "r", config)
    leader.lead(2)
    leader.source.tick(NOW)
    replica.take(leader, 100)
    replica.source.tick(NOW + 100)
    assert replica.source.boundary == leader.source.boundary == int(NOW * 1e6) - 1
    assert replica.source.ready == BEGINNING, "it is not settled"
    replica.settle(replica.source.journal.position)
    replica.cut()
    assert replica.log.boundary == leader.source.boundary
    leader.close()
    replica.close()


def test_parts_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    leader, replica = Replica(tmp_path / "h"), Replica(tmp_path / "r")
    leader.lead(2)
    leader.source.post(PostRequest(Writer("p"), Post(1), body([(1, 1)])), now=NOW)
    at, data = leader.source.journal.read((1, 0), 10**6)
    replica.replica.follow(at, data)
    for place in ((1, 0), (1, len(data) + 1), (3, 0)):
        with pytest.raises(DecodeError, match="was reached"):
            replica.replica.follow(place, data)
    leader.close()
    replica.close()


@given(noise=st.binary(max_size=200))
def test_noise_is_one_error(noise: bytes) -> None:
    try:
        list(split(noise))
    except DecodeError:
        return
    assert not noise


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
@settings(suppress_health_check=list(HealthCheck))
def test_one_wrong_bit_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    leader = Replica(tmp_path_factory.mktemp("h"))
    leader.lead(2)
    leader.source.post(PostRequest(Writer("p"), Post(1), body([(1, 1)])), now=NOW)
    data = bytearray(leader.source.journal.read((1, 0), 10**6)[1])
    leader.close()
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(DecodeError):
        list(split(data))
