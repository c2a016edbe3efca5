"""The list of a peer's troubles: each with its first moment, the graver ones first."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.troubles import Reason, Trouble, Troubles

REASONS = st.sampled_from(Reason)
FOUND = st.sets(st.tuples(REASONS, st.sampled_from("abc")), max_size=6)


@given(st.lists(FOUND, max_size=12))
def test_a_trouble_begins_with_the_first_of_the_consecutive_looks_that_found_it(
    looks: list[set[tuple[Reason, str]]],
) -> None:
    now = 0.0
    present: set[tuple[Reason, str]] = set()
    troubles = Troubles(lambda: now)
    for part in ("ab", "c"):  # two parts of a peer
        troubles.add(
            lambda part=part: [
                Trouble(*each, f"is bad at {now}") for each in present if each[1] in part
            ]
        )
    for at, present in enumerate(looks):
        now = float(at)
        found = troubles.now()
        assert {(each.reason, each.thing) for each in found} == present
        for each in found:
            key = each.reason, each.thing
            first = at
            while first and key in looks[first - 1]:
                first -= 1
            assert each.since == first
            assert each.what == f"is bad at {now}"
        order = [list(Reason).index(each.reason) for each in found]
        assert order == sorted(order)


def test_warnings_come_after_all_that_stops_work() -> None:
    warnings = [reason.is_warning for reason in Reason]
    assert warnings == sorted(warnings)


def test_a_sentence_names_the_thing_the_fault_and_the_mend() -> None:
    whole = Trouble(Reason.DISK_FULL, "the disk", "is full", "make room")
    assert whole.sentence == "the disk is full; make room"
    assert Trouble(Reason.TASK_FAILS, "q", "fails: no such file").sentence == (
        "q fails: no such file"
    )


def test_the_documentation_has_each_reason() -> None:
    page = (Path(__file__).parents[2] / "docs/federation.md").read_text()
    _, _, table = page.partition("| reason | the trouble |")
    assert re.findall(r"^\| `(\w+)` \| (a warning)?", table, re.MULTILINE) == [
        (reason.value, "a warning" if reason.is_warning else "") for reason in Reason
    ]


def test_a_trouble_stops_the_posts_to_its_stream() -> None:
    assert Trouble(Reason.DISK_FULL, "the disk", "is full").stops_posts_to("s")
    assert Trouble(Reason.REFUSES_POSTS, "s", "refuses posts").stops_posts_to("s")
    assert not Trouble(Reason.REFUSES_POSTS, "s", "refuses posts").stops_posts_to("t")
    assert not Trouble(Reason.STANDS_STILL, "s", "stands still").stops_posts_to("s")
    assert not Trouble(Reason.ROWS_LOST, "s", "misses rows").stops_posts_to("s")
