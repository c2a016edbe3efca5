"""Standbys and the health of peers on the monitor's screen."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.replication.records.status import PeerStatus, ReplicaStatus, Snapshot
from medusa.tools.monitor.availability_words import MODE_NAMES, in_words
from medusa.tools.monitor.render import render
from medusa.tools.monitor.render_standbys import Standby, standbys

A, B, C = ("a1" * 20, "b2" * 20, "c3" * 20)
QUERY = "medusa://mit.edu/intrusion/by_source"


def replica(role: str = "primary", **changes: object) -> ReplicaStatus:
    values: dict[str, object] = {
        "query": QUERY,
        "role": role,
        "mode": Mode.PASSIVE_STANDBY,
        "recovery": Recovery.PRECISE,
        "term_number": 1_790_000_000_000,
        "primary": A,
        "secondary": B,
        "behind_us": 400_000,
        "state": "caught up",
    }
    return ReplicaStatus(**(values | changes))  # type: ignore[arg-type]


def peer(id_: str, *replicas: ReplicaStatus, **changes: object) -> PeerStatus:
    values: dict[str, object] = {
        "participant": "mit.edu",
        "peer": id_,
        "address": "127.0.0.1:7000",
        "state": "running",
        "capacity": 2.0,
        "health": "alive",
        "replicas": replicas,
    }
    return PeerStatus(**(values | changes))  # type: ignore[arg-type]


def snapshot(*peers: PeerStatus) -> Snapshot:
    return Snapshot(1_790_000_060.0, A, "0123456789abcdef", peers)


def told(*peers: PeerStatus) -> list[tuple[str, str]]:
    return [(row.replica.primary[:2], row.state) for row in standbys(snapshot(*peers))]


def lines(shown: Snapshot, width: int, height: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(render(shown, width, height))
    return console.export_text().splitlines()


BOTH = (peer(A, replica()), peer(B, replica("secondary", behind_us=-1, state="waiting")))


def test_a_query_has_one_row_from_its_primary() -> None:
    assert standbys(snapshot(*BOTH)) == [Standby(replica(), "caught up")]


def test_the_successor_counts_and_the_old_primary_is_shown_beside_it() -> None:
    later = replica(term_number=1_790_000_000_001, primary=B, secondary=C, state="catching up")
    assert told(peer(A, replica()), peer(B, later)) == [("b2", "catching up"), ("a1", "superseded")]


def test_a_secondary_speaks_where_the_primary_does_not() -> None:
    secondary = peer(B, replica("secondary", state="caught up"))
    assert told(secondary) == [("a1", "caught up")]
    assert told(peer(A, state="unreachable"), secondary) == [("a1", "primary gone")]
    assert told(peer(A, health="dead"), secondary) == [("a1", "primary gone")]


@pytest.mark.parametrize("how", [{"state": "unreachable"}, {"health": "dead"}, {"health": "left"}])
def test_a_standby_that_is_gone_is_shown_as_gone(how: dict[str, str]) -> None:
    assert told(peer(A, replica()), peer(B, **how)) == [("a1", "secondary gone")]


def test_peers_are_believed_about_themselves_alone() -> None:
    """A stranger neither has our query, nor may report who has it."""
    stranger = replica(term_number=2**62, primary=C)
    assert told(*BOTH, peer(C, stranger, participant="evil.com")) == [("a1", "caught up")]
    assert told(*BOTH, peer(C, replica(term_number=2**62, primary=B))) == [("a1", "caught up")]
    assert told(peer(C, replica(query="nonsense", primary=C))) == []
    helper = replica("secondary", secondary=C)
    assert told(peer(C, helper, participant="utah.edu")) == [("a1", "caught up")]


def test_troubles_that_need_a_person_come_first() -> None:
    alone = replica(query="medusa://mit.edu/z", secondary="", state="alone")
    rows = standbys(snapshot(peer(A, replica(), alone), peer(B)))
    assert [row.state for row in rows] == ["alone", "caught up"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen(width: int) -> None:
    old = replica(query="medusa://mit.edu/z", mode=Mode.ACTIVE_STANDBY, secondary="", state="alone")
    shown = lines(
        snapshot(peer(A, replica(), old), peer(B, state="unreachable", health="suspect"), peer(C)),
        width,
    )
    text = "\n".join(shown)
    at = next(number for number, line in enumerate(shown) if "Standbys" in line)
    assert shown[at].split()[1:5] == (
        ["mode", "primary", "secondary", "behind"]
        if width == 80
        else ["mode", "recovery", "primary", "secondary"]
    )
    assert "passive" in shown[at + 1]
    assert "a1a1a1a1  b2b2b2b2" in shown[at + 1]
    assert "0.4s" in shown[at + 1]
    assert "secondary gone" in shown[at + 1]
    assert shown[at + 2].split()[:2] == ["mit.edu/z", "active"]
    assert shown[at + 2].split()[-1 if width == 80 else -2] == "alone"
    assert "suspect" in text
    assert ("1790000000000" in text) == (width == 120)


def test_without_standbys_there_is_no_table() -> None:
    assert not any("Standbys" in line for line in lines(snapshot(peer(A), peer(B)), 80))


TEXTS = st.text(max_size=60)
REPLICAS = st.builds(
    ReplicaStatus,
    st.just(QUERY) | TEXTS,
    st.sampled_from(["primary", "secondary"]) | TEXTS,
    st.sampled_from(Mode),
    st.sampled_from(Recovery),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([A, B, C, ""]) | TEXTS,
    st.sampled_from([A, B, C, ""]) | TEXTS,
    st.integers(-(2**63), 2**63 - 1),
    TEXTS,
)


@settings(max_examples=60)
@given(st.lists(REPLICAS, max_size=12), st.sampled_from([80, 120]), st.integers(16, 40))
def test_the_screen_fits_whatever_peers_report(
    replicas: list[ReplicaStatus], width: int, height: int
) -> None:
    own = peer(A, *[r for r in replicas if r.role != "secondary"])
    drawn = lines(snapshot(own, peer(B, *replicas, participant="x.org")), width, height)
    assert len(drawn) <= height
    assert all(cell_len(line) <= width for line in drawn)


def test_availability_in_words() -> None:
    assert in_words(Availability()) == "no standby"
    assert in_words(Availability(Mode.AMNESIA)) == "amnesia, gap recovery"
    active = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE, 1.5, secondary=A)
    assert in_words(active) == (
        "active_standby, precise recovery, within 1.5 s, secondary a1a1a1a1"
    )
    assert set(MODE_NAMES) == set(Mode)
