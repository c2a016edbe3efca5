"""A Java is found, and its JVM may take any time to start, as long as it works on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.spark import jvm
from engine.spark.jvm import find_java, parse_version
from overlay.errors import InvalidInputError, UnavailableError

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


def test_without_one_the_error_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
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
