"""Random lives of the voters of a stream, by hypothesis or by seed: the rules of a model."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from leaders_model import QUIET_S, Node, World

from medusa.engine.replication.leaders.events import Tick


class Voters(RuleBasedStateMachine):
    """Three voters (k=1) or five (k=2)."""

    k = 1

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.k, Random(1))
        self.unanswered: list[str] = []

    def node(self, index: int) -> Node:
        names = sorted(self.world.nodes)
        return self.world.nodes[names[index % len(names)]]

    @rule(index=st.integers(0, 4))
    def crash(self, index: int) -> None:
        self.unanswered += self.node(index).pending
        self.world.crash(self.node(index))

    @rule(index=st.integers(0, 4))
    def start(self, index: int) -> None:
        if self.node(index).election is None:
            self.world.start(self.node(index))

    @rule(one=st.integers(0, 4), other=st.integers(0, 4), cut=st.booleans())
    def link(self, one: int, other: int, cut: bool) -> None:
        pair = frozenset((self.node(one).name, self.node(other).name))
        (self.world.cut.add if cut else self.world.cut.discard)(pair)

    @rule(index=st.integers(0, 10**6), again=st.booleans())
    def deliver(self, index: int, again: bool) -> None:
        if self.world.mail:
            self.world.deliver(index % len(self.world.mail), again=again)

    @rule(share=st.floats(0, 1))
    def deliver_many(self, share: float) -> None:
        for _ in range(int(share * len(self.world.mail))):
            self.world.deliver(self.world.rng.randrange(len(self.world.mail)), again=False)

    @rule()
    def lose_all(self) -> None:
        self.world.mail.clear()

    @rule(count=st.integers(1, 20))
    def ship(self, count: int) -> None:
        for _ in range(count):
            if self.world.calls:
                self.world.step_call(self.world.rng.choice(self.world.calls))

    @rule(index=st.integers(0, 4))
    def post(self, index: int) -> None:
        self.world.post(self.node(index))

    @rule(index=st.integers(0, 4))
    def post_again(self, index: int) -> None:
        for text in self.unanswered:
            self.world.post_again(self.node(index), text)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        for node in self.world.nodes.values():
            self.world.feed(node, Tick())

    @rule()
    def calm(self) -> None:
        """End all faults: a leader exists and takes posts, or all voters know of the deletion."""
        self.world.settle()
        if self.world.deleted:
            assert all(node.ballot.deleted for node in self.world.nodes.values())
            return
        (home,) = self.world.homes()
        self.world.post(home)
        text = f"post {self.world.posted}"
        self.world.settle(2 * QUIET_S)
        assert text in self.world.acknowledged

    @invariant()
    def nothing_is_lost(self) -> None:
        self.world.check()


COMMON = settings(max_examples=30, stateful_step_count=60)


Act = Callable[[World, Node], None]


def many_lives(seeds: int, steps: int = 3_000, act: Act = World.post) -> None:
    for seed in range(seeds):
        wander(World(1, Random(seed)), steps, act=act)


def wander(world: World, steps: int, *, delete_at: int = -1, act: Act = World.post) -> None:  # noqa: PLR0912 - one branch a thing that happens
    rng, nodes = world.rng, list(world.nodes.values())
    for step_number in range(steps):
        if step_number >= delete_at >= 0 and not world.deleted:
            world.delete(rng.choice(nodes))
        match rng.randrange(40):
            case 0 if rng.random() < 0.1:
                world.crash(rng.choice(nodes))
            case 1 | 2:
                node = rng.choice(nodes)
                if node.election is None:
                    world.start(node)
            case 3 if rng.random() < 0.2:
                world.cut.add(frozenset(rng.sample(sorted(world.nodes), 2)))
            case 4 | 5:
                if world.cut:
                    world.cut.discard(rng.choice(sorted(world.cut, key=sorted)))
            case 6 | 7 | 8:
                act(world, rng.choice(nodes))
            case 9 | 10 | 11:
                world.now += 0.03
                for node in nodes:
                    world.feed(node, Tick())
            case 12:
                if world.mail and rng.random() < 0.2:
                    world.mail.clear()
            case step if step < 27:
                if world.mail:
                    world.deliver(rng.randrange(len(world.mail)), again=rng.random() < 0.1)
            case _:
                if world.calls:
                    world.step_call(rng.choice(world.calls))
        world.check()
    world.settle()
    world.check()
    assert len(world.homes()) == (0 if world.deleted else 1)
    assert all(node.ballot.deleted == (world.deleted > 0) for node in nodes)
