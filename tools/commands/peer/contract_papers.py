"""Contract documents as files that people send each other: signed bytes in base64."""

from __future__ import annotations

import base64
import binascii
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError
from medusa.overlay.files import write_secret
from medusa.tools.commands.command_line import read_text

_BEGIN: Final = "-----BEGIN MEDUSA CONTRACT-----"
_END: Final = "-----END MEDUSA CONTRACT-----"
_BLOCK: Final = re.compile(f"{_BEGIN}([A-Za-z0-9+/=\\s]*){_END}")

LINE_LENGTH: Final = 64
"""Characters of a line, as in PEM: mail programs leave it unchanged."""


def write_papers(path: Path, documents: Iterable[bytes]) -> None:
    """Write documents to a file that only we may read: contracts are private.

    Raises:
        StorageError: the file cannot be written.
    """
    write_secret(path, "".join(_armoured(data) for data in documents).encode())


def read_papers(file: str) -> tuple[bytes, ...]:
    """The documents in a file, or in standard input for `-`; text around them is ignored.

    Raises:
        NotFoundError: no such file. InvalidInputError: no document in it, or a broken one.
    """
    blocks = _BLOCK.findall(read_text(file))
    if not blocks:
        raise InvalidInputError(f"{file}: no contract document in it: expected {_BEGIN}")
    try:
        return tuple(base64.b64decode("".join(block.split()), validate=True) for block in blocks)
    except binascii.Error as error:
        raise InvalidInputError(f"{file}: a contract document is cut or altered: {error}") from None


def _armoured(data: bytes) -> str:
    lines = textwrap.wrap(base64.b64encode(data).decode(), LINE_LENGTH)
    return "\n".join([_BEGIN, *lines, _END, ""])
