"""Client tokens of a peer: each has a name, scopes and an expiry.

A client shows the hash of its token (the proof). The peer keeps the hash of the proof. So neither
the bytes on the wire nor those on the peer's disk let anyone in without the token.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from medusa.overlay.errors import NotAuthorisedError

PROOF_BYTES: Final = hashlib.sha256().digest_size
"""Bytes of a client's proof: a SHA-256. Its size is fixed, so a sender that is not yet
authenticated cannot make the peer reserve more memory."""

OWNER: Final = "owner"
"""The name of the token in client.token: the peer's owner has it, with every scope."""


class Scope(StrEnum):
    """A right that a token gives its holder."""

    READ = "read"
    """Subscribe, look up, list, ask for the status: calls that change nothing."""
    POST = "post"
    """Post tuples, revisions and boundaries."""
    DEFINE = "define"
    """Create, modify, start, stop and delete schemas, streams, queries and views."""
    OPERATE = "operate"
    """Move tasks, hand over contracts and statements."""


EVERY_SCOPE: Final = frozenset(Scope)


class ClientToken(Struct, frozen=True):
    """A peer's record of a token.

    Attributes:
        proof_hash: SHA-256 of the proof. Tokens are random, so it needs no salt.
        made_at, expires_at, revoked_at: seconds since the epoch; None: never.
    """

    name: str
    proof_hash: bytes
    scopes: frozenset[Scope]
    made_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None

    @staticmethod
    def of(
        name: str,
        token: bytes,
        scopes: frozenset[Scope] = EVERY_SCOPE,
        made_at: float = 0.0,
        expires_at: float | None = None,
    ) -> ClientToken:
        """The record of `token` that a peer keeps."""
        proof_hash = _sha256(proof_of(token))
        return ClientToken(name, proof_hash, scopes, made_at, expires_at)

    def refusal(self, now: float) -> str | None:
        """Why the token no longer admits a client; None while it does."""
        if self.revoked_at is not None:
            return f"client token {self.name!a} was revoked at {_shown(self.revoked_at)}"
        if self.expires_at is not None and now >= self.expires_at:
            return f"client token {self.name!a} expired at {_shown(self.expires_at)}"
        return None


def proof_of(token: bytes) -> bytes:
    """The proof that a client shows: SHA-256 of the token."""
    return _sha256(token)


def shown_by(proof: bytes, tokens: Sequence[ClientToken]) -> ClientToken | None:
    """The token that belongs to a proof, found in a time that does not depend on which
    token it is."""
    shown, found = _sha256(proof), None
    for token in tokens:
        if hmac.compare_digest(shown, token.proof_hash):
            found = token
    return found


def in_words(scopes: frozenset[Scope]) -> str:
    """The scopes as a user writes them, in the order of `Scope`."""
    return ",".join(scope for scope in Scope if scope in scopes)


def check_scope(
    method: str, enough: frozenset[Scope] | None, name: str, scopes: frozenset[Scope]
) -> None:
    """
    Args:
        enough: the scopes of which one allows the method; None: it takes all.
        name, scopes: name and scopes of the token that a client has shown.

    Raises:
        NotAuthorisedError: it does not allow the method.
    """
    if enough is None and scopes < EVERY_SCOPE:
        need, ask = "every scope", in_words(EVERY_SCOPE)
    elif enough is not None and not scopes & enough:
        words = in_words(enough).split(",")
        need, ask = f"the scope {' or '.join(words)}", words[0]
    else:
        return
    raise NotAuthorisedError(
        f"{method} needs {need}, and client token {name!a} has {in_words(scopes)}: ask who runs "
        f"the peer for a token that has it (`medusa-peer token add NAME --scope {ask}`)"
    )


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _shown(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
