"""Regular expressions as trees; `medusa.engine.scalars.patterns` reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

_LAST: Final = 0x10FFFF

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted ranges of code points that do not touch, ends included."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Anchor:
    """The beginning of the text, or its end."""

    begins: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts that follow one another."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Branches:
    """Alternatives; the first that leads to a match counts."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A part in parentheses; number: from 1, None if it does not capture."""

    node: Node
    number: int | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part `least` to `most` times; most: None if unbounded; lazy: as few as possible."""

    node: Node
    least: int
    most: int | None
    lazy: bool


Node: TypeAlias = Chars | Anchor | Sequence | Branches | Group | Repeat


def least_length(node: Node) -> int:
    """The number of characters of the shortest match."""
    match node:
        case Chars():
            return 1
        case Anchor():
            return 0
        case Sequence(parts=parts):
            return sum(map(least_length, parts))
        case Branches(options=options):
            return min(map(least_length, options))
        case Group(node=inner):
            return least_length(inner)
        case Repeat(node=inner, least=least):
            return least * least_length(inner)


def written_out(node: Node) -> int:
    """The number of characters and sets, each counted as often as quantifiers repeat it."""
    match node:
        case Chars() | Anchor():
            return 1
        case Sequence(parts=nodes) | Branches(options=nodes):
            return sum(map(written_out, nodes))
        case Group(node=inner):
            return written_out(inner)
        case Repeat(node=inner, least=least, most=most):
            return written_out(inner) * max(least + 1 if most is None else most, 1)


def captures(node: Node) -> bool:
    """Whether a group in it captures."""
    match node:
        case Chars() | Anchor():
            return False
        case Sequence(parts=nodes) | Branches(options=nodes):
            return any(map(captures, nodes))
        case Group(node=inner, number=number):
            return number is not None or captures(inner)
        case Repeat(node=inner):
            return captures(inner)


def union(*sets: Ranges) -> Ranges:
    """The union of the sets: all their characters."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(each for ranges in sets for each in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """All characters outside of these ranges."""
    found, begin = [], 0
    for first, last in ranges:
        if begin < first:
            found.append((begin, first - 1))
        begin = last + 1
    if begin <= _LAST:
        found.append((begin, _LAST))
    return tuple(found)


def written(node: Node, escaped: Callable[[int], str], end: str) -> str:
    """The pattern as text, for one engine. escaped: writes a character of a set. end: the engine's
    anchor for the end of a text."""
    match node:
        case Chars(ranges=ranges):
            return _set_text(ranges, escaped)
        case Anchor(begins=begins):
            return r"\A" if begins else end
        case Sequence(parts=parts):
            return "".join(written(each, escaped, end) for each in parts)
        case Branches(options=options):
            return "|".join(written(each, escaped, end) for each in options)
        case Group(node=inner, number=number):
            opening = "(?:" if number is None else "("
            return f"{opening}{written(inner, escaped, end)})"
        case Repeat(node=inner, least=least, most=most, lazy=lazy):
            bounds = f"{least},{'' if most is None else most}"
            return f"{written(inner, escaped, end)}{{{bounds}}}{'?' * lazy}"


def _set_text(ranges: Ranges, escaped: Callable[[int], str]) -> str:
    def one(code: int) -> str:
        character = chr(code)
        plain = character.isascii() and character.isalnum()
        return character if plain else escaped(code)

    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return one(ranges[0][0])
    texts = [one(low) if low == high else f"{one(low)}-{one(high)}" for low, high in ranges]
    return f"[{''.join(texts)}]"
