"""Participants that refuse this peer: the others seem dead to it then, and it to them.

A person must hear of it, for as long as it lasts: nothing else tells it from a broken network.
"""

from __future__ import annotations

from typing import Final

import trio

from overlay.certificates import PeerName
from overlay.errors import RefusedError
from overlay.events import Events
from overlay.greeting import Verdict, receive_verdict, send_hello

MAX_REFUSALS: Final = 1_000
"""Participants of which it is remembered that they refuse us: a federation has fewer."""


class Refusals:
    """
    Attributes:
        reasons: by participant, as far as none of its peers has taken us for a member since.
    """

    def __init__(self, events: Events) -> None:
        self.reasons: dict[str, str] = {}
        self._events = events

    def accepted(self, participant: str) -> None:
        """A peer of that participant takes us for a member."""
        self.reasons.pop(participant, None)

    async def greet(self, stream: trio.abc.Stream, remote: PeerName, hello: bytes) -> Verdict:
        """The verdict of that peer, which has proved who it is, on our hello.

        Raises:
            RefusedError: it does not take us for a member. MedusaError: the connection broke.
        """
        try:
            await send_hello(stream, hello)
            verdict = await receive_verdict(stream)
            if (error := verdict.error()) is not None:
                raise error
        except RefusedError as error:
            self._note(remote.participant, str(error))
            raise RefusedError(f"{remote.participant} refuses this peer: {error}") from None
        return verdict

    def _note(self, participant: str, reason: str) -> None:
        if self.reasons.get(participant) != reason and len(self.reasons) < MAX_REFUSALS:
            self.reasons[participant] = reason
            self._events.note("error", f"hears that {participant} refuses this peer: {reason}")
