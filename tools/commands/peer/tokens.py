"""Makes, lists, rotates and revokes the client tokens of a home."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from rich.table import Table

from medusa.overlay.client_tokens import OWNER, ClientToken, Scope, in_words
from medusa.overlay.errors import InvalidInputError, MedusaError
from medusa.overlay.identity import Identity
from medusa.tools.client.at_prompt import ask_daemon
from medusa.tools.client.calls import ClientCalls
from medusa.tools.client.times import show_clock
from medusa.tools.commands.peer.contract_terms import parse_duration
from medusa.tools.commands.plain_tables import lines_table
from medusa.tools.home.addresses import Address, dialable, parse_address
from medusa.tools.home.config import load_client
from medusa.tools.home.folder import Home
from medusa.tools.home.token_file import TokenFile
from medusa.tools.home.token_text import TokenText
from medusa.tools.monitor.tables import add_row


@dataclass(frozen=True)
class Line:
    """A token in the list. connected: number of clients that show it now; None: not known."""

    token: ClientToken
    state: str
    connected: int | None

    def as_json(self) -> dict[str, object]:
        token = self.token
        return {
            "name": token.name,
            "scopes": in_words(token.scopes).split(","),
            "made_at": token.made_at or None,
            "expires_at": token.expires_at,
            "revoked_at": token.revoked_at,
            "state": self.state,
            "connected": self.connected,
        }


def add(home: Home, name: str, scopes: str, expires: str | None, address: str | None) -> str:
    """Make a token; returns the text for its holder.

    Args:
        scopes: separated by commas. expires: a duration from now.
        address: the address at which the peer serves clients.

    Raises:
        InvalidInputError: a malformed name, scope, duration or address.
        ConflictError, BusyError: see `TokenFile.add`.
    """
    home.require()
    now = time.time()
    until = None if expires is None else now + parse_duration(expires)
    where = _address(home, address)
    secret = TokenFile(home).add(name, parse_scopes(scopes), until, now)
    return _text(home, secret, where)


def rotate(home: Home, name: str, address: str | None) -> str | None:
    """Give a token another secret; returns the text for its holder, None for the owner's.

    Raises:
        NotFoundError: there is no such token, or it no longer counts.
    """
    home.require()
    where = _address(home, address)
    secret = TokenFile(home).rotate(name, time.time())
    return None if name == OWNER else _text(home, secret, where)


def revoke(home: Home, name: str) -> None:
    """Revoke a token.

    Raises:
        NotFoundError: there is no such token, or it no longer counts.
        InvalidInputError: it is the owner's.
    """
    home.require()
    TokenFile(home).revoke(name, time.time())


def shown(home: Home) -> list[Line]:
    """The tokens of a home, with the number of clients that show each to its running peer."""
    home.require()
    now, counts = time.time(), _connected(home)
    return [
        Line(token, _state(token, now), None if counts is None else counts[token.name])
        for token in TokenFile(home).tokens()
    ]


def table(lines: list[Line]) -> Table:
    """The list as a table."""
    table = lines_table("name", "scopes", "made", "expires", "state", "connected")
    for line in lines:
        token = line.token
        add_row(
            table,
            token.name,
            in_words(token.scopes),
            show_clock(token.made_at, day=True) if token.made_at else "-",
            show_clock(token.expires_at, day=True) if token.expires_at else "never",
            line.state,
            "-" if line.connected is None else str(line.connected),
        )
    return table


def parse_scopes(text: str) -> frozenset[Scope]:
    """Parse scopes separated by commas.

    Raises:
        InvalidInputError: a word is no scope.
    """
    scopes = set()
    for word in text.split(","):
        try:
            scopes.add(Scope(word.strip()))
        except ValueError:
            known = ", ".join(Scope)
            raise InvalidInputError(f"scope {word[:40]!a}: expected some of {known}") from None
    return frozenset(scopes)


def _state(token: ClientToken, now: float) -> str:
    if token.revoked_at is not None:
        return f"revoked {show_clock(token.revoked_at, day=True)}"
    return "in force" if token.refusal(now) is None else "expired"


def _address(home: Home, given: str | None) -> Address | None:
    """The address for a token's holder; None if it changes with every start."""
    host, port = load_client(home).listen if given is None else parse_address(given)
    if given is not None and port == 0:
        raise InvalidInputError(f"address {given}: nobody can dial port 0")
    if port == 0:
        return None
    return dialable((host, port))


def _text(home: Home, secret: bytes, address: Address | None) -> str:
    identity = Identity.load(home.folder)
    root = identity.root_certificate
    return str(TokenText.of(identity.participant, root, secret, address))


def _connected(home: Home) -> Counter[str] | None:
    """The number of clients that show each token to the peer, without this command's own call."""
    if not home.is_locked():
        return None

    async def clients(client: ClientCalls) -> Counter[str]:
        (peer,) = (await client.status(federation=False)).peers
        counts = Counter(client.token for client in peer.clients)
        counts[OWNER] -= 1
        return counts

    try:
        return ask_daemon(home, clients)
    except MedusaError:
        return None
