"""What a person sees of a scenario."""

from __future__ import annotations

import io

from rich.console import Console


def text_of(shown: object, width: int, height: int = 40) -> str:
    """Return the text of a screen; check that no line is longer than `width`."""
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(shown)
    text = said(console)
    assert all(len(line) <= width for line in text.splitlines())
    return text


def words_of(shown: object, width: int) -> str:
    """The words of a screen, with one space between two: the breaks of lines do not matter."""
    return " ".join(text_of(shown, width).split())


def pipe(width: int = 300) -> Console:
    """A console that is no terminal."""
    return Console(width=width, file=io.StringIO())


def said(console: Console) -> str:
    """Return the text that was printed on a console so far."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
