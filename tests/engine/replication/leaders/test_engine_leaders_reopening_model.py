"""Streams with replicas end and are reopened, whatever the network does, but never after a reader
received the end."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from leaders_model import QUIET_S, Node, World
from leaders_voters import COMMON, Voters, many_lives, wander

from medusa.engine.replication.leaders import reopening
from medusa.engine.replication.leaders.ballot import (
    MAX_END_READERS,
    MAX_READER_CHARS,
    Ballot,
    note_end_reader,
)
from medusa.engine.replication.leaders.reopening import Refused


class Reopening(Voters):
    """The stream ends, is reopened, and readers find its end at any voter."""

    @rule(index=st.integers(0, 4))
    def end(self, index: int) -> None:
        self.world.end(self.node(index))

    @rule(index=st.integers(0, 4))
    def reopen(self, index: int) -> None:
        self.world.reopen(self.node(index))

    @rule(index=st.integers(0, 4))
    def note_end_reader(self, index: int) -> None:
        self.world.note_end_reader(self.node(index))

    @rule()
    def reopen_in_calm(self) -> None:
        """Reopen the stream without faults: it continues, unless a voter sent the end to a
        reader."""
        self.world.settle()
        (home,) = self.world.homes()
        if not self.world.ended(home):
            return
        self.world.reopen(home)
        self.world.settle()
        (home,) = self.world.homes()
        assert home.election is not None
        assert bool(self.world.ended(home)) == bool(self.world.end_readers)
        if self.world.end_readers:
            assert home.election.reopening.refused == Refused(("a reader",), ())


class ReopeningFive(Reopening):
    k = 2


TestReopening = Reopening.TestCase
TestReopening.settings = COMMON
TestReopeningFive = ReopeningFive.TestCase
TestReopeningFive.settings = COMMON


def with_ends(world: World, node: Node) -> None:
    match world.rng.randrange(16):
        case 0 | 1:
            world.end(node)
        case 2 | 3 if world.rng.random() < 0.3:
            world.reopen(node)
        case _:
            world.post(node)


@pytest.mark.parametrize("seed", range(6))
def test_a_life_with_ends(seed: int) -> None:
    live_with_ends(World(1 + seed % 2, Random(seed)), 6_000)


def live_with_ends(world: World, steps: int) -> None:
    """The stream can be reopened until a voter sends the end to a reader, and never after that."""
    for told in (False, True):
        wander(world, steps, act=with_ends)
        (home,) = world.homes()
        world.end(home)
        world.settle()
        if told:
            world.note_end_reader(home)
            assert world.end_readers
        world.reopen(home)
        world.settle()
        (home,) = world.homes()
        assert bool(world.ended(home)) == told
    wander(world, steps, act=with_ends)
    (home,) = world.homes()
    assert world.ended(home)


def test_the_model_notices_a_leader_that_does_not_wait_for_all_votes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reopening.Reopening, "is_granted", lambda its, _others: its.asked)
    with pytest.raises(AssertionError, match="was told"):
        many_lives(40, 6_000, with_ends_and_readers)


@pytest.mark.parametrize("seed", range(3))
def test_a_life_with_readers_that_find_the_end(seed: int) -> None:
    wander(World(1, Random(seed)), 6_000, act=with_ends_and_readers)


def with_ends_and_readers(world: World, node: Node) -> None:
    if world.rng.randrange(4):
        with_ends(world, node)
    else:
        world.note_end_reader(node)


@pytest.mark.soak
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_a_long_life_with_ends(k: int, seed: int) -> None:
    live_with_ends(World(k, Random(1_000 + seed)), 8_000)


def ended(k: int) -> tuple[World, Node]:
    """Return a stream that has ended, and its leader."""
    world = World(k, Random(0))
    world.settle()
    (home,) = world.homes()
    world.end(home)
    world.settle()
    return world, home


@pytest.mark.parametrize("k", [1, 2])
def test_a_stream_is_not_reopened_while_a_voter_is_away(k: int) -> None:
    world, home = ended(k)
    assert home.election is not None
    away = world.nodes["abcde"[2 * k]]
    world.crash(away)
    term_number = home.election.number
    # the leader asks before any voter has noticed the absence; the voter that is away does not
    # answer
    world.reopen(home)
    assert home.election.number == term_number + 1
    world.settle(4 * QUIET_S, down=away)
    (home,) = world.homes()
    assert home.election is not None
    assert home.election.reopening.refused == Refused((), (away.name,))
    term_number = home.election.number
    world.reopen(home)
    assert (home.election.reopening.refused, home.election.number) == (
        Refused((), (away.name,)),
        term_number,
    )
    assert world.ended(home)


def test_the_list_of_readers_that_received_the_end_is_bounded() -> None:
    ballot = Ballot(("a", "b", "c"))
    for number in range(100):
        ballot = note_end_reader(ballot, f"{number}" * 1000)
    assert len(ballot.end_readers) == MAX_END_READERS
    assert max(map(len, ballot.end_readers)) == MAX_READER_CHARS
