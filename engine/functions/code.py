"""The code of a function: its bytes, and its fingerprint."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError

MAX_CODE_BYTES: Final = 2**22
"""Bytes of a file of functions: it is read whole, and hashed."""


def read_code(path: Path) -> bytes:
    """The bytes of a file of functions. Raises: InvalidInputError: there is no file, or it is no
    file of functions."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CODE_BYTES + 1)
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from None
    if len(text) > MAX_CODE_BYTES:
        raise InvalidInputError(f"{path}: it has more than {MAX_CODE_BYTES:,} bytes")
    return text


def digest(text: bytes, version: str) -> str:
    """The fingerprint of code. version: the version of the package that the code is installed with;
    else empty."""
    return hashlib.sha256(version.encode() + b"\0" + text).hexdigest()
