"""Checks the arguments of the client's calls against the types of their parameters."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeVar

from medusa.overlay.errors import InvalidInputError

P = ParamSpec("P")
T = TypeVar("T")

SHOWN_CHARACTERS: Final = 60
"""Characters of a value in an error message: enough to recognise the value."""


def checked(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: it refuses arguments of other types than its parameters'.

    The function raises InvalidInputError, which names the parameter.
    """

    @wraps(call)
    def check(*args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments(call, args, kwargs)
        return call(*args, **kwargs)

    return check


def check_arguments(
    call: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """
    Raises:
        InvalidInputError: an argument is not of its parameter's type; the message names it.
        TypeError: as Python raises it: an argument is missing, or there is no such parameter.
    """
    signature, kinds = _parameters(call)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = kinds.get(name)
        if kind is not None and not _is(value, kind):
            shown = repr(value)
            if len(shown) > SHOWN_CHARACTERS:
                shown = f"{shown[:SHOWN_CHARACTERS]}..."
            raise InvalidInputError(
                f"{call.__name__}: argument {name}: expected {_in_words(kind)}, "
                f"got {type(value).__qualname__} {shown}"
            )


@cache
def _parameters(call: Callable[..., object]) -> tuple[inspect.Signature, dict[str, object]]:
    """The signature of a call, and the types of its parameters."""
    return inspect.signature(call), typing.get_type_hints(call)


def _is(value: object, kind: object) -> bool:
    """Whether a value is of a type. A type that is neither a class, a union nor a sequence fits
    every value: the call itself checks the value."""
    origin: Any = typing.get_origin(kind)
    if origin in {types.UnionType, typing.Union}:
        return any(_is(value, part) for part in typing.get_args(kind))
    if origin in {Sequence, tuple}:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return False
        item = typing.get_args(kind)[0]
        return all(_is(each, item) for each in value)
    if origin is not None or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _in_words(kind: Any) -> str:  # noqa: ANN401 - a type, or what typing makes of one
    origin = typing.get_origin(kind)
    if origin in {types.UnionType, typing.Union}:
        return " or ".join(_in_words(part) for part in typing.get_args(kind))
    if origin is not None:
        inner = ", ".join(_in_words(part) for part in typing.get_args(kind) if part is not ...)
        return f"{origin.__name__.lower()} of {inner}"
    return "None" if kind is types.NoneType else str(getattr(kind, "__name__", kind))
