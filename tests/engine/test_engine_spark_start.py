"""A JVM may take any time to start, as long as it works on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.spark import jvm
from overlay.errors import UnavailableError

HELLO = b"\x00\x00\x10\x00\x00\x00\x00\x06secret"
STARTING = """
import sys, time
for _ in range(8):
    end = time.process_time() + 0.08
    while time.process_time() < end:
        pass
    time.sleep(0.3)
open(sys.argv[1] + ".new", "wb").write(bytes.fromhex(sys.argv[2]))
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def start(code: str, hello: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, str(hello), HELLO.hex()])


def test_one_that_works_is_waited_for(tmp_path: Path) -> None:
    process = start(STARTING, tmp_path / "hello")
    try:
        # it takes longer than that
        found = jvm._await_hello(process, tmp_path / "hello", tmp_path / "out", still_s=2.0)
        assert found == (4096, "secret")
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "raise SystemExit(1)"])
def test_one_that_is_stuck_or_ends_is_given_up(code: str, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    process = start(code, tmp_path / "hello")
    with pytest.raises(UnavailableError, match="did not start"):
        jvm._await_hello(process, tmp_path / "hello", tmp_path / "out", still_s=0.5)
    assert process.returncode is not None
