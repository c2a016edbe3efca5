"""TLS 1.3 for peers and clients: contexts, the handshake, and errors for its failures.

OpenSSL checks the chain and that the other side holds its key. Afterwards
`medusa.overlay.membership` checks the identity, the membership, and the dates: by this peer's time
(`medusa.overlay.clock`), not by the machine's clock.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from medusa.overlay.certificates import der, fingerprint
from medusa.overlay.errors import MedusaError, RefusedError, UnavailableError, UntrustedError
from medusa.overlay.identity import Identity
from medusa.overlay.tls_stream import TlsStream, Traffic

PEER_PROTOCOL: Final = "medusa-peer"
CLIENT_PROTOCOL: Final = "medusa-client"
"""ALPN names: a connection to the wrong port ends in the handshake."""

HTTP_PROTOCOL: Final = "http/1.1"
"""The ALPN name of HTTP (RFC 7301). Many of its clients name no protocol."""

NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name: dates are checked afterwards."""


class PeerContexts:
    """The contexts for connections between peers: both sides show a certificate."""

    def __init__(self, identity: Identity) -> None:
        self._contexts = {
            server_side: _context(PEER_PROTOCOL, server_side=server_side, identity=identity)
            for server_side in (False, True)
        }
        for context in self._contexts.values():
            context.verify_mode = ssl.CERT_REQUIRED
        self._trusted: set[bytes] = set()

    def renew(self, identity: Identity) -> None:
        """Show that certificate from the next handshake on; existing connections stay."""
        for context in self._contexts.values():
            show(context, identity)

    def context(self, roots: Iterable[x509.Certificate], *, server_side: bool) -> ssl.SSLContext:
        """The context for the next handshake. OpenSSL keeps every root that was once trusted
        here."""
        for root in roots:
            if fingerprint(root) not in self._trusted:
                self._trusted.add(fingerprint(root))
                # a certificate that OpenSSL cannot read must exclude only its owner
                with suppress(ssl.SSLError):
                    for context in self._contexts.values():
                        context.load_verify_locations(cadata=der(root))
        return self._contexts[server_side]


def listener_context(identity: Identity, protocol: str = CLIENT_PROTOCOL) -> ssl.SSLContext:
    """The context for a listener for clients: they prove themselves with a token, not a
    certificate."""
    return _context(protocol, server_side=True, identity=identity)


def client_context(root: x509.Certificate) -> ssl.SSLContext:
    """A client's context: it trusts the peers of one participant."""
    context = _context(CLIENT_PROTOCOL, server_side=False)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=der(root))
    return context


async def shake_hands(
    stream: trio.abc.Stream,
    context: ssl.SSLContext,
    protocol: str,
    *,
    server_side: bool,
    traffic: Traffic | None = None,
    unnamed: bool = False,
) -> TlsStream:
    """Do the handshake; returns the encrypted stream.

    Args:
        traffic: where its bytes are counted.
        unnamed: the other side need not name the protocol.

    Raises:
        UntrustedError: either side refuses the other's certificate. (In TLS 1.3 the dialling side
            may learn of its refusal only from its first read: see `failure`.)
        UnavailableError: the other side does not speak our TLS.
    """
    tls = TlsStream(stream, context, server_side=server_side, traffic=traffic)
    try:
        await tls.do_handshake()
    except trio.BrokenResourceError as error:
        raise failure(error) from None
    if tls.protocol != protocol and not (unnamed and tls.protocol is None):
        raise UnavailableError(f"the other side does not speak {protocol}")
    return tls


def failure(error: trio.BrokenResourceError) -> MedusaError:
    """The `MedusaError` for a broken TLS stream."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return UntrustedError(f"its certificate is refused: {cause.verify_message}")
    if isinstance(cause, ssl.SSLError):
        reason = cause.reason or "unknown reason"
        if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
            return RefusedError(
                f"it refuses our certificate ({_words(reason)}): nobody has told it that our root "
                "is admitted, or another root has our name"
            )
        return UnavailableError(f"the TLS handshake failed: {_words(reason)}")
    return UnavailableError("the connection broke in the handshake")


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _context(
    protocol: str, *, server_side: bool, identity: Identity | None = None
) -> ssl.SSLContext:
    side = ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # identity is a URI in the certificate, not a host
    context.set_alpn_protocols([protocol])
    context.verify_flags |= NO_CHECK_TIME
    if server_side:
        context.num_tickets = 0  # connections live long: nothing is resumed
    if identity is not None:
        show(context, identity)
    return context


def show(context: ssl.SSLContext, identity: Identity) -> None:
    """Have the context's handshakes, from the next one on, show that certificate.

    OpenSSL takes keys from files alone: it gets one that only this call can decrypt.
    """
    password = secrets.token_bytes(32).hex().encode()
    key = identity.private_key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "chain.pem"
        chain.write_bytes(key + identity.certificate.public_bytes(Encoding.PEM))
        context.load_cert_chain(chain, password=password)
