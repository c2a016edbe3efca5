"""Whether a machine says that a peer is gone: its kernel refuses connections where it listened."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from overlay.addresses import Address
from overlay.errors import MedusaError
from overlay.listening import dial_tcp


async def refuses_all(addresses: Sequence[Address]) -> bool:
    """Whether connections to all of its addresses are refused; no address says nothing."""
    for address in addresses:
        try:
            stream = await dial_tcp(address)
        except MedusaError as error:
            if not _refused(error):
                return False
        else:
            await trio.aclose_forcefully(stream)
            return False
    return bool(addresses)


def _refused(error: BaseException | None) -> bool:
    """Whether connections were refused, nothing else: the kernel's word is the innermost cause."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            return all(_refused(part) for part in error.exceptions)
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False
