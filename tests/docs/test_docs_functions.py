"""The tables of functions are those of the rows."""

from __future__ import annotations

from pathlib import Path

from medusa.testnet.pages import functions

PAGE = Path(__file__).parents[2] / "docs/reference/functions.md"


def test_the_page_has_the_tables_of_the_rows() -> None:
    text = PAGE.read_text()
    assert functions.page(text) == text, "`make docs` writes them"
