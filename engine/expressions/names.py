"""Names of functions: those that the language has, and why others are missing."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from sqlglot import exp

from medusa.engine.aggregates.rows import NAMES as AGGREGATES
from medusa.engine.expressions.texts import Text
from medusa.engine.scalars.casts import CAST
from medusa.engine.scalars.rows import FUNCTIONS

_CHANGING: Final = ": a result must be the same wherever and whenever it is computed"

_ABSENT: Final = {
    **dict.fromkeys(("rand", "randn", "random", "uuid"), _CHANGING),
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "localtimestamp"),
        f"{_CHANGING}; the time of a tuple is stime",
    ),
    **dict.fromkeys(
        ("power", "pow", "exp", "ln", "log", "log2", "log10", "sin", "cos", "tan"),
        ": its last bits differ from library to library",
    ),
}
"""Functions that are left out on purpose, and why."""


_ELSEWHERE: Final = {
    "row_number": "ROW_NUMBER() takes OVER (PARTITION BY ... ORDER BY ...), or a window of rows",
    **dict.fromkeys(
        ("tumble", "hop", "session", "cumulate"),
        "a window stands in FROM, like TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE), or in "
        "GROUP BY",
    ),
}
"""Functions of SQL that are no scalar functions, and where a query may have them."""


def check_call(node: exp.Expr, text: Text) -> None:
    """Refuse the call of an unknown function, or of one that takes no `*`.

    Raises:
        InvalidInputError: an error of `text`; the message lists similar names, or says where a
            query may have the function.
    """
    name = node.name.lower()
    if name in _ELSEWHERE:
        raise text.refusal(_ELSEWHERE[name], node)
    if text.functions is not None and name not in FUNCTIONS and name not in text.functions:
        mend = _ABSENT.get(name) or _alike(name, text.functions)
        raise text.refusal(f"there is no function {node.name[:80]!a}{mend}", node)
    if [type(each) for each in node.expressions] == [exp.Star]:
        shown = f"{node.name[:40]}(*)"
        raise text.refusal(f"{shown} is not part of the language here: only count takes *", node)


def _alike(name: str, others: Collection[str]) -> str:
    known = {*FUNCTIONS, *others, CAST, *AGGREGATES}
    alike = get_close_matches(name[:80], sorted(known))
    told = f"alike are {', '.join(alike)}" if alike else "`medusa function list` names all"
    return f"; {told}; CREATE FUNCTION names one of your own"
