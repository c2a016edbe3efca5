"""Examples of functions: of the documentation, and tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A call and its result.

    Attributes:
        values: of an aggregate: those of x.
        duckdb: the same in DuckDB's words, if they are others.
        differs: DuckDB has no such function, or answers otherwise: what it does.
    """

    text: str
    result: object
    values: tuple[object, ...] = ()
    duckdb: str = ""
    differs: str = ""
