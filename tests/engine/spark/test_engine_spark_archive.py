"""The archive of Spark's classes: who owns it, when it is made, and that a JVM starts from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from deadline import DEADLINE_S
from pyspark.find_spark_home import _find_spark_home

from medusa.engine.spark import archive as archives
from medusa.engine.spark.archive import (
    LOWEST,
    MAX_ARCHIVES,
    RETRY_S,
    UNUSED_S,
    ClassArchive,
    archive_for,
)
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.java import find_java
from medusa.engine.spark.jvm import Jvm, KilledError
from medusa.overlay.errors import UnavailableError

EDGE = SparkConfig().settings()
MAKER = """#!/bin/sh
ps -o ni= -p $$ >"$MADE/nice"
ps -o ppid= -p $$ >"$MADE/parent"
echo "$@" >>"$MADE/runs"
while [ ! -e "$MADE/end" ]; do sleep 0.02; done
rm "$MADE/runs"
"""
"""A program in the place of Python: it writes how it was started, and keeps its inherited files
open."""


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Give the home folders of a Java and of a Spark."""
    java, spark = tmp_path / "java", tmp_path / "spark"
    for file in (java / "lib" / "modules", spark / "jars" / "a.jar", spark / "jars" / "b.jar"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"1")
    return java, spark


@pytest.fixture
def find(places: tuple[Path, Path], tmp_path: Path) -> Callable[..., ClassArchive | None]:
    def find(**options: str) -> ClassArchive | None:
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        settings = {**EDGE, **{f"spark.{name}": value for name, value in options.items()}}
        return archive_for(settings, *places, environment)

    return find


@pytest.fixture
def archive(find: Callable[[], ClassArchive | None]) -> ClassArchive:
    found = find()
    assert found is not None
    return found


# -- the choice and the owner of the archive -------------------------------------------------------


def test_the_archives_key_depends_on_java_jars_and_flags(
    find: Callable[..., ClassArchive], places: tuple[Path, Path]
) -> None:
    java, spark = places
    keys = [find().key, find(**{"driver.memory": "1g"}).key]
    (java / "lib" / "modules").write_bytes(b"22")
    keys.append(find().key)
    (spark / "jars" / "c.jar").write_bytes(b"1")
    keys.append(find().key)
    (spark / "jars" / "c.jar").write_bytes(b"333")
    keys.append(find().key)
    assert len(set(keys)) == len(keys)
    assert find().key == keys[-1]
    assert find(**{"sql.shuffle.partitions": "7"}).key == keys[-1], "what no JVM starts with"


@pytest.mark.parametrize(
    "options",
    [
        {"driver.extraJavaOptions": "-Xshare:off"},
        {"driver.defaultJavaOptions": "-XX:SharedArchiveFile=/mine.jsa"},
    ],
)
def test_the_users_word_counts(
    options: dict[str, str], find: Callable[..., ClassArchive | None]
) -> None:
    assert find(**options) is None


def test_an_archive_is_used_once_it_exists(archive: ClassArchive) -> None:
    assert archive.options() == ""
    archive.path.touch()
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()
    assert archive.folder.stat().st_mode & 0o777 == 0o700


def test_classes_that_others_could_have_written_are_not_loaded(
    archive: ClassArchive, find: Callable[[], ClassArchive | None], tmp_path: Path
) -> None:
    archive.path.touch()
    archive.path.chmod(0o666)
    assert archive.options() == ""
    archive.path.unlink()
    (tmp_path / "elsewhere").touch()
    archive.path.symlink_to(tmp_path / "elsewhere")
    assert archive.options() == ""
    archive.folder.chmod(0o770)
    assert find() is None


def test_another_users_folder_is_left_alone(
    archive: ClassArchive, find: Callable[[], ClassArchive | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.path.touch()
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    assert archive.options() == ""
    assert find() is None


def test_no_place_for_a_cache_is_no_error(places: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert archive_for(EDGE, *places, {"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


# -- when the archive is made ----------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which the maker writes how it was started; it runs until the file `end`
    exists."""
    folder, maker = tmp_path / "made", tmp_path / "maker"
    folder.mkdir()
    maker.write_text(MAKER)
    maker.chmod(0o700)
    monkeypatch.setenv("MADE", str(folder))
    monkeypatch.setattr(archives.sys, "executable", str(maker))
    return folder


def wait_for(condition: Callable[[], bool]) -> None:
    """Poll for the files of another process, which sends no event."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("niceness", [LOWEST, 0])
def test_one_process_of_that_priority_makes_the_archive(
    archive: ClassArchive, made: Path, niceness: int
) -> None:
    archive.make_apart(niceness)
    wait_for(lambda: (made / "runs").exists() and bool((made / "runs").read_text()))
    for _ in range(3):
        archive.make_apart()  # the process that makes the archive holds its lock
    assert (made / "nice").read_text().split() == [str(min(19, os.nice(0) + niceness))]
    assert (made / "parent").read_text().split() != [str(os.getpid())], "it may outlive us"
    (run,) = (made / "runs").read_text().splitlines()
    assert run.startswith("-P -m medusa.engine.spark.training ")
    assert json.loads(run.partition("training ")[2])[:2] == [str(archive.folder), archive.key]
    (made / "end").touch()
    wait_for(lambda: not (made / "runs").exists())


def runs(archive: ClassArchive, made: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a process starts to make the archive."""
    started: list[object] = []
    monkeypatch.setattr(archives.subprocess, "run", lambda *what, **_: started.append(what))
    archive.make_apart()
    return bool(started)


def test_the_archive_is_made_once(
    archive: ClassArchive, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs(archive, made, monkeypatch)
    archive.path.touch()
    assert not runs(archive, made, monkeypatch)


def test_making_the_archive_is_tried_again_a_day_after_a_failure(
    archive: ClassArchive, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.fail("no reason")
    assert not runs(archive, made, monkeypatch)
    _age(archive.failed, RETRY_S + 60)
    assert runs(archive, made, monkeypatch)


def test_disk_is_bounded_and_unused_archives_are_removed(
    archive: ClassArchive, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [archive.folder / f"{number}.jsa" for number in range(MAX_ARCHIVES)]
    for path in others:
        path.touch()
    assert not runs(archive, made, monkeypatch)
    _age(others[3], UNUSED_S + 60)
    (archive.folder / "killed.making").mkdir()
    assert runs(archive, made, monkeypatch)
    assert [path.exists() for path in others].count(False) == 1
    assert not others[3].exists()
    assert not (archive.folder / "killed.making").exists()


@pytest.mark.parametrize("least", ["MIN_DISK_BYTES", "MIN_MEMORY_BYTES"])
def test_a_full_machine_has_none_made(
    least: str, archive: ClassArchive, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, least, 2**80)
    assert not runs(archive, made, monkeypatch)


def test_use_keeps_an_archive(archive: ClassArchive) -> None:
    archive.path.touch()
    _age(archive.path, UNUSED_S + 60)
    assert archive.options()
    assert time.time() - archive.path.stat().st_mtime < 60


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


# -- with Spark ------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    """Return the archive that this process starts a JVM from."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = archive_for(EDGE, find_java(os.environ), Path(_find_spark_home()), os.environ)
    assert found is not None
    found.path.write_bytes(b"damaged so that the JVM crashes")
    return found


def test_a_jvm_starts_without_an_archive_from_which_none_starts(
    damaged: ClassArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def launch(*_given: object, options: str = "") -> str:
        tried.append(options)
        if tried[-1]:
            raise UnavailableError("Spark's JVM did not start")
        return "started"

    monkeypatch.setattr(Jvm, "_launch", launch)
    assert Jvm.launch(EDGE, tmp_path) == "started"
    assert str(damaged.path) in tried[0]
    assert tried[1:] == [""]
    assert not damaged.path.exists()
    assert damaged.failed.exists(), "it is not made again at once"


@pytest.mark.parametrize("error", [KilledError("signal 9"), UnavailableError("no memory")])
def test_the_archive_stays_if_something_else_keeps_jvms_from_starting(
    error: UnavailableError,
    damaged: ClassArchive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def launch(*_given: object, options: str = "") -> str:
        raise error

    monkeypatch.setattr(Jvm, "_launch", launch)
    with pytest.raises(UnavailableError, match=str(error)):
        Jvm.launch(EDGE, tmp_path)
    assert damaged.path.exists()
    assert not damaged.failed.exists()


STARTED = """
import sys
from functools import partial
from pathlib import Path
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.spark.training import tasks
spark = Spark(SparkConfig(), Path(sys.argv[1]))
spark.start()
for task in tasks():
    spark.run(partial(Program(task).warm_up, within=Path.cwd()))
sys.stdout.write(f"{spark.pid}\\n")
sys.stdout.flush()
sys.stdin.read()
spark.stop()
"""


@pytest.mark.soak
@pytest.mark.spark
def test_a_jvm_starts_from_the_archive_of_a_training_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This takes half a minute. In `make test`, JVMs start from the archive that this machine
    has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    found = archive_for(EDGE, find_java(os.environ), Path(_find_spark_home()), os.environ)
    assert found is not None
    what = json.dumps([str(found.folder), found.key, dict(found.shape)])
    subprocess.run([sys.executable, "-m", "medusa.engine.spark.training", what], check=True)
    assert not found.failed.exists(), found.failed.read_text()
    assert not found.making.exists()
    assert found.path.stat().st_size > 2**26

    spark = subprocess.Popen(
        [sys.executable, "-c", STARTED, str(tmp_path / "spark")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert spark.stdin
        assert spark.stdout
        jvm = psutil.Process(int(spark.stdout.readline()))
        assert str(found.path) in {each.path for each in jvm.memory_maps()}
        said = (tmp_path / "spark" / "spark.out").read_text()
        assert "archive" not in said.lower(), said
    finally:
        spark.communicate()
