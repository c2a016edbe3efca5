"""The tables of functions in docs/reference/functions.md: from the rows of the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from medusa.engine.language.functions_in_words import (
    AGGREGATE_FUNCTIONS,
    FunctionInWords,
    functions_in_words,
    shown,
)

SCALARS: Final = "scalar functions"
AGGREGATES: Final = "aggregate functions"


def page(text: str) -> str:
    """The page with new tables, between the marks `<!-- name -->` and `<!-- end -->`."""
    every = list(functions_in_words())
    scalars = [each for each in every if each.subject != AGGREGATE_FUNCTIONS]
    aggregates = [each for each in every if each.subject == AGGREGATE_FUNCTIONS]
    text = _between(text, SCALARS, _by_subject(scalars))
    return _between(text, AGGREGATES, _table("function", aggregates))


def _between(text: str, name: str, lines: Iterator[str]) -> str:
    made = "\n".join(lines)
    found, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}\n{made}\n\n{match[2]}",
        text,
        flags=re.DOTALL,
    )
    assert count == 1, name
    return found


def _by_subject(functions: list[FunctionInWords]) -> Iterator[str]:
    for subject, own in groupby(functions, key=lambda each: each.subject):
        yield from (*_table(subject.lower(), list(own)), "")


def _table(title: str, functions: list[FunctionInWords]) -> Iterator[str]:
    typed = any(each.result for each in functions)
    yield f"| {title} | {'takes | result | ' * typed}gives | example |"
    yield f"|---|---|---|{'---|---|' * typed}"
    for each in functions:
        names = "".join(f", `{name}`" for name in each.other_names)
        example = each.examples[0]
        given = "" if not example.values else f", of {', '.join(map(shown, example.values))}"
        cells = (
            f"`{each.call}`{names}",
            *((each.takes, each.result) if typed else ()),
            each.gives,
            f"`{example.text}` is `{shown(example.result)}`{given}",
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
