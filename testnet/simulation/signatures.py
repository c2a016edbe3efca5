"""Ed25519 without doing the same work twice: what was signed here need not be verified here.

In a simulation signers and verifiers share a process, and to verify what peers have signed was a
sixth of what a seed costs. That a signature which a key has made of a message verifies is a
property of Ed25519, so remembering it can change no outcome. Everything else is verified: what was
forged, altered, or put under another key or purpose is never found among what was made.
"""

from __future__ import annotations

from typing import Any, Final
from unittest import mock

from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from overlay import signing

MOST_REMEMBERED: Final = 20_000
"""Signatures: more than a seed makes while what they are on still travels; some 10 MB."""


class Signatures:
    """Signs and verifies.

    Attributes:
        verified: how many signatures had to be verified.
    """

    def __init__(self) -> None:
        self.verified = 0
        self._made: dict[bytes, tuple[bytes, bytes]] = {}
        self._publics: dict[Ed25519PrivateKey, bytes] = {}

    def patches(self) -> list[Any]:
        return [
            mock.patch.object(signing, "_sign", self.sign),
            mock.patch.object(signing, "_verify", self.verify),
        ]

    def sign(self, key: Ed25519PrivateKey, message: bytes) -> bytes:
        public = self._publics.get(key)
        if public is None:
            public = self._publics[key] = key.public_key().public_bytes_raw()
        signature = key.sign(message)
        if len(self._made) >= MOST_REMEMBERED:
            del self._made[next(iter(self._made))]
        self._made[signature] = public, message
        return signature

    def verify(self, public: Ed25519PublicKey, signature: bytes, message: bytes) -> None:
        """
        Raises:
            InvalidSignature: that key did not sign this message.
        """
        if self._made.get(signature) == (public.public_bytes_raw(), message):
            return
        self.verified += 1
        public.verify(signature, message)
