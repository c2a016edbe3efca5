"""A checksum for the footer of a Parquet file; Parquet itself has them for pages only.

    pages | "MEDUSA1F" | crc32 u32 | footer | length of footer u32 | "PAR1"        (little endian)

The checksum covers everything after it. Readers of Parquet find the footer from the end and the
pages by the footer, so they do not see it. It is compared before Arrow sees the file: some footers
with one wrong bit end the process (measured, Arrow 26).
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final

_MARK: Final = b"MEDUSA1F"
_END: Final = struct.Struct("<I4s")
_CHECKSUM: Final = struct.Struct("<I")
_BEFORE: Final = len(_MARK) + _CHECKSUM.size

_TAIL_BYTES: Final = 2**20
"""The longest footer that is searched for without its length; 64 MiB of row groups need 10 KiB."""


def seal(path: Path) -> None:
    """Add the checksum to a file that was just written. Raises: OSError."""
    with path.open("r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        (length, _) = _END.unpack(os.pread(file.fileno(), _END.size, size - _END.size))
        start = size - _END.size - length
        tail = os.pread(file.fileno(), size - start, start)
        sealed = _MARK + _CHECKSUM.pack(zlib.crc32(tail)) + tail
        if os.pwrite(file.fileno(), sealed, start) < len(sealed):
            raise OSError(f"{path.name} was written in part")


def check(path: Path) -> None:
    """Compare the checksum; files of older releases have none.

    Raises:
        ValueError: it is wrong. OSError: the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        end = os.pread(file.fileno(), _END.size, max(0, size - _END.size))
        if len(end) < _END.size:
            raise ValueError(f"a file of {size} bytes")
        length, magic = _END.unpack(end)
        start = size - _END.size - length - _BEFORE
        sealed = b""
        if start >= 0 and magic == b"PAR1":
            sealed = os.pread(file.fileno(), size - start, start)
        if sealed.startswith(_MARK):
            (told,) = _CHECKSUM.unpack_from(sealed, len(_MARK))
            if zlib.crc32(memoryview(sealed)[_BEFORE:]) != told:
                raise ValueError("the checksum of its footer is wrong")
        elif _MARK in os.pread(file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)):
            raise ValueError("the length of its footer is wrong")
