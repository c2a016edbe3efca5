"""A refusal of an unknown name lists the known names, and proposes the similar one."""

from __future__ import annotations

import pytest

from medusa.overlay.alternatives import MAX_ASKED, MAX_SHOWN, alternatives


@pytest.mark.parametrize(
    ("asked", "known", "wanted"),
    [
        ("src_pi", ["ts", "src_ip"], "there are ts, src_ip (is src_ip meant?)"),
        ("SRC_IP", ["ts", "src_ip"], "there are ts, src_ip (is src_ip meant?)"),
        ("x", ["ts"], "there are ts"),
        ("x", [], "there are none"),
    ],
)
def test_known_names_are_listed_and_the_similar_one_is_proposed(
    asked: str, known: list[str], wanted: str
) -> None:
    assert alternatives(asked, known) == wanted


def test_types_stand_after_the_names() -> None:
    types = {"ts": "timestamp", "Port": "long"}
    wanted = "there are ts timestamp, Port long (is Port meant?)"
    assert alternatives("portt", types, types) == wanted


def test_a_name_beyond_the_end_of_a_long_list_is_proposed() -> None:
    known = [f"field{number:04}" for number in range(1000)] + ["destination"]
    told = alternatives("destinaton", known)
    assert len(told) < MAX_SHOWN + 60
    assert told.endswith("... (is destination meant?)")


def test_long_names_are_compared_by_their_beginning() -> None:
    """The message has one line, and its cost does not grow with a hostile name."""
    told = alternatives("y" * 10**7, ["y" * MAX_ASKED, "x"])
    assert told.endswith(f"(is {'y' * MAX_ASKED} meant?)")
