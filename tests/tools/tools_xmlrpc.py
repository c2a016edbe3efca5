"""A peer of a cluster that serves XML-RPC, and stock clients of it: `xmlrpc.client` alone."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, make_stream

from medusa.overlay.client_tokens import Scope
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.home.addresses import Address, format_address
from medusa.tools.home.token_file import TokenFile

ANY_PORT = '[xmlrpc]\nlisten = "127.0.0.1:0"\n'


async def settled(
    cluster: Cluster, participant: str = "mit.edu", settings: str = ANY_PORT
) -> Place:
    """Start a peer whose settings turn XML-RPC on."""
    place = await cluster.settle(participant)
    configure(place, settings)
    await cluster.restart(place)
    return place


async def native_and_stock(
    cluster: Cluster, stock: OpenStock
) -> tuple[AsyncMedusaClient, Stock, str]:
    """Start mit.edu with XML-RPC; return a client of ours, a stock client, and a stream."""
    mit = await settled(cluster)
    native = await cluster.client(mit)
    return native, stock(mit), await make_stream(native, mit, "s")


def configure(place: Place, settings: str) -> None:
    place.home.config.write_text(settings)


def address_of(place: Place) -> Address:
    address = place.up.running.xmlrpc
    assert address is not None
    return address


def url(place: Place, token: str | None = None) -> str:
    token = place.home.client_token().decode() if token is None else token
    return f"https://{token}@{format_address(address_of(place))}/"


def trusting(place: Place) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(place.home.root_certificate))
    context.check_hostname = False
    return context


def token_for(place: Place, *scopes: Scope) -> str:
    name = "-".join(scopes)
    return TokenFile(place.home).add(name, frozenset(scopes), None, time.time()).decode()


class Stock:
    """An `xmlrpc.client.ServerProxy` that makes each call in a thread."""

    def __init__(self, place: Place, token: str | None = None, **options: Any) -> None:
        options = {"use_builtin_types": True, **options}
        self.proxy = ServerProxy(url(place, token), context=trusting(place), **options)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*arguments: Any) -> Any:
            with trio.fail_after(DEADLINE_S):
                return await trio.to_thread.run_sync(
                    partial(getattr(self.proxy, method), *arguments)
                )

        return call

    async def refused(self, method: str, *arguments: Any) -> tuple[int, str]:
        """Return the number and the text of the fault that a call returns."""
        with pytest.raises(Fault) as raised:
            await getattr(self, method)(*arguments)
        return raised.value.faultCode, raised.value.faultString


def posted(
    place: Place, body: bytes, headers: dict[str, str] | None = None, path: str = "/"
) -> tuple[int, bytes]:
    """Send a request of our own making; return the status and the body of the answer."""
    connection = http.client.HTTPSConnection(*address_of(place), context=trusting(place))
    try:
        connection.request("POST", path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def bearer(place: Place, token: str | None = None) -> dict[str, str]:
    token = place.home.client_token().decode() if token is None else token
    return {"Authorization": f"Bearer {token}", "Content-Type": "text/xml"}


OpenStock = Callable[..., Stock]


@contextmanager
def stock_clients() -> Iterator[OpenStock]:
    """Make clients, which are closed after the block."""
    made: list[Stock] = []

    def make(place: Place, token: str | None = None, **options: Any) -> Stock:
        made.append(Stock(place, token, **options))
        return made[-1]

    yield make
    for each in made:
        each.proxy("close")()
