"""Parts of boxes as documents and programs write them: measures, and fields to order by."""

from __future__ import annotations

import re
from typing import Final

from engine.language.aggregates import function_named
from engine.objects.query import Function, Measure
from overlay.errors import InvalidInputError

_CALL: Final = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)

_SHORT: Final = {"first": Function.FIRSTVAL, "last": Function.LASTVAL}


def measure_text(measure: Measure) -> str:
    """The call of a measure, like `last(B.price)`."""
    named = ".".join(filter(None, (measure.variable, measure.field or "*")))
    return f"{measure.function}({named})"


def measure_of(text: str, output: str) -> Measure:
    """The measure of a call, as `measure_text` writes it; `first` and `last` are short forms.

    Raises:
        InvalidInputError: it is no such call.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text[:80]!a} is not a measure like last(B.price) or count(B.*)")
    name, argument = (each.strip() for each in match.groups())
    variable, _, field = argument.rpartition(".")
    function = _SHORT.get(name.lower())
    return Measure(
        function or function_named(name), variable, "" if field == "*" else field, output
    )


def order_text(name: str, *, descending: bool) -> str:
    """A field of an order, like `price desc`."""
    return f"{name} {'desc' if descending else 'asc'}"


def order_of(text: str) -> tuple[str, bool]:
    """`field`, `field asc` or `field desc` as a pair of `Rank.order_by`.

    Raises:
        InvalidInputError: it is none of them.
    """
    field, _, direction = text.strip().partition(" ")
    if direction.strip().lower() not in {"", "asc", "desc"}:
        raise InvalidInputError(f"{text[:80]!a} is not a field, or a field with asc or desc")
    return field, direction.strip().lower() == "desc"
