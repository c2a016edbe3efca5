"""Runs a command that goes on until Ctrl-C, and presses Ctrl-C once it has shown something."""

from __future__ import annotations

import signal
import subprocess
import sys

SHOWN = 2
"""The number of lines to wait for: a table's header, and a row."""

INTERRUPTED = 130
"""The exit code by which shells report Ctrl-C. A Python program without a handler of its own dies
of the signal instead."""

with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE) as process:
    assert process.stdout is not None
    for number, line in enumerate(process.stdout, 1):
        sys.stdout.buffer.write(line)
        if number == SHOWN:
            process.send_signal(signal.SIGINT)
sys.exit(0 if process.returncode in {INTERRUPTED, -signal.SIGINT} else process.returncode)
