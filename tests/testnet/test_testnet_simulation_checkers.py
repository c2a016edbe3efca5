"""The checkers themselves: each finds its breach in a made-up history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from medusa.contracts.balances import Balance
from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.query import Aggregate, AggregateCall
from medusa.engine.objects.schema import BEGINNING, END
from medusa.testnet.simulation.checkers import violations
from medusa.testnet.simulation.faults import Drift
from medusa.testnet.simulation.history import (
    AccountView,
    Acknowledged,
    Attempted,
    Books,
    Covered,
    Event,
    Failed,
    History,
    Invited,
    Late,
    Overdue,
    Paid,
    PeerView,
    Posted,
    PrimaryView,
    Quiescent,
    Received,
    Row,
    WorkView,
)
from medusa.testnet.simulation.manifest import Check, Manifest, QueryTable, StreamTable
from medusa.testnet.simulation.peer_checks import catalog_of

S = "medusa://mit.edu/s"
OUT = "medusa://mit.edu/out"
LATER = "medusa://mit.edu/later"
QUERY = "medusa://mit.edu/q"

COUNTS = Aggregate("count", S, OUT, 10, 10, (), (AggregateCall("count", None, "rows"),))

MANIFEST = Manifest(
    {"mit.edu": 2},
    streams=(StreamTable(S, "mit.edu/0"),),
    queries=(QueryTable("mit.edu/0", QUERY, (COUNTS,)),),
)

POSTED = tuple(Posted(t, "p", t + 1, t % 3, 7) for t in range(20))
"""The posted tuples, in two windows of ten."""

A, B = "aa", "bb"


def source(row: Posted, **more: Any) -> Row:
    plain = {"stime": row.t, "seq": row.number - 1, **msgspec.structs.asdict(row)}
    return plain | more


def counted(start: int, rows: int) -> Row:
    return {"stime": start + 9, "window_start": start, "rows": rows}


def epoch(subscriber: str, stream: str, after: int, upto: int, rows: Iterable[Row]) -> Received:
    return Received(1.0, subscriber, "mit.edu/1", stream, after, upto, tuple(rows))


def whole(stream: str, rows: Iterable[Row], subscriber: str = "r") -> list[Event]:
    return [epoch(f"{subscriber} {stream}", stream, BEGINNING, END, rows)]


SOURCE = whole(S, map(source, POSTED))
ANSWER = whole(OUT, [counted(0, 10), counted(10, 10)])
DONE: list[Event] = [
    Attempted(0.0, "p", S, POSTED),
    Acknowledged(1.0, "p", S, 20),
    Late(2.0, S, ()),
]


def peer(name: str, identity: str, **facts: Any) -> PeerView:
    return PeerView(facts.pop("at", 5.0), name, identity, "mit.edu", statements=("x",), **facts)


ONE = peer("mit.edu/0", A, primaries=(PrimaryView(QUERY, 1),))
TWO = peer("mit.edu/1", B)


def found_by(check: Check, *events: Event, manifest: Manifest = MANIFEST) -> list[str]:
    history = History()
    history.events = [*events]
    return [each.text for each in violations(history, manifest) if each.check == check]


def streams(*parts: Iterable[Event], manifest: Manifest = MANIFEST) -> list[str]:
    return found_by(Check.STREAMS, *(e for part in parts for e in part), manifest=manifest)


def test_a_run_without_fault_breaks_nothing() -> None:
    history = History()
    history.events = [*DONE, *SOURCE, *ANSWER, ONE, TWO, Quiescent(6.0, (ONE, TWO))]
    assert violations(history, MANIFEST) == []


def test_a_lost_acknowledged_row_is_found() -> None:
    (text,) = streams(DONE, whole(S, map(source, POSTED[:-1])))
    assert "lost acknowledged rows" in text


def test_a_row_in_doubt_may_be_there_or_not() -> None:
    doubt = [DONE[0], Acknowledged(1.0, "p", S, 19), DONE[2]]
    answer = whole(OUT, [counted(0, 10), counted(10, 9)])
    assert streams(doubt, whole(S, map(source, POSTED[:-1])), answer) == []
    assert streams(doubt, SOURCE, ANSWER) == []


def test_a_late_row_is_not_lost_and_a_row_in_both_streams_is_doubled() -> None:
    late = [*DONE[:2], Late(2.0, S, (source(POSTED[-1]),))]
    answer = whole(OUT, [counted(0, 10), counted(10, 9)])
    assert streams(late, whole(S, map(source, POSTED[:-1])), answer) == []
    (text,) = streams(late, SOURCE, ANSWER)
    assert "rows twice" in text


def test_a_repeated_and_a_forged_row_are_found() -> None:
    (twice,) = streams(DONE, whole(S, [*map(source, POSTED), source(POSTED[-1], seq=20)]))
    assert "rows twice" in twice
    (forged,) = streams(DONE, whole(S, [*map(source, POSTED[:-1]), source(POSTED[-1], value=8)]))
    assert "nobody posted" in forged


def test_a_boundary_that_goes_back_and_a_tuple_outside_its_epoch_are_found() -> None:
    epochs = [
        epoch("r", S, BEGINNING, 9, map(source, POSTED[:10])),
        epoch("r", S, 4, END, map(source, POSTED[10:])),
    ]
    assert any("came (4," in text for text in streams(DONE, epochs))
    outside = [epoch("r", S, BEGINNING, 9, map(source, POSTED[:11]))]
    assert any("outside of their epoch" in text for text in streams(DONE, outside))


def test_subscribers_that_differ_are_found() -> None:
    other = [epoch("late reader", S, BEGINNING, 12, map(source, POSTED[:12]))]
    (text,) = streams(DONE, SOURCE, other)
    assert "late reader" in text
    assert "differ" in text


def test_a_wrong_answer_is_found_and_one_that_is_behind_is_not() -> None:
    (text,) = streams(DONE, SOURCE, whole(OUT, [counted(0, 10), counted(10, 9)]))
    assert "differs from one batch run" in text
    behind = [epoch("r", OUT, BEGINNING, 9, [counted(0, 10)])]
    assert streams(DONE, SOURCE, behind) == []


def test_gap_may_miss_tuples_and_has_none_that_are_wrong() -> None:
    (table,) = MANIFEST.queries
    table = msgspec.structs.replace(table, availability=Availability(Mode.AMNESIA))
    manifest = msgspec.structs.replace(MANIFEST, queries=(table,))
    assert streams(DONE, SOURCE, whole(OUT, [counted(0, 10)]), manifest=manifest) == []
    wrong = whole(OUT, [counted(0, 10), counted(10, 4)])
    (text,) = streams(DONE, SOURCE, wrong, manifest=manifest)
    assert "no batch run makes" in text


def test_readers_may_differ_on_streams_derived_from_one_with_gaps() -> None:
    """Two copies of a query that are cut off from each other read copies with gaps of their own."""
    (first,) = MANIFEST.queries
    sums = Aggregate("sums", OUT, LATER, 10, 10, (), (AggregateCall("count", None, "rows"),))
    copied = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE)
    second = QueryTable("mit.edu/0", f"{QUERY}2", (sums,), availability=copied)
    readings = [*whole(LATER, [counted(0, 1)]), *whole(LATER, [counted(10, 1)], "other")]
    exact = msgspec.structs.replace(MANIFEST, queries=(first, second))
    assert any("differ" in text for text in streams(DONE, SOURCE, ANSWER, readings, manifest=exact))
    first = msgspec.structs.replace(first, availability=Availability(Mode.AMNESIA))
    gaps = msgspec.structs.replace(MANIFEST, queries=(first, second))
    assert streams(DONE, SOURCE, ANSWER, readings, manifest=gaps) == []


def test_a_past_that_is_gone_is_found_unless_the_query_may_forget_it() -> None:
    from_ten = [epoch("r", OUT, 9, END, [counted(10, 10)])]
    assert any("from 9 on" in text for text in streams(DONE, SOURCE, from_ten))
    (table,) = MANIFEST.queries
    backup = Availability(Mode.UPSTREAM_BACKUP, Recovery.PRECISE)
    table = msgspec.structs.replace(table, availability=backup)
    manifest = msgspec.structs.replace(MANIFEST, queries=(table,))
    assert streams(DONE, SOURCE, from_ten, manifest=manifest) == []


def owners(*events: Event) -> list[str]:
    return found_by(Check.OWNERS, *events)


def test_two_peers_under_one_term_are_found_and_a_higher_one_is_no_breach() -> None:
    again = peer("mit.edu/1", B, at=7.0, primaries=(PrimaryView(QUERY, 1),))
    assert any("two peers under term 1" in text for text in owners(ONE, again))
    successor = peer("mit.edu/1", B, at=7.0, primaries=(PrimaryView(QUERY, 2),))
    assert owners(ONE, successor) == []


def test_at_rest_there_is_one_primary_and_the_worker_is_the_one_named() -> None:
    assert owners(Quiescent(9.0, (ONE, TWO))) == []
    assert any("0 primaries" in text for text in owners(Quiescent(9.0, (TWO,))))
    working = peer("mit.edu/1", B, works=(WorkView(OUT, 3, A),))
    assert any("its owner names []" in text for text in owners(Quiescent(9.0, (ONE, working))))
    giving = msgspec.structs.replace(ONE, gives=(WorkView(OUT, 3, B),))
    assert owners(Quiescent(9.0, (giving, working))) == []
    assert owners(Quiescent(9.0, (giving, TWO)))


def test_admissions_and_lookups_that_differ_are_found() -> None:
    other = msgspec.structs.replace(TWO, statements=("x", "y"))
    (text,) = found_by(Check.MEMBERSHIP, Quiescent(9.0, (ONE, other)))
    assert "different admissions" in text
    one = msgspec.structs.replace(ONE, producers={OUT: "aa 1"})
    two = msgspec.structs.replace(TWO, producers={OUT: "bb 2"})
    (text,) = found_by(Check.MEMBERSHIP, Quiescent(9.0, (one, two)))
    assert "lookups" in text


def test_a_member_without_an_invitation_is_found() -> None:
    view = peer("mit.edu/0", A, members=("mit.edu", "rice.edu"))
    (text,) = found_by(Check.MEMBERSHIP, view)
    assert "nobody invited" in text
    assert found_by(Check.MEMBERSHIP, Invited(0.5, "rice.edu"), view) == []


def test_money_that_was_earned_and_not_spent_is_found() -> None:
    def books(earned: int) -> Quiescent:
        spent, got = Balance("c", spent=5, tuples=2), Balance("c", earned=earned, tuples=2)
        one = msgspec.structs.replace(ONE, books=Books((spent,)))
        two = msgspec.structs.replace(TWO, books=Books((got,)))
        return Quiescent(9.0, (one, two))

    assert found_by(Check.MONEY, books(5)) == []
    (text,) = found_by(Check.MONEY, books(6))
    assert "1 micros" in text
    broken = msgspec.structs.replace(ONE, books=Books(fault="entry 3 is altered"))
    assert found_by(Check.MONEY, Quiescent(9.0, (broken, TWO)))


def test_receipts_that_one_side_alone_has_are_found_also_after_the_end() -> None:
    account = AccountView("c", A, B, receipts=2, tuples=7, amount=5, head="ff")

    def both(other: AccountView | None) -> Quiescent:
        one = msgspec.structs.replace(ONE, books=Books(accounts=(account,)))
        accounts = () if other is None else (other,)
        return Quiescent(9.0, (one, msgspec.structs.replace(TWO, books=Books(accounts=accounts))))

    assert found_by(Check.MONEY, both(account)) == []
    for other in (None, msgspec.structs.replace(account, head="ee")):
        (text,) = found_by(Check.MONEY, both(other))
        assert "different receipts" in text
        (text,) = found_by(Check.MONEY, both(account), Paid(12.0, both(other)))
        assert "different receipts" in text


def test_lookups_that_agree_on_the_wrong_producer_are_found() -> None:
    def told(by: str) -> Quiescent:
        names = {S: f"{A} 0", OUT: by}
        giving = msgspec.structs.replace(ONE, gives=(WorkView(OUT, 3, B),), producers=names)
        return Quiescent(9.0, (giving, msgspec.structs.replace(TWO, producers=names)))

    def wrong(now: Quiescent) -> list[str]:
        return [each.text for each in catalog_of(now, MANIFEST)]

    assert wrong(told(f"{A} 1 {B}")) == wrong(Quiescent(9.0, (ONE, TWO)))
    for by in (f"{A} 1", f"{A} 0 {B}", f"{B} 1"):
        (text,) = wrong(told(by))
        assert f"its producer, {A} 1 {B}" in text


def covered(look: int, ours: int, theirs: int, under: str = "x") -> Covered:
    return Covered(1.0, look, QUERY, under, {OUT: ours}, {OUT: theirs})


def standbys(*events: Event) -> list[str]:
    return found_by(Check.STANDBYS, *events)


def test_a_consumer_that_has_more_than_the_secondary_is_found() -> None:
    to_19 = epoch("r", OUT, BEGINNING, 19, ())
    assert standbys(covered(0, 9, 9), covered(1, 19, 19), to_19, covered(2, 29, 19)) == []
    (text,) = standbys(covered(0, 9, 9), to_19, covered(1, 19, 9), covered(2, 19, 9))
    assert "r has more of" in text


def test_a_message_sent_before_the_secondary_caught_up_may_still_arrive() -> None:
    to_19 = epoch("r", OUT, BEGINNING, 19, ())
    assert standbys(covered(0, 19, 9), to_19, covered(1, 19, 9)) == []
    for anew in (covered(2, 19, 9), covered(1, 19, 9, "y"), covered(1, 19, 8)):
        assert standbys(covered(0, 9, 9), to_19, anew) == []


def test_mistaken_detectors_and_incarnations_that_go_back_are_found() -> None:
    def gossip(*events: Event) -> list[str]:
        return found_by(Check.GOSSIP, *events)

    alive = msgspec.structs.replace(ONE, health={B: "alive"})
    assert gossip(Quiescent(9.0, (alive, TWO))) == []
    assert gossip(Quiescent(9.0, (alive,), down=(B,)))
    dead = msgspec.structs.replace(ONE, health={B: "dead"})
    assert gossip(Quiescent(9.0, (dead, TWO)))
    assert gossip(Quiescent(9.0, (dead,), down=(B,))) == []
    old, new = (peer("mit.edu/0", A, incarnation=number) for number in (4, 5))
    assert gossip(old, new) == []
    assert any("went back" in text for text in gossip(new, old))
    reborn = peer("mit.edu/0", A, life=1, incarnation=5)
    assert any("had used" in text for text in gossip(new, reborn))
    set_back = msgspec.structs.replace(
        MANIFEST, faults=(Drift(1.0, 1.0, "mit.edu/0", step_s=-3000.0),)
    )
    assert found_by(Check.GOSSIP, new, old, manifest=set_back) == []


def test_the_liveness_check_finds_overdue_and_failed_work() -> None:
    assert len(found_by(Check.LIVENESS, Overdue(9.0, "it"), Failed(9.0, "p", "gap"))) == 2


def test_checks_that_the_manifest_leaves_out_are_not_made() -> None:
    manifest = msgspec.structs.replace(MANIFEST, checks=(Check.OWNERS,))
    history = History()
    history.events = [Overdue(9.0, "it")]
    assert violations(history, manifest) == []
