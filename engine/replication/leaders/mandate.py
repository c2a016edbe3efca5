from __future__ import annotations

import math
from collections.abc import Sequence

from medusa.engine.replication.leaders.ballot import SourceTerm
from medusa.engine.replication.leaders.events import Effect, Send
from medusa.engine.replication.leaders.messages import Install


class Mandate:
    """The term that this peer proposes or holds, and which voters have accepted it. Sans-IO.

    Args:
        others: the other voters. quiet_s: how long a confirmation counts, seconds. Attributes:
            term: the term; None: this peer has proposed none yet.
    """

    def __init__(self, others: Sequence[str], quiet_s: float) -> None:
        self.term: SourceTerm | None = None
        self._others = others
        self._quiet_s = quiet_s
        self._accepted: set[str] = set()
        self._confirmed: dict[str, float] = {}

    def propose(self, term: SourceTerm) -> None:
        """Begin with a term; this peer has accepted it."""
        self.term = term
        self._accepted = {term.leader}

    def requests(self) -> list[Effect]:
        """The requests to all other voters to install the term."""
        assert self.term is not None
        return [Send(peer, Install(self.term)) for peer in self._others]

    def confirm(self, sender: str, now: float) -> None:
        """Note that a voter has the term at that moment."""
        self._confirmed[sender] = now

    def accept(self, sender: str) -> int:
        """Note that a voter accepts the proposal; returns the number of voters that do by now."""
        self._accepted.add(sender)
        return len(self._accepted)

    def unconfirmed(self, now: float) -> tuple[str, ...]:
        """The other voters that have not confirmed recently that this peer is leader."""
        return tuple(
            peer
            for peer in self._others
            if now - self._confirmed.get(peer, -math.inf) > self._quiet_s
        )

    @property
    def awaited(self) -> tuple[str, ...]:
        """The other voters that have not yet accepted the term under installation."""
        return tuple(peer for peer in self._others if peer not in self._accepted)

    @property
    def asks_for_deletion(self) -> bool:
        return self.term is not None and self.term.deleted
