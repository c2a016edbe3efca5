"""Networks that Python programs write."""

from __future__ import annotations

from datetime import timedelta

import pytest

import medusa
from medusa import (
    Aggregate,
    AggregateCall,
    Contiguity,
    Cumulate,
    Filter,
    InvalidInputError,
    Join,
    JoinKind,
    Map,
    Match,
    Measure,
    Mode,
    PatternStep,
    Query,
    Rank,
    Recovery,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    order_by,
)

MIT = "medusa://mit.edu/"
CONNS = medusa.stream(f"{MIT}conns")


def test_a_program_makes_the_query_that_its_words_say() -> None:
    web = CONNS.filter("dst_port = 80")
    counts = (
        web.window("1 minute", "10 seconds")
        .group_by("src_ip")
        .aggregate(conns="count()", most="percentile(bytes, 0.95)")
    )
    busy = counts.named(f"{MIT}counts", box="count").filter("conns > 100").named(f"{MIT}busy")
    made = medusa.query(
        f"{MIT}q",
        busy,
        web,
        ha="passive_standby",
        bound="2 seconds",
        checkpoint=timedelta(seconds=1),
    )
    functions = (
        AggregateCall("count", None, "conns"),
        AggregateCall("percentile", "bytes", "most", 0.95),
    )
    assert {box.name: box for box in made.boxes} == {
        "filter_1": Filter("filter_1", f"{MIT}conns", (f"{MIT}q/filter_1",), ("dst_port = 80",)),
        "count": Aggregate(
            "count",
            f"{MIT}q/filter_1",
            f"{MIT}counts",
            60_000_000,
            10_000_000,
            ("src_ip",),
            functions,
        ),
        "busy": Filter("busy", f"{MIT}counts", (f"{MIT}busy",), ("conns > 100",)),
    }
    assert made.outputs == (f"{MIT}q/filter_1",), "busy is an output anyway"
    asked = made.availability
    assert (asked.mode, asked.recovery) == (Mode.PASSIVE_STANDBY, Recovery.PRECISE)
    assert (asked.bound_s, asked.checkpoint_s) == (2.0, 1.0)


def test_streams_are_split_mapped_united_and_joined() -> None:
    web, mail, rest = CONNS.split("port = 80", "port = 25", rest=True)
    renamed = rest.select("src_ip", **{"from": "dst_ip"}, n="bytes + 1").named(f"{MIT}renamed")
    both = web.union(mail).named(f"{MIT}both")
    pairs = both.join(
        CONNS,
        on="left.src_ip = right.dst_ip",
        within=("-10 seconds", timedelta(seconds=5)),
        kind="left",
        select={"ip": "left.src_ip"},
    ).named(f"{MIT}pairs")
    newest = CONNS.asof_join(
        both, on="left.src_ip = right.src_ip", within="1 hour", select={"ip": "left.src_ip"}
    ).named(f"{MIT}newest")
    following = CONNS.asof_join(
        both,
        on="left.src_ip = right.src_ip",
        within="1 hour",
        kind="left_asof",
        direction="forward",
        select={"ip": "left.src_ip"},
    ).named(f"{MIT}following")
    made = medusa.query(f"{MIT}q", renamed, pairs, newest, following)
    boxes = {box.name: box for box in made.boxes}
    split = boxes.pop("filter_1")
    assert isinstance(split, Filter)
    assert (split.predicates, split.pass_on_false) == (("port = 80", "port = 25"), True)
    one, two, three = split.outputs
    assert len({one, two, three}) == 3
    assert boxes == {
        "renamed": Map(
            "renamed",
            three,
            f"{MIT}renamed",
            (("src_ip", "src_ip"), ("from", "dst_ip"), ("n", "bytes + 1")),
        ),
        "both": Union("both", (one, two), f"{MIT}both"),
        "pairs": Join(
            "pairs",
            f"{MIT}both",
            f"{MIT}conns",
            f"{MIT}pairs",
            JoinKind.LEFT,
            10_000_000,
            5_000_000,
            "left.src_ip = right.dst_ip",
            (("ip", "left.src_ip"),),
        ),
        "newest": Join(
            "newest",
            f"{MIT}conns",
            f"{MIT}both",
            f"{MIT}newest",
            JoinKind.ASOF,
            3_600_000_000,
            0,
            "left.src_ip = right.src_ip",
            (("ip", "left.src_ip"),),
        ),
        "following": Join(
            "following",
            f"{MIT}conns",
            f"{MIT}both",
            f"{MIT}following",
            JoinKind.LEFT_ASOF,
            0,
            3_600_000_000,
            "left.src_ip = right.src_ip",
            (("ip", "left.src_ip"),),
        ),
    }


def test_windows_of_other_kinds_and_the_first_of_each() -> None:
    visits = CONNS.sessions("30 seconds", "2 hours").group_by("src_ip").aggregate(n="count()")
    short = CONNS.sessions("30 seconds").aggregate(n="count()").named(f"{MIT}short")
    growing = CONNS.cumulate("1 hour", "1 day").aggregate(total="sum(bytes)")
    largest = CONNS.window("1 minute").group_by("src_ip").first(3, order=["bytes desc", "ts"])
    ranked = growing.instants().first(1, place="place")
    made = medusa.query(
        f"{MIT}q",
        visits.named(f"{MIT}visits"),
        short,
        largest.named(f"{MIT}largest"),
        ranked.named(f"{MIT}ranked"),
    )
    count = (AggregateCall("count", None, "n"),)
    total = (AggregateCall("sum", "bytes", "total"),)
    conns, hour = f"{MIT}conns", 3_600_000_000
    order = (order_by("bytes", descending=True), order_by("ts"))
    inside = f"{MIT}q/cumulate_1"
    assert {box.name: box for box in made.boxes} == {
        "visits": Sessions(
            "visits", conns, f"{MIT}visits", 30_000_000, 2 * hour, ("src_ip",), count
        ),
        "short": Sessions("short", conns, f"{MIT}short", 30_000_000, hour, (), count),
        "cumulate_1": Cumulate("cumulate_1", conns, inside, hour, 24 * hour, (), total),
        "largest": Rank("largest", conns, f"{MIT}largest", 60_000_000, ("src_ip",), order, 3),
        "ranked": Rank("ranked", inside, f"{MIT}ranked", 1, (), (), 1, "place"),
    }


def test_windows_of_tuples_need_no_advance_and_no_group() -> None:
    last = CONNS.tuple_windows(10, 1, partial=True).group_by("src_ip").group_by("dst_ip")
    made = medusa.query(
        f"{MIT}q",
        CONNS.tuple_windows(10).aggregate(n="count()"),
        last.numbered("n").aggregate(total="sum(bytes)").named(f"{MIT}last"),
    )
    count = (AggregateCall("count", None, "n"),)
    total = (AggregateCall("sum", "bytes", "total"),)
    conns, groups = f"{MIT}conns", ("src_ip", "dst_ip")
    name = "tuple_windows_1"
    assert {box.name: box for box in made.boxes} == {
        name: TupleWindows(name, conns, f"{MIT}q/{name}", 10, 10, (), count),
        "last": TupleWindows("last", conns, f"{MIT}last", 10, 1, groups, total, True, "n"),
    }


def test_tables_are_kept_and_joined() -> None:
    owners = medusa.stream(f"{MIT}owners")
    sums = CONNS.group_by("src_ip").totals(n="count()", **{"class": "max(bytes)"})
    best = CONNS.group_by("src_ip").first(2, order=["bytes desc"], place="place")
    sizes = sums.named(f"{MIT}sums").group_by("n", table=True).totals(sources="count()")
    owned = CONNS.table_join(
        owners, on="left.src_ip = right.ip", kind="left", select={"owner": "right.owner"}
    )
    made = medusa.query(
        f"{MIT}q", best.named(f"{MIT}best"), sizes.named(f"{MIT}sizes"), owned.named(f"{MIT}owned")
    )
    conns = f"{MIT}conns"
    functions = (AggregateCall("count", None, "n"), AggregateCall("max", "bytes", "class"))
    counted = (AggregateCall("count", None, "sources"),)
    fields = (("owner", "right.owner"),)
    on = "left.src_ip = right.ip"
    largest = (order_by("bytes", descending=True),)
    assert {box.name: box for box in made.boxes} == {
        "sums": Totals("sums", conns, f"{MIT}sums", ("src_ip",), functions),
        "best": Top("best", conns, f"{MIT}best", ("src_ip",), largest, 2, "place"),
        "sizes": Totals("sizes", f"{MIT}sums", f"{MIT}sizes", ("n",), counted, True),
        "owned": Join(
            *("owned", conns, f"{MIT}owners", f"{MIT}owned"), JoinKind.LEFT, 0, 0, on, fields, True
        ),
    }


def test_sequences_are_matched() -> None:
    found = CONNS.match(
        "A B{2,} !C",
        within="5 minutes",
        partition_by=["src_ip"],
        where={"B": "bytes > prev.bytes", "C": "port = 25"},
        measures={"since": "first(A.stime)", "n": "count(B.*)", "most": "max(bytes)"},
        contiguity="skip_till_next_match",
    )
    (box,) = medusa.query(f"{MIT}q", found.named(f"{MIT}found")).boxes
    steps = (
        PatternStep("A"),
        PatternStep("B", "bytes > prev.bytes", 2, None),
        PatternStep("C", "port = 25", negated=True),
    )
    measures = (
        Measure("firstval", "A", "stime", "since"),
        Measure("count", "B", "", "n"),
        Measure("max", "", "bytes", "most"),
    )
    assert box == Match(
        *("found", f"{MIT}conns", f"{MIT}found", ("src_ip",), steps, 300_000_000, measures),
        Contiguity.SKIP_TILL_NEXT_MATCH,
    )


def test_a_stream_is_a_value() -> None:
    once = CONNS.filter("a > 1")
    named = once.named(f"{MIT}a", readers=["utah.edu"])
    assert (once.name, named.name, CONNS.name) == ("", f"{MIT}a", f"{MIT}conns")
    made = medusa.query(f"{MIT}q", named, once.filter("b > 1").named(f"{MIT}b"))
    assert {box.name: box.input for box in made.boxes if isinstance(box, Filter)} == {
        "a": f"{MIT}conns",
        "b": f"{MIT}a",
    }, "it has its name wherever it is used"
    assert made.readers == ((f"{MIT}a", ("utah.edu",)),)
    again = medusa.query(f"{MIT}q", CONNS.filter("a > 1"), CONNS.filter("a > 1"))
    assert len(again.boxes) == 2, "two calls are two boxes"


def _query(*streams: medusa.Stream, **options: str) -> Query:
    return medusa.query(f"{MIT}q", *streams, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda: medusa.stream("conns"), "must look like medusa://participant/path"),
        (lambda: CONNS.named(f"{MIT}x"), "has its name already"),
        (lambda: CONNS.filter("a").named("x"), "must look like medusa://"),
        (lambda: CONNS.window("1 minut"), "'1 minut' is no length of time: write a whole number"),
        (lambda: CONNS.window("2 months"), "no length of time"),
        (lambda: CONNS.window("1 day").aggregate(n="counts()"), "there is no aggregate 'counts'"),
        (lambda: CONNS.join(CONNS, within=("0 s", "0 s"), select={}), "'0 s' is no length of time"),
        (
            lambda: CONNS.join(CONNS, within=("0 hours", "0 hours"), select={}, kind="outer"),
            "kind 'outer' is not one of inner, left",
        ),
        (lambda: CONNS.sessions("soon"), "'soon' is no length of time"),
        (
            lambda: CONNS.window("2 days", "1 day").first(1),
            "the first tuples are those of windows that follow each other",
        ),
        (lambda: CONNS.sessions("1 day").first(1), "of windows that follow each other"),
        (lambda: CONNS.tuple_windows(2.5), "'2.5' is no whole number of tuples"),  # type: ignore[arg-type]
        (lambda: CONNS.tuple_windows(5, True), "'True' is no whole number of tuples"),
        (
            lambda: _query(CONNS.tuple_windows(0).aggregate(n="count()")),
            "its windows have 0 tuples; 1 to 1,000 are allowed",
        ),
        (lambda: _query(CONNS.tuple_windows(5).aggregate()), "need at least one function"),
        (lambda: CONNS.instants().first(1, order=["a down"]), "'a down' is not a field"),
        (lambda: CONNS.group_by("a", table=True).first(1, order=["a"]), "of a stream, not of a"),
        (lambda: CONNS.group_by("a").totals(n="count"), "is not an aggregate like count"),
        (lambda: _query(CONNS.group_by("a").first(2, order=["b"])), "name the field"),
        (lambda: _query(CONNS.group_by().totals(n="count()")), "totals need at least one group"),
        (lambda: CONNS.match("A |", within="1 s"), "the pattern is wrong at"),
        (lambda: CONNS.match("A", within="1 minute", where={"B": "a"}), "'B' is not in the"),
        (lambda: CONNS.match("A", within="1 day", measures={"n": "A"}), "'A' is not a measure"),
        (lambda: CONNS.match("A", within="1 day", contiguity="any"), "'any' is not one of strict"),
        (
            lambda: CONNS.table_join(CONNS, on="true", select={}, kind="outer"),
            "kind 'outer' is not one of inner, left",
        ),
        (lambda: _query(CONNS), "does not make medusa://mit.edu/conns: say .union"),
        (_query, "it has 0 boxes"),
        (lambda: _query(CONNS.map()), "a map needs at least one output field"),
        (lambda: _query(CONNS.window("2 days", "0 days").aggregate(n="count()")), "advances by"),
        (lambda: _query(CONNS.filter("a"), ha="hot"), "ha is none, amnesia"),
        (
            lambda: _query(*(CONNS.filter("a").named(f"{MIT}x") for _ in "ab")),
            "box name 'x' occurs 2 times",
        ),
        (
            lambda: _query(*(CONNS.filter("a").named(f"{MIT}x", box=each) for each in "ab")),
            "medusa://mit.edu/x",
        ),
    ],
)
def test_errors_name_their_place(wrong: object, reason: str) -> None:
    assert callable(wrong)
    with pytest.raises(InvalidInputError, match=reason):
        wrong()


def test_a_stream_has_one_name() -> None:
    once = CONNS.filter("a > 1")
    with pytest.raises(InvalidInputError, match="name a stream once"):
        _query(once.named(f"{MIT}a"), once.named(f"{MIT}b"))
    one, two = CONNS.split("a > 1", rest=True)
    with pytest.raises(InvalidInputError, match="has several names: x, y"):
        _query(one.named(f"{MIT}a", box="x"), two.named(f"{MIT}b", box="y"))
