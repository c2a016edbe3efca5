"""Where a client finds its peer, and the others of its participant that do as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography import x509

from overlay.clients import open_client
from overlay.connection import Connection
from overlay.errors import MedusaError, UnavailableError
from overlay.identity import read_certificate
from tools.addresses import Address
from tools.home import Home
from tools.link import Dial


@dataclass(frozen=True)
class Endpoint:
    """Where a peer takes its participant's clients, and how they prove themselves to each other."""

    address: Address
    participant: str
    root_certificate: x509.Certificate
    token: bytes

    @staticmethod
    def of(home: Home) -> Endpoint:
        """The daemon of that home, as it runs now.

        Raises:
            MedusaError: no home, no daemon, or a secret that others can read.
        """
        running = home.running()
        return Endpoint(
            running.client,
            running.participant,
            read_certificate(home.root_certificate),
            home.client_token(),
        )


def dial_to(
    home: Path | str | None,
    endpoint: Endpoint | None,
    also: Sequence[Path | str | Endpoint] = (),
) -> Dial:
    """Dials the peer of a home, wherever it answers by then, or of an endpoint; the first of them
    that answers."""
    places = (_where(home if endpoint is None else endpoint), *map(_where, also))
    return partial(_dial_first, places)


def _where(place: Path | str | Endpoint | None) -> Callable[[], Endpoint]:
    if isinstance(place, Endpoint):
        return lambda: place
    return partial(Endpoint.of, Home.locate(place))


@asynccontextmanager
async def _dial_first(places: Sequence[Callable[[], Endpoint]]) -> AsyncIterator[Connection]:
    async with AsyncExitStack() as open_connection:
        for number, where in enumerate(places, 1):
            try:
                connection = await open_connection.enter_async_context(_dial(where))
            except UnavailableError:
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
        # The connection's nursery wraps what went wrong while it was made.
        if len(group.exceptions) == 1 and isinstance(group.exceptions[0], MedusaError):
            raise group.exceptions[0] from None
        raise
