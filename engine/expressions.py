"""Typed expressions: what a stranger's text becomes before anything runs it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.schema import FieldType


@dataclass(frozen=True, slots=True)
class FieldRef:
    """The value of a field of the input tuple (`stime` included, as a timestamp)."""

    name: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; None is the null of `type`."""

    value: bool | int | float | str | None
    type: FieldType


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator or function of the allow-list over typed operands, widened to a common type."""

    operator: str
    operands: tuple[Expression, ...]
    type: FieldType


Expression = FieldRef | Constant | Operation
