"""The tokens of a home: the owner's in client.token, records of the others in tokens.json."""

from __future__ import annotations

import fcntl
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from medusa.overlay.client_tokens import OWNER, ClientToken, Scope
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
)
from medusa.overlay.events import Events
from medusa.overlay.files import load_json, save_json, storing, write_secret
from medusa.tools.home.folder import TOKEN_BYTES, Home

MAX_TOKENS: Final = 256
"""Tokens of a peer, revoked ones included: every connecting client is compared with each."""

MAX_TOKEN_NAME: Final = 64
"""Characters of a token's name, which appears in lists and events."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class TokenFile:
    """The tokens of a home, for commands that change them; its running peer reads the files
    again."""

    home: Home

    def tokens(self) -> tuple[ClientToken, ...]:
        """All tokens, the owner's first.

        Raises:
            NotFoundError, NotAuthorisedError, DamagedError: one of the two files is missing,
                readable by others, or damaged.
        """
        return (ClientToken.of(OWNER, self.home.client_token()), *self._named())

    def add(
        self, name: str, scopes: frozenset[Scope], expires_at: float | None, now: float
    ) -> bytes:
        """Make a token; returns it, for the only time.

        Raises:
            InvalidInputError: no name or scopes, or it would have expired already.
            ConflictError: there is one of that name.
            BusyError: there are as many as may be.
        """
        _check_name(name)
        if not scopes:
            raise InvalidInputError("a token needs a scope: read, post, define or operate")
        if expires_at is not None and expires_at <= now:
            raise InvalidInputError("the token would expire at once: say a longer time")
        with self._changing() as kept:
            before = kept.get(name)
            if before is not None and before.refusal(now) is None:
                raise ConflictError(
                    f"there is a client token {name!a}: rotate or revoke it, or use another name"
                )
            if before is None and len(kept) >= MAX_TOKENS:
                raise BusyError(
                    f"{self.home.tokens}: it has {MAX_TOKENS} tokens, the most: "
                    "give one that was revoked its name again, or remove the file to revoke all"
                )
            token = _random()
            kept[name] = ClientToken.of(name, token, scopes, now, expires_at)
        return token

    def rotate(self, name: str, now: float) -> bytes:
        """Give a token another secret; clients with the old one are disconnected. The owner's new
        one is in client.token.

        Raises:
            NotFoundError: there is no such token, or it no longer counts.
        """
        token = _random()
        if name == OWNER:
            write_secret(self.home.token, token)
            return token
        with self._changing() as kept:
            before = self._standing(kept, name, now)
            kept[name] = ClientToken.of(name, token, before.scopes, now, before.expires_at)
        return token

    def revoke(self, name: str, now: float) -> None:
        """Revoke a token; clients with it are disconnected, and no longer admitted.

        Raises:
            NotFoundError: there is no such token, or it no longer counts.
            InvalidInputError: it is the owner's.
        """
        if name == OWNER:
            raise InvalidInputError(
                "the owner's token cannot be revoked: `medusa-peer token rotate owner` replaces it"
            )
        with self._changing() as kept:
            before = self._standing(kept, name, now)
            kept[name] = msgspec.structs.replace(before, revoked_at=now)

    def _standing(self, kept: dict[str, ClientToken], name: str, now: float) -> ClientToken:
        token = kept.get(name)
        if token is None:
            raise NotFoundError(
                f"no client token {name[:MAX_TOKEN_NAME]!a} in {self.home.folder}: "
                "`medusa-peer token list` shows those that there are"
            )
        if (reason := token.refusal(now)) is not None:
            raise NotFoundError(f"{reason}: `medusa-peer token add` makes another")
        return token

    @contextmanager
    def _changing(self) -> Iterator[dict[str, ClientToken]]:
        """The named tokens, written back when the block ends; one command at a time."""
        lock = self.home.folder / "tokens.lock"
        with storing(lock):
            file = lock.open("w")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            kept = {token.name: token for token in self._named()}
            yield kept
            save_json(self.home.tokens, tuple(kept.values()), secret=True)

    def _named(self) -> tuple[ClientToken, ...]:
        path = self.home.tokens
        mend = "restore it from a copy, or remove it, which revokes all tokens but the owner's"
        try:
            return load_json(path, tuple[ClientToken, ...], mend=mend, secret=True)
        except NotFoundError:
            return ()


class LiveTokens:
    """The present tokens of a home: its files are read again after changes.

    Args:
        events: gets errors about unreadable files. Until a file is readable again, its last content
            counts.

    Raises:
        As `TokenFile.tokens`, when it is made.
    """

    def __init__(self, home: Home, events: Events) -> None:
        self._file = TokenFile(home)
        self._events = events
        self._seen = self._state()
        self._tokens = self._file.tokens()

    def __call__(self) -> Sequence[ClientToken]:
        state = self._state()
        if state != self._seen:
            try:
                self._tokens = self._file.tokens()
            except MedusaError as error:
                self._events.note("error", f"keeps the client tokens that it knows: {error}")
            self._seen = state
        return self._tokens

    def _state(self) -> tuple[object, ...]:
        return tuple(_identity(path) for path in (self._file.home.token, self._file.home.tokens))


def _identity(path: Path) -> tuple[int, int, int, int] | None:
    """A value that changes whenever a file is written: by us with a rename, by a person in
    place."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_TOKEN_NAME or _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"token name {name[:MAX_TOKEN_NAME]!a}: 1 to {MAX_TOKEN_NAME} letters, digits, "
            "dots, hyphens and underscores"
        )
    if name == OWNER:
        raise ConflictError(f"{OWNER} is the token in client.token: use another name")


def _random() -> bytes:
    return secrets.token_hex(TOKEN_BYTES).encode()
