"""Money is conserved: under drops, duplicates, delays, lies and crashes at any step, every debt is
paid once, and both ledgers agree."""

from __future__ import annotations

from collections.abc import Callable

from contracts_settling import TASK, A, C, D, E, World, tuples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

LIES: list[Callable[[int], int]] = [
    lambda rows: rows,
    lambda rows: 2 * rows + 1,
    lambda rows: max(1, rows - 3),
]
CHAINS = [(A,), (A, C), (A, C, D), (A, C, D, E)]
picks = st.integers(0, 99)
peers = st.sampled_from([A, C, D, E])


class Money(RuleBasedStateMachine):
    """A gives tasks to C, C passes some of them to D, and D to E."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(names="acde")

    @rule(
        task=st.sampled_from("xyz"), chain=st.sampled_from(CHAINS), lag=st.sampled_from([0, 2, 40])
    )
    def move(self, task: str, chain: tuple[bytes, ...], lag: float) -> None:
        self.world.place(f"{TASK}/{task}", *chain, lag=lag)

    @rule(pick=picks, told=st.booleans())
    def end(self, pick: int, told: bool) -> None:
        running = [p for p in self.world.placed if p.end is None]
        if running:
            placed = running[pick % len(running)]
            self.world.end(placed, *(placed.chain[-1:] if told else ()))

    @rule(pick=picks)
    def learn(self, pick: int) -> None:
        over = [p for p in self.world.placed if p.end is not None]
        if over:
            placed = over[pick % len(over)]
            self.world.node(placed.chain[-1]).end(placed)

    @rule(seconds=st.sampled_from([1.0, 6.0, 31.0, 200.0]))
    def run(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(pick=picks, keep=st.booleans())
    def deliver(self, pick: int, keep: bool) -> None:
        if self.world.wire:
            self.world.deliver(pick % len(self.world.wire), keep=keep)

    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        if self.world.wire:
            del self.world.wire[pick % len(self.world.wire)]

    @rule()
    def deliver_all(self) -> None:
        for _ in range(min(20, len(self.world.wire))):
            self.world.deliver()

    @rule(peer=peers)
    def restart(self, peer: bytes) -> None:
        self.world.node(peer).restart()

    @rule(peer=peers, countdown=st.integers(1, 3), when=st.sampled_from(["before", "after"]))
    def crash_soon(self, peer: bytes, countdown: int, when: str) -> None:
        self.world.node(peer).crash_soon(countdown, after=when == "after")

    @rule(peer=st.sampled_from([C, D, E]), lie=st.sampled_from(LIES))
    def lie(self, peer: bytes, lie: Callable[[int], int]) -> None:
        self.world.node(peer).lies = lie

    @rule(peer=peers, slow=st.booleans())
    def count_slowly(self, peer: bytes, slow: bool) -> None:
        self.world.node(peer).slow = slow

    @invariant()
    def nobody_spends_more_than_is_owed(self) -> None:
        for placed in self.world.placed:
            most = tuples(placed.task, placed.start, placed.delivered)
            for deal in placed.deals():
                assert self.world.paid_tuples(deal) <= most

    def teardown(self) -> None:
        for node in self.world.nodes.values():
            node.crash_soon(0)
        for placed in self.world.placed:
            if placed.end is None:
                self.world.end(placed)
        self.world.settle()
        for placed in self.world.placed:
            assert placed.end is not None
            expected = tuples(placed.task, placed.start, placed.end)
            for deal in placed.deals():
                assert self.world.paid_tuples(deal) == expected, placed
        self.world.both_ledgers_agree()


TestMoney = Money.TestCase
TestMoney.settings = settings(max_examples=60, stateful_step_count=50)
