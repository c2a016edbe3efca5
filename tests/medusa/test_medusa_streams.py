"""Networks that Python programs write."""

from __future__ import annotations

from datetime import timedelta

import pytest

import medusa
from medusa import (
    Aggregate,
    AggregateFunction,
    Filter,
    Function,
    InvalidInputError,
    Join,
    JoinKind,
    Map,
    Mode,
    Query,
    Recovery,
    Union,
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
        AggregateFunction(Function.COUNT, None, "conns"),
        AggregateFunction(Function.PERCENTILE, "bytes", "most", 0.95),
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
    made = medusa.query(f"{MIT}q", renamed, pairs, newest)
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
    }


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
        (
            lambda: CONNS.join(CONNS, within=("0 s", "0 s"), select={}),
            "'0 s' is no length of time",
        ),
        (
            lambda: CONNS.join(CONNS, within=("0 hours", "0 hours"), select={}, kind="outer"),
            "kind 'outer' is not one of inner, left",
        ),
        (lambda: _query(CONNS), "does not make medusa://mit.edu/conns: say .union"),
        (_query, "it has 0 boxes"),
        (lambda: _query(CONNS.map()), "a map needs at least one output field"),
        (lambda: _query(CONNS.window("2 days", "3 days").aggregate(n="count()")), "advances by"),
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
def test_what_is_wrong_is_named(wrong: object, reason: str) -> None:
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
