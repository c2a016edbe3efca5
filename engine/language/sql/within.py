"""WITH (within = ...): the bound of time for joins, patterns and sessions that have none of their
own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from medusa.engine.language.sql.errors import Source

WITHIN: Final = "within"


@dataclass(slots=True)
class Within:
    """The bound of a query, or of one of its streams, and whether any part uses it. Attributes: at:
    its place in the text.
    """

    _us: int | None = None
    at: exp.Expr | None = None
    _taken: bool = False

    def take(self) -> int | None:
        """The bound, microseconds; None: the text has none."""
        self._taken = True
        return self._us

    def finish(self, source: Source) -> None:
        """Refuse a bound that no part of the query uses.

        Raises:
            PointedError: points at it.
        """
        if self.at is not None and not self._taken:
            reason = (
                "no join, session or pattern here takes its bound from within: leave it out, or "
                "leave out the bounds that they have"
            )
            raise source.refusal(reason, self.at)
