"""Ed25519 signatures over bytes, each for a stated purpose (domain)."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from msgspec import Struct

from medusa.overlay.errors import UntrustedError


class Signed(Struct, frozen=True, array_like=True):
    """Bytes and an Ed25519 signature over them; the context knows the signer and the purpose."""

    payload: bytes
    signature: bytes


def sign(key: Ed25519PrivateKey, domain: str, payload: bytes) -> bytes:
    """The signature (64 bytes) of `payload` for the purpose `domain`.

    The domain is signed too: a signature for one purpose is invalid for another, even if the
    payload could be read as both.
    """
    return _sign(key, _message(domain, payload))


def verify(public: Ed25519PublicKey, domain: str, payload: bytes, signature: bytes) -> None:
    """
    Raises:
        UntrustedError: the holder of this key did not sign this payload for this domain.
    """
    try:
        _verify(public, signature, _message(domain, payload))
    except InvalidSignature:
        raise UntrustedError(f"bad signature on a {domain}") from None


def signed(key: Ed25519PrivateKey, domain: str, payload: bytes) -> Signed:
    """The payload together with its signature."""
    return Signed(payload, sign(key, domain, payload))


def _sign(key: Ed25519PrivateKey, message: bytes) -> bytes:
    return key.sign(message)


def _verify(public: Ed25519PublicKey, signature: bytes, message: bytes) -> None:
    public.verify(signature, message)


def _message(domain: str, payload: bytes) -> bytes:
    tag = domain.encode()
    return b"medusa\0" + len(tag).to_bytes(2, "big") + tag + payload
