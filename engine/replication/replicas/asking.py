from __future__ import annotations

from typing import Final

import msgspec
import trio

from engine.replication.deciders import HIGHEST_NUMBER
from engine.replication.replicas.messages import Dismiss, Dismissed, KeptUp
from overlay.errors import UnavailableError
from overlay.names import PeerId
from overlay.node import Overlay

CALL_S: Final = 2.0
"""The longest wait for a standby, seconds: the failure detector says whether it is replaced."""


async def ask(
    overlay: Overlay, peer: PeerId, method: str, message: msgspec.Struct, timeout_s: float = CALL_S
) -> KeptUp:
    """Ask a peer that stands by, or has taken over, for its state.

    Raises:
        MedusaError: it cannot be reached, does neither, or its answer makes no sense.
    """
    connection = await overlay.connect(peer)
    answer = await connection.call(method, message, KeptUp, timeout_s=timeout_s)
    HIGHEST_NUMBER.check(method, answer.written_term.term_number, overlay.clock())
    return answer


async def dismiss(overlay: Overlay, peer: PeerId, query: str, term_number: int) -> Dismissed:
    """Have a peer stop standing by.

    Raises:
        MedusaError: it cannot be told, or has the query all the same.
    """
    with trio.move_on_after(CALL_S):
        connection = await overlay.connect(peer)
        message = Dismiss(query, term_number)
        return await connection.call("replica.dismiss", message, Dismissed, timeout_s=CALL_S)
    raise UnavailableError("it does not answer")
