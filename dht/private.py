"""Private objects: only some participants may have them, and their records show only the name and
the owner.

* The record has the hash and the size of the body. The body is padded to whole kibibytes, and has a
  salt that only its publisher can make: no peer can guess an object and compare.
* Only peers of the owner send the body, and only to participants that may have the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from medusa.dht.records import MAX_BODY_BYTES, digest_of
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError, NotAuthorisedError
from medusa.overlay.signing import sign

T = TypeVar("T")

BLOCK_BYTES: Final = 1024
"""Bodies are padded to multiples of this, so that none fits into a record."""

DOMAIN: Final = "salt of a private object"

MARK: Final = "private"
SALT: Final = "salt"

_HEAD_BYTES: Final = 16
"""The mark is within this many first bytes of a body: a public body need not be decoded."""


def sealed(kind: str, body: bytes, key: Ed25519PrivateKey) -> bytes:
    """The body of a private object; equal arguments give equal bodies.

    Args:
        kind: the label of the object's kind. body: an encoded struct. key: the private key of the
            publisher.
    """
    fields = decode(body, dict[str, msgspec.Raw], limit=MAX_BODY_BYTES, what=kind)
    salt = sign(key, DOMAIN, body)
    marked = {MARK: kind, **fields}
    short = -len(encode({**marked, SALT: salt + bytes(BLOCK_BYTES)})) % BLOCK_BYTES
    return encode({**marked, SALT: salt + bytes(BLOCK_BYTES + short)})


def kind_of(body: bytes) -> str:
    """The label of a private object's kind; "" for a public object.

    Raises:
        DecodeError: the mark is malformed.
    """
    if MARK.encode() not in body[:_HEAD_BYTES]:
        return ""
    return decode(body, _Marked, limit=MAX_BODY_BYTES, what="body").private


class _Marked(msgspec.Struct):
    private: str


class Guards:
    """Decides which participants may have the stored bodies. participant: ours."""

    def __init__(self, participant: str) -> None:
        self._participant = participant
        self._checks: dict[str, Callable[[bytes, str], bool]] = {}

    def set(self, kind: str, type_: type[T], may_have: Callable[[T, str], bool]) -> None:
        """Set the function that decides for a kind."""

        def check(body: bytes, participant: str) -> bool:
            value = decode(body, type_, limit=MAX_BODY_BYTES, what=kind)
            return may_have(value, participant)

        self._checks[kind] = check

    def check(self, body: bytes, participant: str) -> None:
        """
        Raises:
            NotAuthorisedError: the body is not for that participant.
        """
        if participant != self._participant and not self._may_have(body, participant):
            raise NotAuthorisedError(f"body {digest_of(body).hex()} is not for {participant}")

    def _may_have(self, body: bytes, participant: str) -> bool:
        try:
            kind = kind_of(body)
            return not kind or (kind in self._checks and self._checks[kind](body, participant))
        except DecodeError:  # another peer's malformed object harms only that peer
            return False
