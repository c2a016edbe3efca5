"""A client token as text for its holder: one line with the participant, the address and the
secret."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final

from cryptography import x509
from msgspec import Struct

from medusa.overlay.addresses import check_address
from medusa.overlay.certificates import der, load_certificate
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.files import read_secret
from medusa.overlay.names import check_participant
from medusa.tools.home.addresses import Address

PREFIX: Final = "medusa-client1-"
"""The beginning of a token, with its version."""

MAX_TOKEN_TEXT: Final = 8 * 2**10
"""Characters of a token: a root certificate of some 400 bytes, a name, an address, 64 digits."""

_WHAT: Final = "client token"


class TokenText(Struct, frozen=True, array_like=True):
    """The content of a token's text.

    Attributes:
        participant: the peer's participant. root: DER of its root certificate.
        secret: the client's secret.
        address: the peer's address for clients; None if it changes with every start.
    """

    participant: str
    root: bytes
    secret: bytes
    address: Address | None = None

    @staticmethod
    def of(
        participant: str, root: x509.Certificate, secret: bytes, address: Address | None
    ) -> TokenText:
        return TokenText(participant, der(root), secret, address)

    def root_certificate(self) -> x509.Certificate:
        return load_certificate(self.root)

    def __str__(self) -> str:
        return PREFIX + base64.urlsafe_b64encode(encode(self)).decode().rstrip("=")


def parse_token(text: str) -> TokenText:
    """Parse a token; white space around and inside it is ignored.

    Raises:
        InvalidInputError: the text is no token, or is damaged. No text raises another error.
    """
    line = "".join(text.split())
    if len(line) > MAX_TOKEN_TEXT:
        raise InvalidInputError(f"{_WHAT}: longer than {MAX_TOKEN_TEXT} characters")
    if not line.startswith(PREFIX):
        raise InvalidInputError(
            f"{_WHAT}: must begin with {PREFIX}, as `medusa-peer token add` prints it"
        )
    body = line[len(PREFIX) :]
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError(f"{_WHAT}: damaged; copy it whole") from None
    token = decode(data, TokenText, limit=MAX_TOKEN_TEXT, what=_WHAT)
    check_participant(token.participant)
    if token.address is not None:
        check_address(token.address)
    token.root_certificate()
    return token


def read_token(file: str) -> str:
    """The text of a token in a file.

    Raises:
        NotFoundError: there is no such file. NotAuthorisedError: others can read it.
        InvalidInputError: it is empty, too long, or not text.
    """
    path = Path(file)
    try:
        text = read_secret(path, MAX_TOKEN_TEXT).decode("ascii")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path}: no client token") from None
    if not text.strip():
        raise InvalidInputError(f"{path}: it is empty; `medusa-peer token add` prints a token")
    return text
