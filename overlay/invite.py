"""The invitation token of a new participant: the statements to believe, and addresses to call."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from medusa.overlay.addresses import Address, check_address
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import InvalidInputError, MedusaError
from medusa.overlay.membership import Membership

PREFIX: Final = "medusa1-"
"""The beginning of a token, with its version."""

MAX_TOKEN: Final = 256 * 2**10
"""Characters of a token: a charter, a chain of at most 32 admissions, some addresses. It must fit
in a terminal and a mail."""

MAX_ADDRESSES: Final = 16
"""Addresses in a token: the first that answers is enough."""


class Invite(Struct, frozen=True, array_like=True):
    """The content of an invitation token.

    Attributes:
        charter: the federation's.
        statements: admissions, from the charter's down to the invited participant's own.
        addresses: the addresses of peers to join by.
    """

    charter: bytes
    statements: tuple[bytes, ...]
    addresses: tuple[Address, ...]

    def membership(self, participant: str) -> Membership:
        """The federation as the token describes it.

        Raises:
            InvalidInputError: it does not hold together, or does not admit this participant.
        """
        try:
            membership = Membership(self.charter, self.statements)
        except MedusaError as error:
            raise InvalidInputError(f"invitation token: {error}") from None
        if membership.root_of(participant) is None:
            raise InvalidInputError(
                f"invitation token: it does not admit {participant}; "
                "ask for one made with your root certificate"
            )
        return membership


def encode_invite(membership: Membership, participant: str, addresses: Iterable[Address]) -> str:
    """The token for an admitted participant.

    It has only the chain of admissions that leads to the participant: the rest comes from the peers
    it joins by.

    Raises:
        InvalidInputError: an address that nobody can dial, or none at all.
        NotFoundError: the participant is not admitted.
    """
    where = tuple(check_address(address) for address in addresses)[:MAX_ADDRESSES]
    if not where:
        raise InvalidInputError("invitation: give at least one address to join by")
    invite = Invite(membership.charter, membership.chain_of(participant), where)
    return PREFIX + base64.urlsafe_b64encode(encode(invite)).decode().rstrip("=")


def decode_invite(token: str) -> Invite:
    """Decode a token; white space around and inside it is ignored.

    Raises:
        InvalidInputError: it is no token, or is damaged. No text raises another error.
    """
    text = "".join(token.split())
    if len(text) > MAX_TOKEN:
        raise InvalidInputError(f"invitation token: longer than {MAX_TOKEN} characters")
    if not text.startswith(PREFIX):
        raise InvalidInputError(f"invitation token: must begin with {PREFIX}")
    body = text[len(PREFIX) :]
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("invitation token: damaged; copy it whole") from None
    invite = decode(data, Invite, limit=MAX_TOKEN, what="invitation token")
    if not 0 < len(invite.addresses) <= MAX_ADDRESSES:
        raise InvalidInputError(f"invitation token: must hold 1 to {MAX_ADDRESSES} addresses")
    for address in invite.addresses:
        check_address(address)
    return invite
