"""Whose peer that is, and by which key it signs: as settlements and contracts ask for it."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from overlay.certificates import public_key_of
from overlay.errors import UntrustedError
from overlay.node import Overlay
from overlay.peers import PeerRecord


class Members:
    """The peers that are members now."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def key_of(self, peer: bytes) -> Ed25519PublicKey:
        """
        Raises:
            UntrustedError: there is no such member.
        """
        return public_key_of(self._record(peer).certificate)

    def participant_of(self, peer: bytes) -> str:
        """
        Raises:
            UntrustedError: there is no such member.
        """
        return self._record(peer).participant

    def _record(self, peer: bytes) -> PeerRecord:
        record = self._overlay.peers.get(peer)
        if record is None:
            raise UntrustedError(f"peer {peer.hex()} is unknown or revoked")
        return record
