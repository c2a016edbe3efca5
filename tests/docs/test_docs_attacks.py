"""docs/security/attacks.md: the tests that its table names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/security/attacks.md"
HEADER: Final = "| # | attack | what happens now | shown by |"


def rows() -> Iterator[list[str]]:
    """Yield the cells of the rows of the table."""
    table = PAGE.read_text().partition(f"{HEADER}\n")[2].partition("\n\n")[0]
    for line in table.splitlines()[1:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


@cache
def functions_of(path: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text()).body
    return frozenset(each.name for each in body if isinstance(each, kinds))


def shown_by(cell: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the function of each test that a cell names; a file may be that of the one
    before."""
    path = ""
    for named, function in re.findall(r"`([\w/.]*)::(\w+)`", cell):
        path = named or path
        yield path, function


def test_every_attack_is_shown_by_tests_that_exist() -> None:
    attacks = list(rows())
    assert {number for number, *_ in attacks} == {*map(str, range(1, 21)), "S"}
    for _, attack, _, cell in attacks:
        named = list(shown_by(cell))
        assert named, attack
        for path, function in named:
            assert function in functions_of(ROOT / path), f"{path}::{function}"
