"""The election of a stream's leader: whatever the network does, there is one leader at a time, and
it has every acknowledged entry."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import rule
from leaders_model import World
from leaders_voters import COMMON, Voters, many_lives, wander

from medusa.engine.replication.leaders.ballot import (
    Ballot,
    SourceTerm,
    install,
    may_succeed,
    promise,
    without_future,
)
from medusa.engine.replication.leaders.events import Called, Keep, Received, Send
from medusa.engine.replication.leaders.messages import AskVote, Install, Installed, Vote
from medusa.engine.replication.leaders.voter import Role


class FiveVoters(Voters):
    k = 2


class Deleting(Voters):
    """The owner also deletes the stream, perhaps in the middle of an election."""

    @rule(index=st.integers(0, 4))
    def delete(self, index: int) -> None:
        self.world.delete(self.node(index))


class DeletingFive(Deleting):
    k = 2


TestThree = Voters.TestCase
TestThree.settings = COMMON
TestFive = FiveVoters.TestCase
TestFive.settings = COMMON
TestDeleting = Deleting.TestCase
TestDeleting.settings = COMMON
TestDeletingFive = DeletingFive.TestCase
TestDeletingFive.settings = COMMON


@pytest.mark.soak
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("seed", range(30))
def test_a_long_life(k: int, seed: int) -> None:
    wander(World(k, Random(seed)), 20_000)


@pytest.mark.parametrize("seed", range(6))
def test_a_short_life(seed: int) -> None:
    world = World(1 + seed % 2, Random(seed))
    wander(world, 12_000)
    assert len(world.activated) > 3
    assert len(world.acknowledged) > 20


@pytest.mark.parametrize("seed", range(12))
def test_a_life_that_ends_by_a_deletion(seed: int) -> None:
    """The deletion begins once or more, and voters die in the middle: all come to know of it, or
    none."""
    world = World(1 + seed % 2, Random(seed))
    wander(world, 4_000, delete_at=1_000)
    assert world.deleted


@pytest.mark.parametrize("k", [1, 2])
def test_a_deletion_that_a_majority_accepted_is_brought_to_its_end(k: int) -> None:
    """The leader dies before it receives their answers."""
    world = World(k, Random(0))
    world.settle()
    (home,) = world.homes()
    world.mail.clear()
    world.delete(home)
    while world.mail and isinstance(world.mail[0][2], Install):
        world.deliver(0, again=False)
    world.crash(home)
    world.mail.clear()
    assert not world.deleted
    world.settle()
    assert world.deleted
    assert all(node.ballot.deleted for node in world.nodes.values())


def test_the_model_notices_a_leader_that_does_not_wait_for_its_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("medusa.engine.replication.leaders.election.may_succeed", lambda *_: True)
    with pytest.raises(AssertionError):
        many_lives(40)


def test_one_vote_a_term() -> None:
    ballot = Ballot(("a", "b", "c"))
    voted = promise(ballot, 5, "b")
    assert voted is not None
    assert promise(voted, 5, "c") is None
    assert promise(voted, 4, "b") is None
    assert promise(voted, 5, "b") == voted
    assert promise(voted, 6, "c") is not None
    assert promise(ballot, 6, "stranger") is None


def test_no_term_below_a_promise_nor_of_another_size() -> None:
    ballot = promise(Ballot(("a", "b", "c")), 5, "b")
    assert ballot is not None
    assert install(ballot, SourceTerm(4, "a", ("b",))) is None
    assert install(ballot, SourceTerm(5, "b", ())) is None
    assert install(ballot, SourceTerm(5, "b", ("b",))) is None
    assert install(ballot, SourceTerm(5, "b", ("x",))) is None
    installed = install(ballot, SourceTerm(5, "b", ("c",)))
    assert installed is not None
    assert installed.term == SourceTerm(5, "b", ("c",))


def test_the_loser_of_a_term_learns_the_winner() -> None:
    """Two peers are candidates for the same term. The loser had voted for itself: that binds it
    against later candidates, and not against the winner."""
    world = World(1, Random(0))
    loser = world.nodes["b"].election
    assert loser is not None
    loser._stand(1.0)
    assert (loser.role, loser.ballot.voted) == (Role.CANDIDATE, "b")
    term = SourceTerm(loser.number, "a", ("c",))
    effects = loser.handle(Received("a", Install(term)), 1.1)
    assert loser.role is Role.FOLLOWER
    assert (loser.leader, loser.ballot.voted) == ("a", "a")
    assert effects[-1] == Send("a", Installed(term.number, True, term.number, term))
    loser.handle(Called("a", term.number), 1.2)
    assert loser.may_store("a", term.number), "it may be its next replica"


def test_only_members_of_the_last_term_may_succeed() -> None:
    term = SourceTerm(3, "a", ("b",))
    member = Ballot(("a", "b", "c"), joined=3)
    assert may_succeed(member, "b", [term, None])
    assert not may_succeed(member, "c", [term]), "it joined, and was not among the members"
    assert not may_succeed(Ballot(("a", "b", "c"), joined=2), "b", [term])
    assert may_succeed(Ballot(("a", "b", "c"), joined=4), "c", [term]), "nothing came after 3"
    assert not may_succeed(Ballot(("a", "b", "c")), "b", [None])


def test_a_vote_is_kept_before_it_is_given() -> None:
    world = World(1, Random(0))
    witness = world.nodes["c"].election
    assert witness is not None
    effects = witness.handle(Received("b", AskVote(9)), 1.0)
    assert isinstance(effects[0], Keep)
    assert effects[0].ballot.promised == 9
    assert effects[-1] == Send("b", Vote(9, True, 9, None, ()))


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_promise_of_the_future_is_dropped_unless_results_may_depend_on_it(
    promised: int, term_number: int, joined: int, latest: int
) -> None:
    term_number, joined = min(term_number, promised), min(joined, promised)
    term = SourceTerm(term_number, "a", ("b",)) if term_number else None
    ballot = Ballot(("a", "b", "c"), promised, "c" if promised else "", term, joined)
    state = without_future(ballot, latest)
    assert (state.term, state.joined) == (ballot.term, ballot.joined)
    if promised <= latest or max(term_number, joined) > latest:
        assert state == ballot
    else:
        assert state.promised == max(term_number, joined) <= latest
        # the voter does not remember its vote: it votes for no candidate of that term
        agreed = state.voted or None
        assert agreed in {None, "a"}
        assert promise(state, state.promised + 1, "b") is not None
