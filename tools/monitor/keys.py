"""Reads the keys of a terminal one by one, without blocking trio."""

from __future__ import annotations

import os
import re
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

_READ_BYTES: Final = 1024

_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])|\x1b|[^\x1b]+")

_NAMED: Final = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1bOH": "home",
    b"\x1bOF": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
    b"\x1b[Z": "back tab",
    b"\x1b": "escape",
}

_CONTROLS: Final = {
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x04": "eof",
}


@contextmanager
def one_by_one(terminal: int) -> Iterator[None]:
    """During the block, the terminal of that descriptor passes each key when it is pressed, without
    echo. Ctrl-C stays a signal."""
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


async def pressed_keys(terminal: int) -> AsyncIterator[str]:
    """The keys, by their characters or names; "eof" when the terminal is gone."""
    while True:
        await trio.lowlevel.wait_readable(terminal)
        try:
            data = os.read(terminal, _READ_BYTES)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            yield "eof"
            return
        for key in keys_in(data):
            yield key


def keys_in(data: bytes) -> list[str]:
    """The keys in bytes from a terminal. Unknown sequences are left out."""
    found: list[str] = []
    for part in _SEQUENCE.findall(data):
        if part.startswith(b"\x1b"):
            found += [_NAMED[part]] if part in _NAMED else []
            continue
        text = part.decode(errors="ignore")
        found += [_CONTROLS.get(key, key) for key in text if key in _CONTROLS or key.isprintable()]
    return found
