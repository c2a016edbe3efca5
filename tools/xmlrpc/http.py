"""HTTP/1.1 over a stream, for both sides of XML-RPC; h11 reads and writes the protocol.

A side that breaks the protocol, or a limit, ends its own connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import h11
import trio

from medusa.overlay.addresses import Address, shown
from medusa.overlay.errors import BrokenError, DecodeError, UnavailableError, printable

MAX_HEAD_BYTES: Final = 16 * 2**10
"""Bytes of a request's or an answer's first lines: a token takes one."""

XML: Final = "text/xml"

READ_BYTES: Final = 64 * 2**10
"""Bytes taken from the stream at once, at most."""


class HttpError(Exception):
    """A request that gets no answer of XML-RPC's.

    Attributes:
        status: the answer's status.
    """

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Head:
    """The first lines of a request. headers: by their names in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]


class HttpServer:
    """The answering side of one connection: requests one after the other."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def head(self) -> Head | None:
        """The head of the next request; None: the other side has gone.

        Raises:
            HttpError: the bytes are no HTTP/1.1.
            BrokenError: the connection broke.
        """
        event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        return Head(event.method.decode(), event.target.decode(), _texts(event.headers))

    async def body(self, limit: int, *, keep: bool = True) -> bytes:
        """The body of the request.

        Args:
            limit: most bytes. keep: false: the bytes are dropped.

        Raises:
            HttpError: the body is longer, or the bytes are no HTTP/1.1.
            BrokenError: the connection broke.
        """
        parts: list[bytes] = []
        size = 0
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise BrokenError("the connection ended inside a request")
            size += len(event.data)
            if size > limit:
                raise HttpError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request of more than {limit} bytes"
                )
            if keep:
                parts.append(bytes(event.data))
        return b"".join(parts)

    async def answer(self, status: HTTPStatus, kind: str, body: bytes) -> bool:
        """Answer the request; false: the connection is over.

        Raises:
            BrokenError: the connection broke.
        """
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ]
        if self._http.their_state is not h11.DONE:  # the rest of the request is never read
            headers.append(("Connection", "close"))
        response = h11.Response(status_code=status, headers=headers, reason=status.phrase)
        await _sent(self._stream, _written(self._http, response, body))
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def refuse(self, error: HttpError) -> None:
        """Answer with an error, if the other side can still be answered."""
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await self.answer(error.status, "text/plain; charset=utf-8", f"{error}\n".encode())

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise HttpError(HTTPStatus(error.error_status_hint), _said(error)) from None
            if event is not h11.NEED_DATA:
                assert not isinstance(event, type) or event is h11.PAUSED
                return event
            if self._http.they_are_waiting_for_100_continue:
                leave = h11.InformationalResponse(status_code=100, headers=[])
                await _sent(self._stream, self._http.send(leave) or b"")
            self._http.receive_data(await _received(self._stream))


async def post(
    stream: trio.abc.Stream, address: Address, path: str, body: bytes, limit: int
) -> bytes:
    """Post a document over a fresh connection; the body of the answer.

    Args:
        limit: most bytes of it.

    Raises:
        UnavailableError: the connection broke, or the answer's status is no 200.
        DecodeError: the answer is no HTTP/1.1, or longer.
    """
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    headers = [
        ("Host", shown(address)),
        ("Content-Type", XML),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    request = h11.Request(method="POST", target=path, headers=headers)
    await _sent(stream, _written(http, request, body))
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            told = http.next_event()
        except h11.RemoteProtocolError as error:
            raise DecodeError(f"{shown(address)}: {_said(error)}") from None
        match told:
            case h11.NEED_DATA:
                http.receive_data(await _received(stream))
            case h11.Response(status_code=status) if status != HTTPStatus.OK:
                raise UnavailableError(f"{shown(address)} answers with HTTP status {status}")
            case h11.Data(data=data):
                size += len(data)
                if size > limit:
                    raise DecodeError(f"{shown(address)}: an answer of more than {limit} bytes")
                parts.append(bytes(data))
            case h11.EndOfMessage():
                return b"".join(parts)
            case h11.ConnectionClosed() | h11.PAUSED:
                raise BrokenError(f"{shown(address)} ended the connection inside its answer")
            case _:
                pass  # the head of the answer


def _written(http: h11.Connection, head: h11.Request | h11.Response, body: bytes) -> bytes:
    """The bytes of a whole message."""
    events = (head, h11.Data(data=body), h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)


async def _received(stream: trio.abc.Stream) -> bytes:
    try:
        return bytes(await stream.receive_some(READ_BYTES))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise BrokenError("the connection broke") from None


async def _sent(stream: trio.abc.Stream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise BrokenError("the connection broke") from None


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in headers}


def _said(error: h11.RemoteProtocolError) -> str:
    return f"no HTTP/1.1: {printable(str(error))[:200]}"
