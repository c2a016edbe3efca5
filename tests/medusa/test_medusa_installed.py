"""The wheel and the sdist install one package; client, peer and testnet have extras of their own.

Every program starts in a folder that has folders called `tools`, `engine` and `contracts` of its
own, which raise when they are imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from deadline import DEADLINE_S
from installed import ROOT, build_sdist, build_wheel, make_environment

pytestmark = [pytest.mark.process, pytest.mark.spark]

ROWS = "at,host\n2026-01-01T12:00:00Z,a\n2026-01-01T12:00:01Z,b\n"
STREAM = "CREATE STREAM hosts (at TIMESTAMP, host VARCHAR, WATERMARK FOR at AS at);"
QUERY = "SELECT at, upper(host) AS host FROM hosts"
PROGRAM = """
import sys
import medusa
with medusa.MedusaClient(token=sys.argv[1]) as client:
    print(*client.list_objects().names["stream"])
print(sorted({"pyspark", "kademlia", "duckdb"} & set(sys.modules)))
"""


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    sdist = build_sdist(folder)
    return Built(sdist, build_wheel(sdist, folder))


@pytest.fixture(scope="module")
def peer(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("peer") / "env", built.wheel, "peer")


@pytest.fixture(scope="module")
def client(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("client") / "env", built.wheel, "client")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give a user's folder that contains folders with our folders' names."""
    for name in ("tools", "engine", "contracts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('{name} of the user')\n")
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "stream.sql").write_text(STREAM)
    (tmp_path / "query.sql").write_text(QUERY)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "JAVA_HOME", "TMPDIR") if name in os.environ
    }
    return {**kept, "HOME": str(place)}


def run(place: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(each) for each in command],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@contextmanager
def running_peer(programs: Path, place: Path) -> Iterator[None]:
    made = run(place, programs / "medusa-peer", "init", "--participant", "a.edu", "--found", "f")
    assert made.returncode == 0, made.stderr
    with subprocess.Popen(
        [programs / "medusa-peer", "run", "--listen", "127.0.0.1:0", "--json"],
        cwd=place,
        env=environment(place),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())
            yield
        finally:
            process.terminate()


def test_wheel_and_sdist_have_one_package(built: Built) -> None:
    """Both carry every module of the folders, under `medusa` alone, and no link."""
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if name.endswith(".py")}
        tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"medusa"}
    folders = [each for each in (ROOT / "medusa").iterdir() if each.is_symlink()]
    assert len(folders) == 6
    ours = {
        f"medusa/{folder.name}/{path.relative_to(folder)}"
        for folder in folders
        for path in folder.resolve().rglob("*.py")
        for path in (folder / path.relative_to(folder.resolve()),)
    }
    assert ours | {"medusa/__init__.py", "medusa/public.py"} == names
    with tarfile.open(built.sdist) as sdist:
        assert not any(member.issym() or member.islnk() for member in sdist.getmembers())


def test_a_client_posts_and_subscribes_without_pyspark(
    peer: Path, client: Path, place: Path
) -> None:
    """Only the peer's environment has PySpark; a client's commands and program do their work."""
    with running_peer(peer, place):
        for command in (
            ("stream", "create", "stream.sql"),
            ("post", "medusa://a.edu/hosts", "rows.csv", "--end"),
        ):
            done = run(place, client / "medusa", *command)
            assert done.returncode == 0, done.stderr
        got = run(
            place,
            client / "medusa",
            "subscribe",
            "medusa://a.edu/hosts",
            "--limit",
            "2",
            "--format",
            "json",
        )
        assert [json.loads(line)["host"] for line in got.stdout.splitlines()] == ["a", "b"]
        token = (place / ".medusa" / "client.token").read_text()
        said = run(place, client / "python", "program.py", token)
        assert said.stdout.splitlines() == [
            "medusa://a.edu/hosts medusa://a.edu/hosts/late",
            "[]",
        ], said.stderr


def test_a_peer_tries_a_query(peer: Path, place: Path) -> None:
    """`medusa try` answers with Spark."""
    tried = run(
        place, peer / "medusa", "try", "query.sql", "--stream", "hosts=rows.csv", "--time", "at"
    )
    assert tried.returncode == 0, tried.stderr
    hosts = [line.split("│")[3].strip() for line in tried.stdout.splitlines() if "2026" in line]
    assert hosts == ["A", "B"]


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("medusa-peer", "run"), "peer"),
        (("medusa", "try", "query.sql", "--stream", "hosts=rows.csv", "--time", "at"), "peer"),
        (("medusa-testnet", "intrusion"), "testnet"),
    ],
)
def test_a_client_says_which_extra_has_the_rest(
    command: tuple[str, ...], extra: str, client: Path, place: Path
) -> None:
    """A program that needs more says in one line what to install."""
    run(place, client / "medusa-peer", "init", "--participant", "a.edu", "--found", "f")
    done = run(place, client / command[0], *command[1:])
    assert done.returncode == 1
    assert f"pip install 'medusa-federation[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
