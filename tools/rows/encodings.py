"""Converts texts in UTF-8 with a byte-order mark, in UTF-16 or in UTF-32 to plain UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from medusa.overlay.errors import InvalidInputError

LOOKED_AT: Final = 4
"""Number of first bytes of a text by which its encoding is recognised."""

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def encoding_of(beginning: bytes) -> str | None:
    """The encoding of a text, by its byte-order mark, or by the zeros beside two ASCII characters,
    with which rows begin; None: UTF-8, or another that is left as it is."""
    for mark, encoding in _MARKS:
        if beginning.startswith(mark):
            return encoding
    zeros = [not byte for byte in beginning[:LOOKED_AT]]
    if zeros == [False, True, False, True]:
        return "utf-16-le"
    if zeros == [True, False, True, False]:
        return "utf-16-be"
    return None


def plain_beginning(beginning: bytes) -> bytes:
    """The first bytes of a text, as far as they are whole characters, in UTF-8."""
    encoding = encoding_of(beginning)
    if encoding is None:
        return beginning
    return codecs.getincrementaldecoder(encoding)("replace").decode(beginning).encode()


def as_utf8(read: Callable[[], bytes]) -> Callable[[], bytes]:
    """A function that reads the next piece of the same text in UTF-8; b"": the end.

    Args:
        read: reads the next piece; b"": the end.
    """
    return partial(next, _pieces(read), b"")


def _pieces(read: Callable[[], bytes]) -> Iterator[bytes]:
    piece = read()
    while len(piece) < LOOKED_AT and (more := read()):
        piece += more
    encoding = encoding_of(piece)
    if encoding is None:
        while piece:
            yield piece
            piece = read()
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    ended = False
    while not ended:
        ended = not piece
        try:
            text = decoder.decode(piece, final=ended)
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                f"it begins as {error.encoding.upper()} and does not go on so: {error.reason}"
            ) from None
        if text:
            yield text.encode()
        piece = read() if piece else b""
