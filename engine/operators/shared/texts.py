"""Texts of parts of boxes in documents and programs: measures, and fields to order by."""

from __future__ import annotations

import re
from typing import Final

from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.objects.query import Measure, OrderBy, order_by
from medusa.overlay.errors import InvalidInputError

_CALL: Final = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)

_SHORT: Final = {"first": "firstval", "last": "lastval"}


def measure_text(measure: Measure) -> str:
    """The call of a measure, like `last(B.price)`."""
    named = ".".join(filter(None, (measure.variable, measure.field or "*")))
    return f"{measure.function}({named})"


def measure_of(text: str, output: str) -> Measure:
    """The measure that a call means, as `measure_text` writes it; `first` and `last` are short
    forms. Raises: InvalidInputError: the text is no such call.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text[:80]!a} is not a measure like last(B.price) or count(B.*)")
    name, argument = (each.strip() for each in match.groups())
    variable, _, field = argument.rpartition(".")
    function = _SHORT.get(name.lower()) or aggregate_named(name).name
    return Measure(function, variable, "" if field == "*" else field, output)


def order_text(order: OrderBy) -> str:
    """Write a field of an order, like `price desc`, with nulls where they differ from the
    default."""
    words = [order.field, *(["desc"] if order.descending else [])]
    return " ".join([*words, *nulls_words(order)])


def nulls_words(order: OrderBy) -> list[str]:
    """Write the place of nulls, unless it is the default."""
    if order == order_by(order.field, descending=order.descending):
        return []
    return ["nulls first" if order.nulls_first else "nulls last"]


def order_of(text: str) -> OrderBy:
    """Read `field [asc | desc] [nulls first | nulls last]`. Raises: InvalidInputError: the text is
    something else.
    """
    found = _ORDER.fullmatch(" ".join(text.split()))
    if found is None:
        raise InvalidInputError(
            f"{text[:80]!a} is not a field, behind which may be asc or desc, and nulls first or "
            "nulls last"
        )
    field, direction, nulls = found.groups()
    first = None if nulls is None else nulls.lower() == "first"
    return order_by(field, descending=(direction or "").lower() == "desc", nulls_first=first)


_ORDER: Final = re.compile(
    r"(\S+)(?: (asc|desc))?(?: nulls (first|last))?", re.ASCII | re.IGNORECASE
)
