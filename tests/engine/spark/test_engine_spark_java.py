"""The peer finds a Java, and its JVM may take any time to start, as long as it makes progress."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from pyspark import SparkContext

from medusa.engine.spark import jvm
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.executor import open_executor
from medusa.engine.spark.java import find_java, parse_version
from medusa.engine.spark.jvm import Jvm
from medusa.overlay.errors import InvalidInputError, StoppedError, UnavailableError
from medusa.overlay.events import Events

SEVENTEEN = 'openjdk version "17.0.15" 2025-04-15'
EIGHT = 'java version "1.8.0_292"'


def put_java(folder: Path, says: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    executable.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (SEVENTEEN, 17),
        (EIGHT, 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("command not found", None),
        ("", None),
    ],
)
def test_versions_of_all_styles_are_read(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = put_java(tmp_path / "home", SEVENTEEN)
    other = put_java(tmp_path / "other", SEVENTEEN)
    environment = {"JAVA_HOME": str(home), "PATH": f"{other}/bin:/bin:/usr/bin"}
    assert find_java(environment, ()) == home


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    home = put_java(tmp_path / "home", EIGHT)
    put_java(tmp_path / "jvm" / "a", EIGHT)
    good = put_java(tmp_path / "jvm" / "b", SEVENTEEN)
    environment = {"JAVA_HOME": str(home), "PATH": "/nowhere"}
    assert find_java(environment, (f"{tmp_path}/jvm/*",)) == good


def test_the_error_without_a_java_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    home = put_java(tmp_path / "home", EIGHT)
    with pytest.raises(InvalidInputError) as caught:
        find_java({"JAVA_HOME": str(home), "PATH": "/nowhere"}, ())
    assert f"{home}/bin/java is version 8" in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)
    assert "install" in str(caught.value)


def test_something_that_is_no_java_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is no Java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, ())


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


def test_the_peer_waits_for_a_jvm_that_makes_progress(tmp_path: Path) -> None:
    process = start(STARTING, tmp_path / "hello")
    try:
        # the start takes longer than the limit
        found = jvm._await_hello(
            process, tmp_path / "hello", tmp_path / "out", threading.Event(), still_s=2.0
        )
        assert found == (4096, "secret")
    finally:
        process.kill()
        process.wait()


def test_a_jvm_for_which_no_caller_waits_is_ended(tmp_path: Path) -> None:
    given_up = threading.Event()
    process = start(STARTING, tmp_path / "hello")
    threading.Timer(0.2, given_up.set).start()
    began = time.monotonic()
    with pytest.raises(StoppedError, match="was given up"):
        jvm._await_hello(process, tmp_path / "hello", tmp_path / "out", given_up)
    assert process.returncode is not None
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "raise SystemExit(1)"])
def test_the_peer_gives_up_a_jvm_that_is_stuck_or_ends(code: str, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    process = start(code, tmp_path / "hello")
    with pytest.raises(UnavailableError, match="did not start"):
        jvm._await_hello(
            process, tmp_path / "hello", tmp_path / "out", threading.Event(), still_s=0.5
        )
    assert process.returncode is not None


def test_the_error_of_a_killed_jvm_names_the_signal(tmp_path: Path) -> None:
    process = start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path / "hello")
    with pytest.raises(jvm.KilledError, match="with signal 9"):
        jvm._await_hello(process, tmp_path / "hello", tmp_path / "out", threading.Event())


async def test_a_peer_that_ends_does_not_wait_for_the_start_of_its_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the peer is no failure of the start."""
    begun = threading.Event()

    def launch(_s: Mapping[str, str], _f: Path, given_up: threading.Event) -> Jvm:
        begun.set()
        assert given_up.wait(DEADLINE_S), "the end waits for the start"
        raise StoppedError("given up")

    monkeypatch.setattr(Jvm, "launch", launch)
    monkeypatch.setattr(SparkContext, "_gateway", None)  # a gateway of other tests of this process
    events = Events()
    with trio.CancelScope() as scope:
        async with (
            open_executor(SparkConfig(), tmp_path / "warm-up", tmp_path, events) as executor,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(executor.prepare)
            await trio.to_thread.run_sync(begun.wait, DEADLINE_S)
            scope.cancel()
    assert executor.trouble == ""
    assert events.recent() == ()
