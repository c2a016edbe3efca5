"""What a dishonest member says to others, and an honest one that invites."""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contracts.desk import Effect, Send
from contracts.payer import Payer
from contracts.receipts import Proposal, countersign
from overlay.certificates import der
from overlay.errors import MedusaError
from overlay.events import wall_clock
from overlay.exchange import PUSH, Push, Pushed
from overlay.identity import Root, parse_peer_id
from overlay.node import Overlay
from overlay.statements import Admission, digest_of, seal_statement
from tools.daemon.peer import Peer
from tools.market.settler import Settler

CALL_S = 5.0
"""Patience with the one that is lied to, seconds."""

NOBODYS_KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(32))


async def forge_admission(liar: Overlay, victim: str, participant: str) -> None:
    """Tell a peer (hex) that the founder has admitted somebody, under a signature that is not the
    founder's."""
    root = Root.create(participant, wall_clock())
    charter = digest_of(liar.membership.charter)
    admission = Admission(
        liar.membership.federation, participant, der(root.certificate), charter, wall_clock()
    )
    statement = seal_statement(root.private_key, admission)
    try:
        connection = await liar.connect(parse_peer_id(victim))
        await connection.call(PUSH, Push((statement,), ()), Pushed, timeout_s=CALL_S)
    except MedusaError:
        return  # nobody there to be lied to, or it hung up


def admit(sponsor: Overlay, root: Root, participant: str) -> None:
    """Admit a participant of that name, and let the others hear of it."""
    newcomer = Root.create(participant, wall_clock())
    statement = sponsor.membership.admit(root, newcomer.certificate, wall_clock())
    sponsor.learn((statement,))


def cheat(peer: Peer | None) -> None:
    """From now on it pays what it is billed by a signature that is not its own, and writes nothing
    down."""

    def proposed(payee: bytes, proposal: Proposal, _: float) -> list[Effect]:
        return [Send(payee, countersign(NOBODYS_KEY, proposal))]

    if peer is not None:
        vars(_payer(peer))["proposed"] = proposed


def honest(peer: Peer | None) -> None:
    """It pays as it should again."""
    if peer is not None:
        vars(_payer(peer)).pop("proposed", None)


def _payer(peer: Peer) -> Payer:
    settler: Settler = peer.engine.mover.agree._decide.__self__  # type: ignore[attr-defined]
    return settler._settlement._payer
