"""Money, durations, menus and terms as people write and read them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.contracts.terms import ContentTerms, LoadTerms, Menu, SuggestedTerms
from medusa.overlay.errors import InvalidInputError
from medusa.tools.commands.peer.contract_terms import (
    in_full,
    in_short,
    parse_duration,
    parse_menu,
    parse_money,
    show_money,
)


@given(st.integers(0, 2**60))
def test_money_reads_back(micros: int) -> None:
    assert parse_money(show_money(micros)) == micros


@given(st.text() | st.from_regex(r"[-+]?[0-9.eE_]{0,24}", fullmatch=True))
def test_any_amount_is_read_or_refused(text: str) -> None:
    try:
        assert parse_money(text) >= 0
    except InvalidInputError:
        assert not (text.isascii() and text.isdigit()) or len(text) > 20


@given(st.text())
def test_any_menu_and_duration_is_read_or_refused(text: str) -> None:
    for parse in (parse_menu, parse_duration):
        with suppress(InvalidInputError):  # no other exception is raised
            parse(text)


def test_durations_menus_and_terms_are_read_as_people_write_them() -> None:
    assert [parse_duration(text) for text in ("90s", "2m", "3h", "1d", "2w", "1y")] == [
        90,
        120,
        10_800,
        86_400,
        1_209_600,
        31_557_600,
    ]
    assert parse_menu("40") == Menu(most_load=40)
    assert parse_menu("7:*:medusa://a.b/*,medusa://c.d/e").streams == (
        "medusa://a.b/*",
        "medusa://c.d/e",
    )
    assert [show_money(m) for m in (0, 1, -2_500_000, 10**7)] == ["0", "0.000001", "-2.5", "10"]
    for text in ("1e400", "0.0000001", "Infinity", "", "1" * 50, "٣x"):
        with pytest.raises(InvalidInputError):
            parse_money(text)


def test_every_term_is_shown_before_one_signs() -> None:
    terms = LoadTerms(1, 2, Menu(most_load=5), Menu(), False, 3_000_000, 30, 2)
    shown = dict(in_full(terms, "mit.edu", "utah.edu"))
    assert shown["price"] == "0.000001 to 0.000002"
    assert shown["mit.edu runs"] == "up to 5 units"
    assert shown["utah.edu runs"] == "nothing"
    assert shown["passing on"] == "not allowed"
    assert shown["each move"] == "must be worth 3"
    assert shown["standstill"] == "at most 30s"
    assert shown["replicas"] == "2 peers run each task"
    stream = "medusa://mit.edu/x"
    content = ContentTerms(stream, "mit.edu", 5, 7_000_000, 3600, 60)
    shown = dict(in_full(content, "mit.edu", "utah.edu"))
    assert shown["paid by"] == "utah.edu: 0.000005 a tuple and 7 per 1h00m"
    assert dict(in_full(content, "utah.edu", "mit.edu"))["paid by"].startswith("utah.edu")
    assert in_short(ContentTerms(stream, "mit.edu")) == f"{stream} for nothing"
    suggested = SuggestedTerms(stream, "ab" * 20)
    assert dict(in_full(suggested, "a.b", "c.d"))["from peer"] == "ab" * 20
    assert in_short(suggested) == f"{stream}: read {stream} at abababab"
