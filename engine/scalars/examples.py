"""Examples of functions, which the documentation shows and tests run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A call and its result.

    Attributes:
        values: for an aggregate, the values of x. duckdb: the call in DuckDB's dialect, if it
            differs. differs: how DuckDB's answer differs, or that it has no such function.
    """

    text: str
    result: object
    values: tuple[object, ...] = ()
    duckdb: str = ""
    differs: str = ""
