"""`medusa monitor` on a terminal: keys work, and it restores the terminal at its end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import medusa_command
from tools_fake_peer import fake_peer_in_thread

PATIENCE_S = 120.0
"""The time limit for a process to start on a busy machine; a test rarely waits so long."""


_STYLE = re.compile(rb"\x1b\[[0-9;]*m")


class Terminal:
    """A pseudo-terminal of 80 x 24, with `medusa monitor` in it."""

    def __init__(self, home: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        command = medusa_command("monitor", "--home", str(home))
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
            start_new_session=True,
            # The process has its own terminal, so that Ctrl-C is a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread is there
        )
        self._said = b""

    def press(self, keys: bytes) -> None:
        self._said = b""
        os.write(self._ours, keys)

    def shows(self, words: str) -> None:
        """Read until the terminal has received these texts."""
        deadline = time.monotonic() + PATIENCE_S
        while words.encode() not in _STYLE.sub(b"", self._said):
            assert time.monotonic() < deadline, (words, self._said[-3000:])
            if select.select([self._ours], [], [], 0.1)[0]:
                self._said += os.read(self._ours, 65536)

    def ends(self) -> int:
        """Return the exit code; read the last output, since the process could not end otherwise."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self._ours], [], [], 0.1)[0]:
                self._said += os.read(self._ours, 65536)
        while select.select([self._ours], [], [], 0)[0]:
            self._said += os.read(self._ours, 65536)
        return self.process.returncode

    def is_as_before(self) -> None:
        assert termios.tcgetattr(self.theirs) == self.before
        assert b"\x1b[?1049l" in self._said, "the screen that was there is back"
        assert b"\x1b[?25h" in self._said, "and the cursor"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    with fake_peer_in_thread(folder):
        yield folder


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    made = Terminal(home)
    yield made
    made.close()


@pytest.mark.process
def test_keys_change_what_is_shown_and_q_leaves(terminal: Terminal) -> None:
    terminal.shows("peers up")
    assert termios.tcgetattr(terminal.theirs) != terminal.before, "keys come one by one"
    terminal.press(b"?")
    terminal.shows("one peer after the other")
    terminal.press(b"?")
    terminal.shows("/ filter")
    terminal.press(b"/nowhere")
    terminal.shows("filter: nowhere")
    terminal.press(b"\r")
    terminal.shows("1 All  2 Peers 0")
    terminal.press(b"\x1b")
    terminal.shows("1 All  2 Peers 1")
    terminal.press(b"\t\x1b[B")
    terminal.shows("1-1 of 1")
    terminal.press(b"p")
    terminal.shows("peer: mit.edu")
    terminal.press(b"q")
    assert terminal.ends() == 0
    terminal.is_as_before()


@pytest.mark.process
@pytest.mark.parametrize(("how", "code"), [("ctrl-c", 130), ("SIGTERM", 143), ("SIGHUP", 0)])
def test_the_monitor_restores_the_terminal_however_it_ends(
    terminal: Terminal, how: str, code: int
) -> None:
    terminal.shows("peers up")
    if how == "ctrl-c":
        terminal.press(b"\x03")
    else:
        terminal.process.send_signal(signal.Signals[how])
    assert terminal.ends() == code
    terminal.is_as_before()
