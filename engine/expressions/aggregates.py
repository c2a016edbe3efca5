"""The calls of aggregate functions in documents, as texts."""

from __future__ import annotations

import re
from decimal import Decimal

from medusa.engine.aggregates.function import AggregateFunction, Constant
from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.objects.query import AggregateCall
from medusa.overlay.errors import InvalidInputError


def check_call(each: AggregateCall) -> None:
    """Check the name, the order and the constant of a call.

    Raises:
        InvalidInputError: names the mistake.
    """
    function = aggregate_named(each.function)
    if each.argument is None and not function.alone:
        raise InvalidInputError(f"{each.function} needs an argument, like {function.call}")
    if each.descending and not function.ordered:
        raise InvalidInputError(f"{each.function} has no order: leave out DESC")
    check_constant(function, each.parameter)


def check_constant(function: AggregateFunction, constant: Constant) -> None:
    """Check the constant of a call; None: it has none.

    Raises:
        InvalidInputError: it is missing, too many, or out of its range; the message says which
            constant the function takes.
    """
    wanted = function.constant
    if wanted is None:
        if constant is not None:
            raise InvalidInputError(f"{function.name} takes no constant beside its argument")
    elif not wanted.fits(constant):
        raise InvalidInputError(f"{function.name} needs {wanted.what}, like {wanted.example}")


_WHOLE = re.compile(r"\d{1,20}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,20}\.\d{1,20}", re.ASCII)
_TEXT = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)


def split_parameter(inside: str) -> tuple[str, int | float | str | None]:
    """The argument and the constant that stand in the parentheses of a call; None: there is none.

    Raises:
        InvalidInputError: the text after the last comma is no constant.
    """
    at = _last_comma(inside)
    if at is None:
        return inside, None
    text = inside[at + 1 :].strip()
    if _WHOLE.fullmatch(text):
        return inside[:at], int(text)
    if _DECIMAL.fullmatch(text):
        return inside[:at], float(text)
    quoted = _TEXT.fullmatch(text)
    if quoted is None:
        raise InvalidInputError(f"{text[:64]!a} is not a number like 0.5, or a text like ', '")
    return inside[:at], quoted.group(1).replace("''", "'")


def _last_comma(text: str) -> int | None:
    """Return the place of the last comma that is in no parentheses and no quotes."""
    found, depth, quote = None, 0, ""
    for number, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and not depth:
            found = number
    return found


def call_of(each: AggregateCall) -> str:
    """The call of a function, as a document writes it."""
    argument = each.argument or ""
    if each.descending:
        argument = f"{argument} desc"
    elif aggregate_named(each.function).ordered and _DESCENDING.fullmatch(argument):
        argument = f"({argument})"  # the last field of the argument is called desc
    constant = constant_of(each)
    return f"{each.function}({argument}{'' if constant is None else f', {constant}'})"


def constant_of(each: AggregateCall) -> str | None:
    """The constant of a function, as texts write it."""
    match each.parameter:
        case None:
            return None
        case str() as text:
            return "'" + text.replace("'", "''") + "'"
        case number:
            return f"{Decimal(repr(number)):f}"


_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_DESCENDING = re.compile(r"(.*\S)\s+desc\s*", re.DOTALL | re.IGNORECASE)


def function_of(text: str, output: str) -> AggregateCall:
    """The aggregate that a text calls; `call_of` writes such texts.

    Raises:
        InvalidInputError: it is no call of an aggregate function.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text[:80]!a} is not an aggregate like count() or sum(bytes)")
    name, argument = match.groups()
    function = aggregate_named(name)
    parameter = None
    if function.constant is not None:
        argument, parameter = split_parameter(argument)
    down = _DESCENDING.fullmatch(argument) if function.ordered else None
    argument = argument if down is None else down[1]
    blank = not argument.strip() or argument.strip() == "*"
    given = None if blank else argument
    return AggregateCall(function.name, given, output, parameter, down is not None)
