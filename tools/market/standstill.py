"""Watches the availability clause of a content contract, at the payer: notes a stream that stops
for longer than promised."""

from __future__ import annotations

from medusa.contracts.contract import Contract
from medusa.contracts.terms import ContentTerms
from medusa.engine.objects.schema import END
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.events import Events


class Standstills:
    """The standstills of paid streams. Sans IO.

    `now` is on the clock by which streams are measured, seconds.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._still: dict[str, float] = {}

    def look(
        self, contract: Contract, terms: ContentTerms, state: StreamState | None, now: float
    ) -> None:
        """Note when a standstill becomes too long, and its length afterwards.

        Args:
            state: the local copy; None if the stream is not read.
        """
        if state is None or terms.availability_s == 0 or state.log.boundary == END:
            self._still.pop(contract.id, None)
            return
        name = f"{terms.stream} (contract {contract.short_id})"
        since = self._still.get(contract.id)
        if since is None and now - state.moved_at > terms.availability_s:
            self._still[contract.id] = state.moved_at
            promised = f"longer than the {terms.availability_s} s promised"
            text = f"waits for {name}, which stands still for {promised}"
            self._events.note("warning", text)
        elif since is not None and state.moved_at > since:
            del self._still[contract.id]
            self._events.note("info", f"resumed {name}, after {state.moved_at - since:.0f} s")
