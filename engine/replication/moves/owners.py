from __future__ import annotations

from typing import Final

from engine.replication.directory import Directory
from engine.replication.moves.guest import StoredAssignment
from engine.replication.moves.messages import Confirm, Confirmed, PlacementStatus
from overlay.errors import UnavailableError
from overlay.names import PeerId
from overlay.node import Overlay

CALL_S: Final = 10.0
"""The longest wait for the owner, seconds."""


async def ask_owner(overlay: Overlay, directory: Directory, stored: StoredAssignment) -> Confirmed:
    """Ask the owner for the placement of a task. If the owner is away, its successor is asked: the
    peer with a higher term, in the catalog, under the name of its participant.

    Raises:
        MedusaError: neither can be reached.
    """
    owner = stored.owner_id
    try:
        return await _ask(overlay, owner, stored)
    except UnavailableError:
        successor = await directory.successor(stored.assignment.task, owner)
        if successor is None:
            raise
        if successor == overlay.identity.peer_id:  # which computes it as its own
            return Confirmed(PlacementStatus.RELEASED)
        return await _ask(overlay, successor, stored)


async def _ask(overlay: Overlay, owner: PeerId, stored: StoredAssignment) -> Confirmed:
    connection = await overlay.connect(owner)
    return await connection.call("task.confirm", Confirm(*stored.key), Confirmed, timeout_s=CALL_S)
