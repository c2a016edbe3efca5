"""Errors about a place in a text: they are shown with the line, and a caret below the place."""

from __future__ import annotations

import re
from typing import Final

from medusa.overlay.errors import InvalidInputError, printable

WIDTH: Final = 100
"""Characters of the line that are shown: what a terminal has."""

_PLACE: Final = re.compile(r", at line (\d+), column (\d+)$")


class InTextError(InvalidInputError, code=None):
    """An error about a place in a text.

    Attributes:
        excerpt: the line, and a caret below the place.
    """

    def __init__(self, message: str, excerpt: tuple[str, ...]) -> None:
        super().__init__(message)
        self.excerpt = excerpt


def in_file(error: InvalidInputError, file: str, text: str) -> InvalidInputError:
    """The error of a document with the file's name, and with the place if it names one."""
    message = f"{file}: {error}"
    found = _PLACE.search(message)
    lines = text.splitlines()
    if found is None or int(found[1]) > len(lines):
        return type(error)(message)
    line, column = lines[int(found[1]) - 1], int(found[2]) - 1
    skipped = max(0, column - WIDTH * 3 // 4)
    shown = printable(line[skipped : skipped + WIDTH].replace("\t", " "))
    return InTextError(message, (f"    {shown}", f"    {' ' * (column - skipped)}^"))
