"""Functions of users in a network of boxes: which boxes call which functions, and which may.

Filters and maps may call them, since they make one tuple from one tuple. A box that calls a
function ends its task, so that its results are in a log: they are computed once for a tuple, for
all readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.expressions.typed import Expression, calls_in
from medusa.engine.objects.functions import UserFunction, check_functions
from medusa.engine.objects.query import Box, Query
from medusa.engine.scalars.rows import FUNCTIONS
from medusa.overlay.errors import InvalidInputError

Declared = Mapping[str, UserFunction]
"""The functions that expressions may call, by name."""


def declared(query: Query) -> Declared:
    """The functions that the query's expressions may call."""
    return {each.name: each for each in query.functions}


def check_declared(query: Query) -> None:
    """Check the functions that the query names.

    Raises:
        InvalidInputError: names the function and the reason.
    """
    if query.functions:
        check_functions(query.functions)
        check_names(query.functions)


def check_names(functions: Sequence[UserFunction]) -> None:
    """Check that the functions have no names of the language. Raises: InvalidInputError: a function
    has such a name."""
    from medusa.engine.expressions.grammar import KEYWORDS  # loads sqlglot

    for each in functions:
        if each.name in FUNCTIONS or each.name in KEYWORDS or each.name in AGGREGATES:
            raise InvalidInputError(
                f"function {each.name} is part of the language: take another name"
            )


def called_by(box: Box, functions: Declared) -> tuple[UserFunction, ...]:
    """The functions that a box calls, each once. A text that is no expression calls none."""
    if not functions:
        return ()
    from sqlglot import exp  # imported with the first text only

    from medusa.engine.expressions.parsing import tree_of

    names: dict[str, None] = {}
    for text in box.texts:
        with suppress(InvalidInputError):
            names |= {each.name.lower(): None for each in tree_of(text).find_all(exp.Anonymous)}
    return tuple(functions[name] for name in names if name in functions)


def without_unused(query: Query) -> Query:
    """The query with the functions that its boxes call, and no others."""
    known = declared(query)
    used = {each for box in query.boxes for each in called_by(box, known)}
    kept = tuple(each for each in query.functions if each in used)
    return msgspec.structs.replace(query, functions=kept)


def refuse_calls(expression: Expression, where: str) -> None:
    """Refuse calls of users' functions. where: the place, for the message. Raises:
    InvalidInputError: the expression has one."""
    for call in calls_in(expression):
        raise InvalidInputError(
            f"{where} cannot call {call.function.name}: call it in a map before it"
        )
