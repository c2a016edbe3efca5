"""Signatures of claims and digests by the peers' own keys."""

from __future__ import annotations

from overlay.errors import UntrustedError
from overlay.peers import PeerTable
from overlay.signing import sign, verify


class PeerKeys:
    """Ed25519, for this federation only; see `overlay.gossip.claims.Keys`."""

    def __init__(self, peers: PeerTable) -> None:
        self._peers = peers
        self._suffix = " of " + peers.federation

    def sign(self, domain: str, payload: bytes) -> bytes:
        return sign(self._peers.identity.private_key, domain + self._suffix, payload)

    def verify(self, author: bytes, domain: str, payload: bytes, signature: bytes) -> bool:
        record = self._peers.get(author)
        if record is None:
            return False
        try:
            verify(record.public_key, domain + self._suffix, payload, signature)
        except UntrustedError:
            return False
        return True
