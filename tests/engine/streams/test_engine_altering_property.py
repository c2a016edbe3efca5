"""However alterations, posts, crashes and takeovers follow each other, the newest acknowledged
definition counts, and both peers of a stream change it at the same place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from engine_streams_data import CONFIG, NOW, Replica, body
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.post_request import PostRequest

FIRST = StreamDefinition("medusa://mit.edu/s", "medusa://mit.edu/x", k_safety=1, max_ahead_us=None)

Step: TypeAlias = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("alter"), st.integers(0, 40)),
        st.tuples(st.just("post"), st.integers(0, 200)),
        st.tuples(st.just("acknowledge"), st.integers(1, 3000)),
        st.tuples(st.just("crash"), st.integers(0, 1)),
        st.tuples(st.just("take over"), st.integers(0, 1)),
    ),
    max_size=30,
)


@dataclass
class Pair:
    """The leader of a stream and its replica.

    Attributes:
        acknowledged: the definition that both have. expected: the definition that the
            leader has.
    """

    folder: Path
    term_number: int = 2
    places: int = 0
    sequence: int = 0
    acknowledged: StreamDefinition = FIRST
    expected: StreamDefinition = FIRST
    leader: Replica = field(init=False)
    replica: Replica = field(init=False)

    def __post_init__(self) -> None:
        self.leader, self.replica = self.place(), self.place()
        self.leader.lead(self.term_number)

    def place(self) -> Replica:
        self.places += 1
        return Replica(self.folder / str(self.places), CONFIG.of(self.acknowledged))

    def do(self, step: Step) -> None:
        match step:
            case "alter", slack_us:
                before = self.leader.source.state.config.definition
                assert before is not None
                now = structs.replace(before, slack_us=slack_us, edition=before.edition + 1)
                self.leader.source.alter(now)
                self.expected = now
            case "post", stime:
                self.sequence += 1
                data = body([(stime, stime), (stime + 7, stime)])
                self.leader.source.post(
                    PostRequest(Writer("p"), Post(self.sequence), data), now=NOW
                )
            case "acknowledge", limit:
                self.replica.take(self.leader, limit)
                for each in (self.leader, self.replica):
                    each.settle(self.replica.source.journal.position)
                self.acknowledged = self.expected
            case "crash", 0:
                self.leader.config = CONFIG.of(self.acknowledged)
                self.leader.crash()
                self.leader.lead(self.term_number)
            case "crash", _:
                self.replica.config = CONFIG.of(self.acknowledged)
                self.replica.crash()
            case "take over", old_config:
                self.take_over(FIRST if old_config else self.acknowledged)

    def take_over(self, known: StreamDefinition) -> None:
        """Let the leader die for good, with the entries that it alone had, and another peer become
        the replica."""
        self.leader.close()
        self.replica.config = CONFIG.of(known)
        self.term_number += 1
        self.leader = self.replica
        self.leader.crash()
        self.leader.lead(self.term_number)
        self.replica = self.place()
        self.sequence = self.leader.source.acceptance.last_of(Writer("p"))
        now = self.leader.source.state.config.definition
        assert now is not None
        self.expected = now
        self.do(("acknowledge", 500))  # the new leader leads once its replica has caught up

    def check(self) -> None:
        now = self.leader.source.state.config.definition
        assert now == self.expected
        assert now.edition >= self.acknowledged.edition
        if now.edition == self.acknowledged.edition:
            assert now == self.acknowledged

    def close(self) -> None:
        self.leader.close()
        self.replica.close()


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_the_newest_counts_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    pair = Pair(tmp_path_factory.mktemp("s"))
    for step in steps:
        pair.do(step)
        pair.check()
    pair.do(("acknowledge", 500))
    leader, replica = pair.leader.source, pair.replica.source
    assert replica.state.config.definition == leader.state.config.definition == pair.expected
    assert replica.boundary == leader.boundary, "less slack counts at the same place"
    for each in (pair.leader, pair.replica):
        each.cut()
    assert pair.leader.rows == pair.replica.rows
    pair.close()
