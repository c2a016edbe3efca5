"""Functions of users, as queries name them: their types, and the fingerprint of their code. The
code itself is a file or an installed package at each peer that runs it (`medusa.engine.functions`);
it never travels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from medusa.engine.objects.schema import FieldType
from medusa.overlay.errors import InvalidInputError

MAX_FUNCTIONS: Final = 64
"""Functions of one query: each is a process at the peer that computes it."""

MAX_ARGUMENTS: Final = 32
"""Arguments of one function: each is a column of its calls."""

MAX_SOURCE: Final = 256
"""Characters of the place of a function's code: errors show it."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,63}")

_FINGERPRINT: Final = re.compile(r"([0-9a-f]{64})?")


class UserFunction(Struct, frozen=True, omit_defaults=True):
    """A function of a user.

    Attributes:
        name: its name in expressions, in lower case.
        arguments, result: types.
        source: the place of its code, as the operators of its peers name it: `geo.py:distance`, or
            `entry:distance` for an installed one.
        deterministic: it gives equal results for equal arguments, at any time and at any peer.
        fingerprint: SHA-256 of its code, hex; "": of any code that a peer has at that place.
    """

    name: str
    arguments: tuple[FieldType, ...]
    result: FieldType
    source: str
    deterministic: bool = False
    fingerprint: str = ""

    @property
    def signature(self) -> str:
        """Write the types in words: `distance(double, double) double`."""
        return f"{self.name}({', '.join(self.arguments)}) {self.result}"


def check_functions(functions: Sequence[UserFunction]) -> None:
    """Check the names and limits of a query's functions.

    Raises:
        InvalidInputError: names the function and the reason.
    """
    if len(functions) > MAX_FUNCTIONS:
        raise InvalidInputError(
            f"it names {len(functions)} functions of users; at most {MAX_FUNCTIONS} are allowed"
        )
    for name, times in Counter(each.name for each in functions).items():
        if times > 1:
            raise InvalidInputError(f"function {name[:64]!a} is declared {times} times")
    for each in functions:
        check_function(each)


def check_function(function: UserFunction) -> None:
    """Check one function. Raises: InvalidInputError: names the function and the reason."""
    if not _NAME.fullmatch(function.name):
        raise InvalidInputError(
            f"{function.name[:64]!a} is no name of a function: letters a to z, digits and _, at "
            "most 64"
        )
    about = f"function {function.name}"
    if not 0 < len(function.arguments) <= MAX_ARGUMENTS:
        raise InvalidInputError(f"{about}: it takes 1 to {MAX_ARGUMENTS} arguments")
    if not 0 < len(function.source) <= MAX_SOURCE or not function.source.isprintable():
        raise InvalidInputError(
            f"{about}: its code is named like 'geo.py:{function.name}', in at most {MAX_SOURCE} "
            "characters"
        )
    if not _FINGERPRINT.fullmatch(function.fingerprint):
        raise InvalidInputError(f"{about}: its fingerprint is no SHA-256")


def unpinned(functions: Sequence[UserFunction]) -> tuple[UserFunction, ...]:
    """The functions as a document names them: by place, not by fingerprint; in order of name."""
    plain = (
        UserFunction(each.name, each.arguments, each.result, each.source, each.deterministic)
        for each in functions
    )
    return tuple(sorted(plain, key=lambda each: each.name))
