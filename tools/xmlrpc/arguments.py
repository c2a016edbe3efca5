"""The arguments of a call, from values of XML-RPC to the peer's own types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from medusa.overlay.errors import InvalidInputError
from medusa.tools.xmlrpc.values import Call, Value

T = TypeVar("T")


class Arguments:
    """The arguments of one call, taken one after the other.

    Args:
        signature: the call as the docs write it, for errors.
        least, most: how many it may have.

    Raises:
        InvalidInputError: it has fewer, or more.
    """

    def __init__(self, call: Call, signature: str, least: int, most: int) -> None:
        self._signature = signature
        self._values = list(call.arguments)
        self._taken = 0
        if not least <= len(self._values) <= most:
            raise InvalidInputError(f"{len(self._values)} arguments: expected {signature}")

    def value(self) -> Value:
        """The next argument, unchanged; None: it was left out."""
        self._taken += 1
        return self._values.pop(0) if self._values else None

    def take(self, kind: type[T], default: T | None = None) -> T:
        """The next argument; a whole number may be the text of one, as XML-RPC has 32 bits.

        Args:
            default: its value if it is left out or nil.

        Raises:
            InvalidInputError: it is of another type, or has a member that the type lacks.
        """
        value = self.value()
        if value is None and default is not None:
            return default
        try:
            made = msgspec.convert(value, kind, strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            raise self.refusal(str(error)) from None
        if unknown := _unknown(value, made):
            raise self.refusal(f"no member {unknown!a}")
        return made

    def refusal(self, reason: str) -> InvalidInputError:
        """The error for the argument that was taken last."""
        text = reason.replace("`", "")
        return InvalidInputError(f"argument {self._taken}: {text}: expected {self._signature}")


def _unknown(given: Value, made: Any) -> str:  # noqa: ANN401 - of any type of argument
    """A member of a struct that the type lacks, and that would be lost silently; "": there is
    none."""
    if isinstance(made, Struct) and isinstance(given, Mapping):
        config = made.__struct_config__
        fields = {each.encode_name: each.name for each in msgspec.structs.fields(made)}
        extra = given.keys() - fields.keys() - {config.tag_field}
        if extra:
            return sorted(extra)[0]
        found = (
            _unknown(value, getattr(made, fields[key]))
            for key, value in given.items()
            if key in fields
        )
        return next(filter(None, found), "")
    if isinstance(made, Sequence) and isinstance(given, list):
        return next(filter(None, map(_unknown, given, made)), "")
    return ""
