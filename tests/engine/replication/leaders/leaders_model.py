"""Voters of one stream that crash, on a network that loses, repeats and reorders messages. A
journal is a list of (term, text); entries travel in order over calls that break. In the production
code a position is (term of the segment, ...); here it is (0, length) in one segment, so a journal
that is no prefix of the leader's is replaced whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from medusa.engine.replication.leaders.ballot import Ballot
from medusa.engine.replication.leaders.election import Election
from medusa.engine.replication.leaders.events import (
    Activated,
    Called,
    CaughtUp,
    Committed,
    Drop,
    Effect,
    Event,
    InStep,
    Keep,
    Lost,
    Received,
    Send,
    Ship,
    StopShipping,
    StoredAt,
    Suspended,
    Tick,
    Won,
)
from medusa.engine.replication.leaders.messages import Message
from medusa.engine.replication.leaders.voter import Role

QUIET_S = 1.0

REOPENED = "begins before the end"
"""The segment of a journal for a reopening, abbreviated."""

Journal = list[tuple[int, str]]


@dataclass
class Call:
    """One call that ships entries. at: the length of the leader's journal that has been sent."""

    home: str
    peer: str
    term_number: int
    at: int = 0
    joined: bool = False
    answers: list[int] = field(default_factory=list)
    parts: list[tuple[int, Journal]] = field(default_factory=list)


@dataclass
class Node:
    name: str
    ballot: Ballot
    journal: Journal = field(default_factory=list)
    election: Election | None = None
    pending: dict[str, int] = field(default_factory=dict)
    """Posts that are accepted and not acknowledged, each with the length of the journal up to and
    with the post."""
    stopped: bool = False
    """Whether its disk stores no more ballots."""


class World:
    """
    Attributes:
        acknowledged: the texts of the acknowledged posts, in any order.
        order: the acknowledged texts in the order that the journals had at the last look.
        activated: the leader of each term.
        deleted: the term under which the stream was deleted; 0: no deletion is known.
        end_readers: the ends that were sent to a reader.
    """

    def __init__(self, k: int, rng: Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.nodes = {
            name: Node(name, Ballot(tuple("abcdefg"[: 2 * k + 1])))
            for name in "abcdefg"[: 2 * k + 1]
        }
        self.calls: list[Call] = []
        self.mail: list[tuple[str, str, Message]] = []
        self.cut: set[frozenset[str]] = set()
        self.acknowledged: list[str] = []
        self.order: list[str] = []
        self.activated: dict[int, str] = {}
        self.posted = 0
        self.deleted = 0
        self.end_readers: set[str] = set()
        for node in self.nodes.values():
            self.start(node)
        first = self.nodes["a"]
        assert first.election is not None
        self.do(first, first.election.found(self.now))

    def start(self, node: Node) -> None:
        node.election = Election(
            node.name, node.ballot, quiet_s=QUIET_S, rng=self.rng, now=self.now
        )

    def crash(self, node: Node) -> None:
        node.election = None
        node.pending.clear()
        for call in [c for c in self.calls if node.name in {c.home, c.peer}]:
            self.hang_up(call)

    def feed(self, node: Node, event: Event) -> None:
        if node.election is not None:
            self.do(node, node.election.handle(event, self.now))

    def do(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            assert node.election is not None
            match effect:
                case Keep(ballot):
                    node.ballot = ballot
                case Send(to, message):
                    self.mail.append((node.name, to, message))
                case Won(term_number, reopened):
                    node.journal.append((term_number, REOPENED if reopened else "begins"))
                case Ship(peer, term_number):
                    self.dial(node, peer, term_number)
                case StopShipping():
                    for call in [c for c in self.calls if c.home == node.name]:
                        self.calls.remove(call)
                case Activated(term):
                    assert not 0 < self.deleted <= term.number, "it has a leader again"
                    assert self.activated.setdefault(term.number, node.name) == node.name
                case Committed(upto):
                    for text in [t for t, length in node.pending.items() if length <= upto[1]]:
                        del node.pending[text]
                        self.acknowledged.append(text)
                case Suspended():
                    node.pending.clear()
                case Drop():
                    assert node.ballot.deleted, "it is on disk before anything goes"
                    node.journal.clear()
                    assert node.ballot.term is not None
                    self.deleted = self.deleted or node.ballot.term.number

    def post(self, node: Node, what: str = "post") -> None:
        if node.election is None or node.election.role is not Role.LEADER:
            return
        self.posted += 1
        text = f"{what} {self.posted}"
        node.journal.append((node.election.number, text))
        node.pending[text] = len(node.journal)

    def end(self, node: Node) -> None:
        self.post(node, "end")

    def ended(self, node: Node) -> str:
        """Return the committed end of the stream that readers find at that voter, if any."""
        assert node.election is not None
        committed = [text for _, text in node.journal[: node.election.commitment.committed[1]]]
        marks = [text for text in committed if text == REOPENED or text.startswith("end")]
        return marks[-1] if marks and marks[-1] != REOPENED else ""

    def note_end_reader(self, node: Node) -> None:
        """If the stream has ended, let a reader ask the leader for the end."""
        if node.election is None or not (end := self.ended(node)):
            return
        effects = node.election.note_end_reader("a reader")
        if effects is not None:
            self.do(node, effects)
            self.end_readers.add(end)

    def reopen(self, node: Node) -> None:
        if node.election is None or node.election.role is not Role.LEADER or not self.ended(node):
            return
        self.do(node, node.election.reopen(self.now))

    def delete(self, node: Node) -> None:
        if node.election is not None and node.election.is_confirmed(self.now):
            self.do(node, node.election.delete(self.now))

    def post_again(self, node: Node, text: str) -> None:
        """Let a poster without an answer post again; a stored post is not stored twice."""
        if node.election is None or node.election.role is not Role.LEADER:
            return
        if text not in {known for _, known in node.journal}:
            node.journal.append((node.election.number, text))
        node.pending[text] = len(node.journal)

    # -- calls -------------------------------------------------------------------------------------

    def reaches(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.cut and all(
            self.nodes[name].election is not None for name in (one, other)
        )

    def dial(self, node: Node, peer: str, term_number: int) -> None:
        call = Call(node.name, peer, term_number)
        self.calls.append(call)
        if not self.reaches(node.name, peer):
            self.hang_up(call)
            return
        other = self.nodes[peer]
        self.feed(other, Called(node.name, term_number))
        assert other.election is not None
        if not other.election.may_store(node.name, term_number):
            self.hang_up(call)
            return
        for older in [c for c in self.calls if c.peer == peer and c is not call]:
            self.hang_up(older)
        continues = other.ballot.joined > 0 and node.journal[: len(other.journal)] == other.journal
        assert node.election is not None
        if not continues and node.election.role is Role.LEADER:
            self.hang_up(call)
            return
        call.parts.append((len(other.journal) if continues else 0, []))
        call.at = len(other.journal) if continues else 0

    def hang_up(self, call: Call) -> None:
        if call in self.calls:
            self.calls.remove(call)
            self.feed(self.nodes[call.home], Lost(call.peer, call.term_number))

    def step_call(self, call: Call) -> None:
        """Let one step of a call happen: send a part, store it, or deliver its answer."""
        home, peer = self.nodes[call.home], self.nodes[call.peer]
        if not self.reaches(call.home, call.peer):
            self.hang_up(call)
            return
        assert home.election is not None
        assert peer.election is not None
        if call.answers and self.rng.random() < 0.5:
            length = call.answers.pop(0)
            if not call.joined:
                call.joined = True
                self.feed(home, InStep(call.peer, call.term_number, (0, length)))
            else:
                self.feed(home, StoredAt(call.peer, call.term_number, (0, length)))
            return
        if call.parts and self.rng.random() < 0.7:
            at, rows = call.parts.pop(0)
            if not peer.election.may_store(call.home, call.term_number):
                self.hang_up(call)
                return
            if not rows:  # the whole journal was sent
                peer.journal = list(home.journal)
                call.at = len(home.journal)
                self.feed(peer, CaughtUp(call.term_number, call.term_number))
            else:
                assert peer.journal[at:] == [], (at, peer.journal)
                peer.journal += rows
                peer.election.note_leader(call.term_number, self.now)
            call.answers.append(len(peer.journal))
            return
        if call.joined and call.at < len(home.journal):
            call.parts.append((call.at, home.journal[call.at :]))
            call.at = len(home.journal)

    # -- the whole world ---------------------------------------------------------------------------

    def deliver(self, index: int, *, again: bool) -> None:
        sender, to, message = self.mail[index] if again else self.mail.pop(index)
        if not self.reaches(sender, to):
            return
        self.feed(self.nodes[to], Received(sender, message))

    def settle(self, seconds: float = 20.0, down: Node | None = None) -> None:
        """Let every voter, except perhaps one, be up and reach every other for a while."""
        self.cut.clear()
        for node in self.nodes.values():
            if node.election is None and node is not down:
                self.start(node)
        end = self.now + seconds
        while self.now < end:
            while self.mail:
                self.deliver(0, again=False)
            for _ in range(8):
                for call in [*self.calls]:
                    if call in self.calls:
                        self.step_call(call)
            self.now += QUIET_S / 8
            for node in self.nodes.values():
                self.feed(node, Tick())

    def homes(self) -> list[Node]:
        return [
            node
            for node in self.nodes.values()
            if node.election is not None and node.election.role is Role.LEADER
        ]

    def check(self) -> None:
        """Check that each later leader's journal has every acknowledged post, once, in one order,
        and that a voter that knows of the deletion never forgets it."""
        for node in self.nodes.values():
            assert not node.ballot.deleted or self.deleted
            assert not node.ballot.deleted or not node.journal, "files are left"
        if self.deleted:
            term_numbers = [
                node.election.number for node in self.homes() if node.election is not None
            ]
            assert max(term_numbers, default=0) < self.deleted, "it has a leader again"
            return
        for node in self.homes():
            assert node.election is not None
            term_number = node.election.number
            if term_number != max(self.activated):
                continue
            all_texts = [text for _, text in node.journal]
            for end in self.end_readers:
                assert REOPENED not in all_texts[all_texts.index(end) :], f"{end} was told"
            texts = [text for text in all_texts if text not in {"begins", REOPENED}]
            assert len(texts) == len(set(texts)), "twice"
            acknowledged, ordered = set(self.acknowledged), set(self.order)
            missing = acknowledged - set(texts)
            assert not missing, f"{node.name} in term {term_number} lacks {missing}"
            order = [text for text in texts if text in acknowledged]
            # a post whose leader died is in the journal, and is acknowledged when it is posted
            # again
            assert [text for text in order if text in ordered] == self.order, "reordered"
            self.order = order
