"""The consequences of an end of a membership, a contract or a departure, as a person sees them
beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusa.contracts.book import Book
from medusa.contracts.contract import Contract
from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.streams.store.stream_state import Role
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.events import wall_clock
from medusa.overlay.identity import Root
from medusa.overlay.membership import Membership
from medusa.tools.commands.peer import consequences
from medusa.tools.commands.peer.consequences import (
    NAMED,
    Running,
    of_contract,
    of_leaving,
    of_membership,
)
from medusa.tools.home.folder import Home
from medusa.tools.home.messages import MarketStatus, TradedTask

NOW = wall_clock()
MIT, UTAH = ("mit.edu", "a1" * 20), ("utah.edu", "b2" * 20)
UTAH_TWO = ("utah.edu", "c3" * 20)


def stream(name: str, role: str, producer: str = "") -> StreamStatus:
    return StreamStatus(name, role, 0.0, 0, 0.0, 0, 0, 0, 0, producer=producer)


def task(name: str, query: str, *inputs: str, owner: str = "") -> TaskStatus:
    return TaskStatus(name, query, inputs, 0, 0, 0.0, 0.0, 0.0, "running", owner=owner)


def peer(who: tuple[str, str], *parts: StreamStatus | TaskStatus) -> PeerStatus:
    return PeerStatus(
        *who,
        "127.0.0.1:1",
        "running",
        streams=tuple(p for p in parts if isinstance(p, StreamStatus)),
        tasks=tuple(p for p in parts if isinstance(p, TaskStatus)),
    )


CONNS, FLOWS = "medusa://utah.edu/conns", "medusa://mit.edu/flows"
SNAPSHOT = Snapshot(
    NOW,
    MIT[1],
    "f",
    (
        peer(
            MIT,
            stream(FLOWS, Role.SOURCE),
            stream(CONNS, Role.FOLLOWER, producer=UTAH[1]),
            task("medusa://mit.edu/busy", "medusa://mit.edu/q", CONNS),
            task("medusa://mit.edu/own", "medusa://mit.edu/r", FLOWS),
            task("medusa://utah.edu/theirs", "medusa://utah.edu/q", owner=UTAH[1]),
        ),
        peer(UTAH, stream(CONNS, Role.SOURCE)),
        peer(UTAH_TWO),
    ),
)
MARKET = MarketStatus(
    taken=(TradedTask("medusa://utah.edu/theirs", UTAH[1], "77aa"),),
    given=(TradedTask("medusa://mit.edu/far", UTAH_TWO[1], "88bb"),),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(consequences, "ask", lambda _home: Running(SNAPSHOT, MARKET))
    return Home(tmp_path)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    root = Root.create("mit.edu", NOW)
    return Book(tmp_path, Membership.found(root, NOW), "mit.edu")


def test_the_end_of_a_participant_ends_streams_queries_and_tasks(home: Home, book: Book) -> None:
    assert of_membership(home, book, "utah.edu", "", NOW) == [
        f"streams that are read from it no more: {CONNS}",
        "our queries that wait for these from then on: medusa://mit.edu/q",
        "tasks that go home: medusa://mit.edu/far, medusa://utah.edu/theirs",
    ]
    assert of_membership(home, book, "brown.edu", "", NOW) == [
        "nothing that is known here depends on it"
    ]


def test_the_end_of_one_peer_sends_its_tasks_home(home: Home, book: Book) -> None:
    assert of_membership(home, book, "utah.edu", UTAH_TWO[1], NOW) == [
        "tasks that go home: medusa://mit.edu/far"
    ]


def test_the_end_of_a_contract_sends_its_tasks_home(home: Home) -> None:
    contract = Contract("77aa" + "0" * 60, None, b"", True)
    assert of_contract(home, contract) == ["tasks that go home: medusa://utah.edu/theirs"]
    contract = Contract("99" + "0" * 62, None, b"", True)
    assert of_contract(home, contract) == ["no task runs under it"]


def test_the_departure_of_a_peer_ends_its_streams_queries_and_tasks(home: Home, book: Book) -> None:
    assert of_leaving(home, book, NOW, whole=False) == [
        "peers that all others refuse from then on: a1a1a1a1",
        f"source streams whose home leaves: {FLOWS}",
        "queries that run no more, unless a standby goes on: medusa://mit.edu/q, medusa://mit.edu/r",
        "tasks that go home: medusa://mit.edu/far, medusa://utah.edu/theirs",
    ]


def test_a_policy_that_no_sponsors_could_meet_any_more() -> None:
    roots = [Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "brown.edu")]
    for policy, name, is_told in [
        ("founder", "mit.edu", True),
        ("founder", "utah.edu", False),
        ("any", "mit.edu", False),
        ("2 of mit.edu,utah.edu,brown.edu", "utah.edu", False),
        ("3 of mit.edu,utah.edu,brown.edu", "utah.edu", True),
    ]:
        membership = Membership.found(roots[0], NOW, "f", policy)
        for root in roots[1:]:
            membership.admit(roots[0], root.certificate, NOW)
        told = consequences.of_sponsor(membership, name)
        assert [line.startswith("nobody can admit others") for line in told] == [True] * is_told


def test_many_names_are_counted(home: Home, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"medusa://utah.edu/s{number:02}" for number in range(NAMED + 3)]
    many = Snapshot(NOW, MIT[1], "f", (peer(MIT, *(stream(n, Role.FOLLOWER) for n in names)),))
    monkeypatch.setattr(consequences, "ask", lambda _home: Running(many, None))
    (line,) = of_membership(home, book, "utah.edu", "", NOW)
    assert line.endswith(f"{names[NAMED - 1]} and 3 more")
