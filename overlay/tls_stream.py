"""An encrypted stream that reads many TLS records at a time.

* trio.SSLStream gives one record (16 KiB) per read, each with a pass through the scheduler. This
  stream moves half as much again per CPU second.
* trio.SSLStream does not send the alert when it refuses a certificate, so that the other side
  learns nothing but the end of the connection. This stream sends it.

Both are measured: docs/adr/0004-multiplexer.md. One task may read while another writes.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

READ_BYTES: Final = 256 * 2**10
"""Bytes asked of the socket at once: as many as a connection reads, encrypted."""

PIECE_BYTES: Final = 32 * 2**10
"""Bytes passed to OpenSSL at once, either way: its buffers never shrink, and a peer has a thousand
connections."""

RECORD_BYTES: Final = 16 * 2**10
"""Bytes in a TLS record at most, and so the most that one call of OpenSSL gives: it allocates what
it is asked for."""


@dataclass(slots=True)
class Traffic:
    """Bytes on the wire, TLS included: of one stream, or of all that share the counter."""

    sent: int = 0
    received: int = 0


class TlsStream(trio.abc.Stream):
    """TLS over a stream, by OpenSSL's memory buffers. Call `do_handshake` first.

    Args:
        traffic: where its bytes are counted.
    """

    def __init__(
        self,
        transport: trio.abc.Stream,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        traffic: Traffic | None = None,
    ) -> None:
        self._transport = transport
        self._traffic = Traffic() if traffic is None else traffic
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._received = memoryview(b"")
        self._encrypted: list[bytes] = []
        self._flushing = trio.Lock()
        self._fault: ssl.SSLError | None = None

    @property
    def protocol(self) -> str | None:
        """The ALPN protocol that both sides agreed on."""
        return self._tls.selected_alpn_protocol()

    @property
    def certificate(self) -> bytes:
        """The other side's certificate, DER; empty if it showed none."""
        return self._tls.getpeercert(binary_form=True) or b""

    async def do_handshake(self) -> None:
        """
        Raises:
            trio.BrokenResourceError: the handshake failed; the cause is OpenSSL's error, if there
            is one.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError as error:
                with suppress(trio.BrokenResourceError):
                    await self._flush()  # the alert that has the reason
                raise trio.BrokenResourceError from error
            else:
                await self._flush()
                return

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Up to `max_bytes` available bytes (default READ_BYTES); b"" at the end of the transport.

        That end proves nothing: an attacker on the way can cause it, and this stream announces no
        end itself. The protocol above must mark its own ends.

        Raises:
            trio.BrokenResourceError: the connection broke, or the bytes are not TLS.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        data = self._decrypted(max_bytes or READ_BYTES)
        if data is not None:
            await trio.lowlevel.cancel_shielded_checkpoint()
        while data is None:
            await self._fill()
            data = self._decrypted(max_bytes or READ_BYTES)
        if self._outgoing.pending:  # TLS itself has something to send: new keys, or a farewell
            with suppress(trio.BrokenResourceError):  # the bytes read so far count all the same
                await self._flush()
        return data

    def _decrypted(self, most: int) -> bytes | None:
        """All complete records, or None if there is none."""
        parts: list[bytes] = []
        try:
            while most > 0 and self._fault is None:
                try:
                    part = self._tls.read(min(most, RECORD_BYTES))
                except ssl.SSLWantReadError:
                    if not self._received:
                        break
                    self._feed()
                    continue
                parts.append(part)
                most -= len(part)
                if not part:
                    break
        except ssl.SSLError as error:
            # raised after the bytes before it are read; OpenSSL reports it once
            self._fault = error
        if parts:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if isinstance(self._fault, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            return b""
        if self._fault is not None:
            raise trio.BrokenResourceError from self._fault
        return None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send. If cancelled, the stream is unusable.

        Raises:
            trio.BrokenResourceError: the connection broke.
        """
        if not data:
            await trio.lowlevel.checkpoint()
            return
        view = memoryview(data)
        try:
            for start in range(0, len(view), PIECE_BYTES):
                self._tls.write(view[start : start + PIECE_BYTES])
                self._encrypted.append(self._outgoing.read())
        except ssl.SSLError as error:
            raise trio.BrokenResourceError from error
        del data, view  # the encrypted bytes take their place
        await self._flush()

    async def wait_send_all_might_not_block(self) -> None:
        await self._transport.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the transport; the protocol above marks the end of the data."""
        await self._transport.aclose()

    async def _flush(self) -> None:
        await self._begin_flush()
        try:
            data = b"".join([*self._encrypted, self._outgoing.read()])
            self._encrypted.clear()
            if data:
                await self._transport.send_all(data)
                self._traffic.sent += len(data)
        finally:
            self._flushing.release()

    async def _begin_flush(self) -> None:
        """Take the lock: records must leave in the order in which they were made."""
        try:
            self._flushing.acquire_nowait()  # `send_all` is a checkpoint; two would cost a tenth
        except trio.WouldBlock:
            await self._flushing.acquire()

    async def _fill(self) -> None:
        """Pass on received bytes, or the end of the transport."""
        if not self._received:
            assert isinstance(self._transport, trio.abc.ReceiveStream)
            data = await self._transport.receive_some(READ_BYTES)
            self._traffic.received += len(data)
            if not data:
                self._incoming.write_eof()
                return
            self._received = memoryview(data)
        self._feed()

    def _feed(self) -> None:
        piece, rest = self._received[:PIECE_BYTES], self._received[PIECE_BYTES:]
        self._incoming.write(piece)
        self._received = rest or memoryview(b"")  # an empty view keeps all of what was read
