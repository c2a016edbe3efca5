from pathlib import Path

import pytest

from engine.spark.jvm import find_java, parse_version
from overlay.errors import InvalidInputError

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
