"""The addresses and credentials of a client's peer, and of its participant's other peers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cryptography import x509

from medusa.overlay.clients import open_client
from medusa.overlay.connection import Connection
from medusa.overlay.errors import (
    BusyError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.identity import read_certificate
from medusa.tools.client.link import Dial
from medusa.tools.home.addresses import Address
from medusa.tools.home.folder import Home
from medusa.tools.home.token_text import PREFIX, parse_token

TOKEN_VARIABLE: Final = "MEDUSA_TOKEN"  # noqa: S105 - its name, not the token


@dataclass(frozen=True)
class Endpoint:
    """The address at which a peer serves its participant's clients, and the credentials of both
    sides."""

    address: Address
    participant: str
    root_certificate: x509.Certificate
    token: bytes

    @staticmethod
    def of(home: Home, token: str | None = None) -> Endpoint:
        """The endpoint of the daemon of that home, as it runs now.

        Args:
            token: the token that clients show, instead of the owner's. A token that `medusa-peer
                token add` printed with an address needs no home.

        Raises:
            InvalidInputError: the token is damaged.
            MedusaError: no home, no daemon, or a secret that others can read.
        """
        secret = None if token is None else token.strip().encode(errors="replace")
        if token is not None and token.strip().startswith(PREFIX):
            said = parse_token(token)
            if said.address is not None:
                root = said.root_certificate()
                return Endpoint(said.address, said.participant, root, said.secret)
            secret = said.secret
            if not home.exists:
                raise NotFoundError(
                    f"the token of {said.participant} does not say where its peer is, and no peer "
                    f"lives in {home.folder}: say that peer's home with --home, or have "
                    f"{said.participant} put an address into the token: "
                    "`medusa-peer token rotate NAME --address HOST:PORT`"
                )
        running = home.running()
        return Endpoint(
            running.client,
            running.participant,
            read_certificate(home.root_certificate),
            home.client_token() if secret is None else secret,
        )


def given_token(
    token: str | None = None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """The token that a client was given, else $MEDUSA_TOKEN. None if there is neither: then the
    client shows the owner's, from the peer's home.

    Raises:
        InvalidInputError: the token is empty, as after a command that failed to print one: the
            owner's, with every scope, must not take its place.
    """
    what = "token" if token is not None else f"${TOKEN_VARIABLE}"
    given = environment.get(TOKEN_VARIABLE) if token is None else token
    if given is not None and not given.strip():
        raise InvalidInputError(
            f"{what} is empty: give a token that `medusa-peer token add` has printed, or none at "
            "all to show the owner's"
        )
    return given


def dial_to(
    home: Path | str | None,
    endpoint: Endpoint | None,
    also: Sequence[Path | str | Endpoint] = (),
    token: str | None = None,
) -> Dial:
    """A function that dials the first peer that answers: the peer of a home, at its present
    address, or of an endpoint, then the others. token: shown to the peers of homes, see
    `Endpoint.of`."""
    first = home if endpoint is None else endpoint
    return partial(_dial_first, tuple(_where(place, token) for place in (first, *also)))


def _where(place: Path | str | Endpoint | None, token: str | None) -> Callable[[], Endpoint]:
    if isinstance(place, Endpoint):
        return lambda: place
    return partial(Endpoint.of, Home.locate(place), token)


@asynccontextmanager
async def _dial_first(places: Sequence[Callable[[], Endpoint]]) -> AsyncIterator[Connection]:
    async with AsyncExitStack() as open_connection:
        for number, where in enumerate(places, 1):
            try:
                connection = await open_connection.enter_async_context(_dial(where))
            except (UnavailableError, BusyError):
                if number == len(places):
                    raise
            else:
                yield connection
                return


@asynccontextmanager
async def _dial(where: Callable[[], Endpoint]) -> AsyncIterator[Connection]:
    endpoint = where()
    try:
        async with open_client(
            endpoint.address, endpoint.participant, endpoint.root_certificate, endpoint.token
        ) as connection:
            yield connection
    except ExceptionGroup as group:
        # the connection's nursery wraps an error of dialling
        if len(group.exceptions) == 1 and isinstance(group.exceptions[0], MedusaError):
            raise group.exceptions[0] from None
        raise
