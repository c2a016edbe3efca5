"""The value of the first and of the last tuple."""

from __future__ import annotations

from typing import Final

from medusa.engine.aggregates.function import End
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.type_rules import ANY

FIRSTVAL: Final = End(
    name="firstval",
    other_names=("first_value",),
    takes=ANY,
    argument="any",
    spark="min_by",
    place=0,
    gives="The value of the window's first tuple by stime, even if it is null.",
    example=Example("firstval(x)", None, values=(None, 7, 2), duckdb="first(x)"),
)
LASTVAL: Final = End(
    name="lastval",
    other_names=("last_value",),
    takes=ANY,
    argument="any",
    spark="max_by",
    place=-1,
    gives="The value of the window's last tuple by stime, even if it is null.",
    example=Example("lastval(x)", 2, values=(None, 7, 2), duckdb="last(x)"),
)

ROWS: Final = (FIRSTVAL, LASTVAL)
