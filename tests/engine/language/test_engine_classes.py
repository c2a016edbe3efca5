"""Which tuples boxes repeat after a restart, and which recovery a query may therefore ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_networks import SOURCES, queries, rows

from medusa.engine.evaluation.expressions import Row
from medusa.engine.language.check import check_query, ordered_boxes
from medusa.engine.language.classes import (
    BoxClass,
    applied,
    check_availability,
    check_secondary,
    class_of,
    strongest_recovery,
    weakest_box,
)
from medusa.engine.objects.availability import (
    MODE_WORDS,
    Availability,
    AvailabilityRequest,
    Mode,
    Recovery,
    parse_mode,
    parse_recovery,
)
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Cumulate,
    Filter,
    Join,
    Map,
    Match,
    Query,
    Rank,
    Sessions,
    Union,
)
from medusa.engine.reference.interpreter import run_query
from medusa.engine.scalars.rows import SCALARS
from medusa.overlay.errors import InvalidInputError

PEER = "ab" * 20
GAP, ROLLBACK, PRECISE = Recovery.GAP, Recovery.ROLLBACK, Recovery.PRECISE
SECOND_RUN = (Mode.UPSTREAM_BACKUP, Mode.ACTIVE_STANDBY)
WITH_STANDBY = tuple(mode for mode in Mode if mode is not Mode.NONE)

ROWS = AggregateCall("count", None, "n")
COUNT = Aggregate("count", "b", "c", 60, 60, (), ())
FILTER = Filter("few", "a", ("b",), ("x > 1",))
UNION = Union("all", ("a", "aa"), "b")
QUERY = Query("medusa://mit.edu/q", (FILTER, COUNT))


def restarted(
    query: Query, sources: Mapping[str, list[Row]], at: Mapping[str, int]
) -> dict[str, list[Row]]:
    """Run the network with boxes that start empty, from a position in each source on."""
    schemas = check_query(query, SOURCES)
    left = {
        name: [row for row in found if row["stime"] > at[name]] for name, found in sources.items()
    }
    return run_query(query, left, schemas)


def following(found: list[Row], boundary: float) -> list[Row]:
    return [row for row in found if row["stime"] > boundary]


def origins(query: Query) -> dict[str, frozenset[str]]:
    """Return the sources of each stream of the network."""
    found = {name: frozenset({name}) for name in SOURCES}
    for box in ordered_boxes(query):
        come_from = frozenset().union(*(found[name] for name in box.inputs))
        found.update(dict.fromkeys(box.outputs, come_from))
    return {stream: names for stream, names in found.items() if stream not in SOURCES}


def settling(query: Query) -> int:
    """Return the time after a restart from which on every result of a chain of all boxes depends
    only on tuples after the restart."""
    windows = sum(
        box.size_us for box in query.boxes if isinstance(box, (Aggregate, Cumulate, Rank))
    )
    sessions = (each for each in query.boxes if isinstance(each, Sessions))
    windows += sum(each.longest_us + 2 * each.gap_us for each in sessions)
    pairs = sum(
        max(box.before_us, 0) + max(box.after_us, 0) for box in query.boxes if isinstance(box, Join)
    )
    return windows + pairs + sum(box.within_us for box in query.boxes if isinstance(box, Match))


@settings(max_examples=80)
@given(queries(), st.data(), st.integers(-50, 70), st.integers(-50, 70))
def test_classes_say_what_a_restart_repeats(
    query: Query, data: st.DataObject, first: int, second: int
) -> None:
    """The reference interpreter itself obeys the definitions of the classes."""
    sources = {name: data.draw(rows()) for name in SOURCES}
    one_position = class_of(weakest_box(query)) is BoxClass.DETERMINISTIC
    at = {"s0": first, "s1": first if one_position else second}
    whole = restarted(query, sources, dict.fromkeys(SOURCES, -(2**62)))
    again = restarted(query, sources, at)
    repeatable = class_of(weakest_box(query)) is BoxClass.REPEATABLE
    for stream, sources_of_it in origins(query).items():
        settled = min(at[name] for name in sources_of_it) + (0 if repeatable else settling(query))
        assert following(again[stream], settled) == following(whole[stream], settled)


def test_a_window_that_was_open_is_not_repeated_at_once() -> None:
    """So an aggregate is not repeatable."""
    count = Aggregate("w", "s0", "out", 10, 10, (), (ROWS,))
    query = Query("q", (count,))
    sources = {"s0": [_row(1, 0), _row(8, 1), _row(12, 2)], "s1": []}
    whole = restarted(query, sources, {"s0": 0, "s1": 0})["out"]
    again = restarted(query, sources, {"s0": 5, "s1": 5})["out"]
    assert [row["n"] for row in whole] == [2, 1]
    assert [row["n"] for row in again] == [1, 1], "the first window is another, the second the same"


def test_a_union_repeats_only_tuples_from_which_all_inputs_are_replayed() -> None:
    """So a union is not repeatable."""
    query = Query("q", (Union("u", ("s0", "s1"), "out"),))
    sources = {"s0": [_row(1, 0), _row(8, 1)], "s1": [_row(2, 0), _row(9, 1)]}
    whole = following(restarted(query, sources, {"s0": 0, "s1": 0})["out"], 1)
    again = following(restarted(query, sources, {"s0": 1, "s1": 5})["out"], 1)
    assert [row["stime"] for row in whole] == [2, 8, 9]
    assert [row["stime"] for row in again] == [8, 9]


def _row(stime: int, number: int) -> Row:
    return {"stime": stime, "seq": number, "a": 1, "b": 1, "c": "x", "d": 1.0}


def test_no_expression_knows_clock_or_chance() -> None:
    """Filters and maps are repeatable only as long as this holds."""
    words = ("now", "rand", "uuid", "current", "clock", "unix_timestamp", "input_file", "partition")
    words += ("_id", "id_")
    assert not [name for name in SCALARS for word in words if word in name]


def test_the_weakest_box_is_the_network_s_class() -> None:
    for boxes, name, class_ in (
        ((FILTER,), "few", BoxClass.REPEATABLE),
        ((FILTER, Map("m", "b", "c", ())), "few", BoxClass.REPEATABLE),
        ((FILTER, COUNT), "count", BoxClass.CONVERGENT),
        ((COUNT, UNION, FILTER), "all", BoxClass.DETERMINISTIC),
    ):
        weakest = weakest_box(Query("q", boxes))
        assert (weakest.name, class_of(weakest)) == (name, class_)


def test_each_mode_gives_its_strongest_recovery() -> None:
    for class_ in BoxClass:
        assert strongest_recovery(Mode.NONE, class_) is GAP
        assert strongest_recovery(Mode.AMNESIA, class_) is GAP
        assert strongest_recovery(Mode.PASSIVE_STANDBY, class_) is PRECISE
        for mode in SECOND_RUN:
            expected = GAP if class_ is BoxClass.ARBITRARY else PRECISE
            assert strongest_recovery(mode, class_) is expected


def asking(mode: Mode, recovery: Recovery = GAP, **changes: object) -> Availability:
    return msgspec.structs.replace(Availability(mode, recovery), **changes)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("recovery", Recovery)
def test_a_query_gets_what_its_mode_reaches_and_no_more(mode: Mode, recovery: Recovery) -> None:
    reachable = mode not in {Mode.NONE, Mode.AMNESIA} or recovery is GAP
    if reachable:
        check_availability(QUERY, asking(mode, recovery))
    else:
        with pytest.raises(
            InvalidInputError, match=r"query .*/q: recovery .* 'count', is convergent"
        ):
            check_availability(QUERY, asking(mode, recovery))


def test_the_refusal_of_an_arbitrary_query_names_the_possible_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No operator is arbitrary by itself: the test makes one so."""

    def arbitrary(box: Box, _functions: object = ()) -> BoxClass:
        return BoxClass.ARBITRARY if isinstance(box, Aggregate) else class_of(box)

    monkeypatch.setattr("medusa.engine.language.classes.class_of", arbitrary)
    for mode in SECOND_RUN:
        for recovery in (ROLLBACK, PRECISE):
            with pytest.raises(InvalidInputError) as caught:
                check_availability(QUERY, asking(mode, recovery))
            assert str(caught.value) == (
                f"query medusa://mit.edu/q: recovery {recovery} is more than ha {mode} gives a "
                "query whose weakest box, 'count', is arbitrary: ask for gap, or for ha "
                "passive_standby"
            )
        check_availability(QUERY, asking(mode, GAP))
    for recovery in Recovery:
        check_availability(QUERY, asking(Mode.PASSIVE_STANDBY, recovery))
    made = applied(QUERY, AvailabilityRequest(Mode.ACTIVE_STANDBY))
    assert made.availability.recovery is GAP


@pytest.mark.parametrize(
    ("availability", "reason"),
    [
        (asking(Mode.NONE, checkpoint_s=3.0), "for a query with a standby: ask for ha amnesia, up"),
        (asking(Mode.NONE, checkpoint_s=2.0), "are for a query with a standby"),
        (asking(Mode.NONE, secondary=PEER), "are for a query with a standby"),
        (asking(Mode.NONE, PRECISE), "ask for gap, or for ha upstream_backup, passive_standby or"),
        (asking(Mode.AMNESIA, bound_s=-1.0), "bound of -1 s is not between 0.1 and 86,400 s"),
        (asking(Mode.AMNESIA, bound_s=0.01), "bound of 0.01 s is not between"),
        (asking(Mode.AMNESIA, bound_s=1e9), "is not between"),
        (asking(Mode.AMNESIA, bound_s=math.inf), "bound of inf s"),
        (asking(Mode.AMNESIA, bound_s=math.nan), "bound of nan s"),
        (asking(Mode.ACTIVE_STANDBY, checkpoint_s=0.5), "only ha passive_standby has checkpoints"),
        (asking(Mode.PASSIVE_STANDBY, checkpoint_s=0.0), "every 0 s is not between 0.05 and 3,600"),
        (asking(Mode.PASSIVE_STANDBY, checkpoint_s=math.nan), "every nan s is not between"),
        (asking(Mode.PASSIVE_STANDBY, checkpoint_s=1e6), "is not between"),
        (asking(Mode.PASSIVE_STANDBY, bound_s=0.5), "every 1 s cannot keep results within a bound"),
        (asking(Mode.PASSIVE_STANDBY, secondary="ab"), "peer id 'ab': must be 40"),
        (asking(Mode.PASSIVE_STANDBY, secondary=PEER.upper()), "must be 40 lower-case"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(
    availability: Availability, reason: str
) -> None:
    query = msgspec.structs.replace(QUERY, availability=availability)
    with pytest.raises(InvalidInputError) as caught:
        check_availability(query, availability)
    assert str(caught.value).startswith("query medusa://mit.edu/q: ")
    assert reason in str(caught.value)


def test_a_query_s_availability_is_checked_with_its_network() -> None:
    box = Filter("few", "s0", ("out",), ("a > 1",))
    fits = Query("q", (box,), (), asking(Mode.ACTIVE_STANDBY, PRECISE))
    assert "out" in check_query(fits, SOURCES)
    with pytest.raises(InvalidInputError, match="'few', is repeatable"):
        check_query(Query("q", (box,), (), asking(Mode.AMNESIA, PRECISE)), SOURCES)


def test_a_query_is_not_its_own_standby() -> None:
    query = msgspec.structs.replace(QUERY, availability=asking(Mode.AMNESIA, secondary=PEER))
    check_secondary(query, "cd" * 20)
    check_secondary(QUERY, PEER)
    with pytest.raises(InvalidInputError, match="peer abababab keeps it"):
        check_secondary(query, PEER)


def test_omitted_parts_are_completed() -> None:
    for mode in WITH_STANDBY:
        made = applied(QUERY, AvailabilityRequest(mode)).availability
        assert made == Availability(mode, GAP if mode is Mode.AMNESIA else PRECISE)
    passive = AvailabilityRequest(Mode.PASSIVE_STANDBY, bound_s=0.5)
    assert applied(QUERY, passive).availability.checkpoint_s == 0.25, "half the bound"
    patient = msgspec.structs.replace(passive, bound_s=60.0)
    assert applied(QUERY, patient).availability.checkpoint_s == 1.0
    explicit = msgspec.structs.replace(passive, checkpoint_s=0.1)
    assert applied(QUERY, explicit).availability.checkpoint_s == 0.1


def test_later_options_count() -> None:
    before = applied(QUERY, AvailabilityRequest(Mode.PASSIVE_STANDBY, ROLLBACK, 2.0, 0.5, PEER))
    assert applied(before, AvailabilityRequest()) == before
    assert applied(before, AvailabilityRequest(bound_s=4.0)).availability == Availability(
        Mode.PASSIVE_STANDBY, ROLLBACK, 4.0, 0.5, PEER
    )
    assert applied(before, AvailabilityRequest(Mode.ACTIVE_STANDBY)).availability == Availability(
        Mode.ACTIVE_STANDBY, PRECISE, 2.0, secondary=PEER
    ), "recovery and checkpoint were the other mode's"
    without = applied(before, AvailabilityRequest(Mode.NONE)).availability
    assert without == Availability(bound_s=2.0), "for what is missing, a peer is not enough"
    assert applied(before, AvailabilityRequest(secondary="")).availability.secondary == ""
    with pytest.raises(InvalidInputError, match="are for a query with a standby"):
        applied(before, AvailabilityRequest(Mode.NONE, checkpoint_s=3.0))


SPANS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 60.0]) | st.floats()
REQUESTS = st.builds(
    AvailabilityRequest,
    st.none() | st.sampled_from(Mode),
    st.none() | st.sampled_from(Recovery),
    st.none() | SPANS,
    st.none() | SPANS,
    st.none() | st.sampled_from(["", PEER, "x"]),
)


@given(REQUESTS, REQUESTS)
def test_a_request_of_availability_is_refused_or_holds(
    first: AvailabilityRequest, second: AvailabilityRequest
) -> None:
    try:
        query = applied(applied(QUERY, first), second)
    except InvalidInputError:
        return
    check_availability(query, query.availability)
    for name in ("mode", "recovery", "bound_s", "checkpoint_s", "secondary"):
        asked = getattr(second, name)
        assert asked is None or getattr(query.availability, name) == asked


def test_words_of_both_systems() -> None:
    assert {parse_mode(word) for word in ("amnesia", "upstream", "passive", "active")} == set(
        WITH_STANDBY
    )
    assert set(MODE_WORDS.values()) == set(Mode)
    assert [parse_mode(mode.value) for mode in Mode] == list(Mode)
    assert [parse_recovery(recovery.value) for recovery in Recovery] == list(Recovery)
    for parse in (parse_mode, parse_recovery):
        with pytest.raises(InvalidInputError, match="not 'hot'"):
            parse("hot")
