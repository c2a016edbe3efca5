"""The queries that WITH names, visible while a SELECT that may read them is planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.relation import Relation


@dataclass(slots=True)
class _Named:
    """A query that WITH names.

    Attributes:
        at: its place in the text. read: whether a FROM reads it.
    """

    relation: Relation
    at: exp.Expr
    read: bool = False


class Scopes:
    """The names of WITH that a FROM may read: those of its SELECT, and of the SELECTs around it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: list[dict[str, _Named]] = []

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open a scope for a query within the block; at its end all its names must have been read.
        Raises: PointedError: a name was not read.
        """
        self._open.append({})
        try:
            yield
            for name, each in self._open[-1].items():
                if not each.read:
                    raise self._source.refusal(
                        f"no FROM reads {name[:80]}: leave it out, or make it a stream of its own, "
                        f"CREATE STREAM {name[:80]} AS SELECT",
                        each.at,
                    )
        finally:
            self._open.pop()

    def add(self, name: str, relation: Relation, at: exp.Expr) -> None:
        """Name a query in the innermost scope.

        Raises: PointedError: the scope has the name already.
        """
        if name in self._open[-1]:
            raise self._source.refusal(f"{name[:80]} is defined twice", at)
        self._open[-1][name] = _Named(relation, at)

    def read(self, name: str) -> Relation | None:
        """The query that a name in a FROM means; None: no WITH has the name."""
        for scope in reversed(self._open):
            if name in scope:
                scope[name].read = True
                return scope[name].relation
        return None
