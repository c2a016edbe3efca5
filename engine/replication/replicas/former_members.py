"""Former members of a query: peers that may not know that they have no part in it any more.

While the query stays as it is they do no harm: on the other side of a split such a peer computes
the same (ADR 8). Before the query is modified each of them must have let go of it (ADR 13).
"""

from __future__ import annotations

from engine.objects.schema import BEGINNING
from engine.replication.queries import QueryHost
from engine.replication.query_copy import QueryCopy
from engine.replication.replicas.asking import dismiss
from overlay.errors import MedusaError, UnavailableError
from overlay.identity import parse_peer_id
from overlay.names import PeerId


class FormerMembers:
    """The former members of the queries whose primary this peer is."""

    def __init__(self, queries: QueryHost) -> None:
        self._overlay = queries.shop.overlay
        self._queries = queries
        self._parted_s = queries.shop.config.timing.parted_s

    def part_from(self, running: QueryCopy, peer: PeerId) -> None:
        """Write down that a peer may take itself for the secondary, now or later."""
        parted = running.stored.parted_from(peer)
        if parted != running.stored.parted:
            self._queries.write(running, parted=parted)

    async def settle(self, running: QueryCopy, *, alone: bool) -> dict[str, int]:
        """Tell all former members to let go of the query, and wait for their answers. The caller
        then writes down that they did. The secondary is no former member.

        Args:
            alone: those that cannot be told are gone for good, as the user says.

        Returns:
            by stream, the boundary up to which they have given it out, microseconds.

        Raises:
            UnavailableError: one cannot be told, or may still give out results.
        """
        given: dict[str, int] = {}
        left: list[PeerId] = []
        for peer in map(parse_peer_id, running.stored.parted):
            try:
                theirs = await self._dismiss(running, peer)
            except MedusaError:
                left.append(peer)
                continue
            for stream, boundary in theirs.items():
                given[stream] = max(given.get(stream, BEGINNING), boundary)
        if left and not alone:
            raise UnavailableError(
                f"{running.name}: {_listed(left)} had a part in it and cannot be reached; on the "
                "other side of a split it may go on with the query as it is. Try again when it "
                "is back; or, if it is gone for good, with --alone"
            )
        if left and (wait_s := running.wait_s(self._parted_s)) > 0:
            raise UnavailableError(
                f"{running.name}: a peer that stood by for it may still give out results; "
                f"try again in {wait_s + 1:.0f} s"
            )
        return given

    async def _dismiss(self, running: QueryCopy, peer: PeerId) -> dict[str, int]:
        """Raises: MedusaError: it cannot be told, or has the query all the same."""
        if self._overlay.gossip.health(peer).gone:
            raise UnavailableError("it is gone")
        return (await dismiss(self._overlay, peer, running.name, running.stored.term.number)).given


def _listed(peers: list[PeerId]) -> str:
    return ", ".join(peer.hex()[:8] for peer in peers[:4])
