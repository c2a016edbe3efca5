"""A peer of the release before, as a process, in a federation of peers of this one, and the other
way round: membership, the catalog, posts, subscriptions, queries and replicas (ADR 27)."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from deadline import DEADLINE_S

REPOSITORY: Final = Path(__file__).parents[2]

BEFORE: Final = "5178688f59300ed181b58d1a82645661b49028d4"
"""The commit of the release before."""

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Release:
    """A release: its Python environment, and where its modules are."""

    python: Path
    tree: Path

    def command(self, name: str) -> list[str]:
        scripts = tomllib.loads((self.tree / "pyproject.toml").read_text())["project"]["scripts"]
        module, _, function = scripts[name].partition(":")
        program = f"import sys; sys.argv[0] = {name!r}; from {module} import {function}"
        return [str(self.python), "-P", "-c", f"{program}; {function}()"]


NOW: Final = Release(Path(sys.executable), REPOSITORY)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The release before, from the repository's history, beside the packages of this one."""
    archive = ["git", "-C", str(REPOSITORY), "archive", BEFORE]
    done = subprocess.run(archive, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the repository's history does not reach back to {BEFORE}")
    tree = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(tree, filter="data")
    return Release(environment(tree), tree)


def environment(tree: Path) -> Path:
    """A Python that imports Medusa from that tree, and all else from where we do."""
    folder = tree / ".venv"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # this file of paths is read, those of the second folder are not: ours names our own tree
    (packages / "medusa.pth").write_text(f"{tree}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Peer:
    """A peer of some release, and its commands."""

    release: Release
    participant: str
    home: Path

    def run(self, name: str, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [*self.release.command(name), *arguments, "--home", str(self.home)],
            input=given,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def medusa(self, *arguments: str, given: str = "") -> str:
        return self.run("medusa", *arguments, given=given)

    def name(self, path: str) -> str:
        return f"medusa://{self.participant}/{path}"

    def create(self, kind: str, document: str, folder: Path) -> None:
        file = folder / f"{self.participant}.{kind}.xml"
        file.write_text(f"<medusa>{document}</medusa>")
        self.medusa(kind, "create", str(file))

    def status(self) -> Any:
        return json.loads(self.medusa("status", "--json"))

    @contextmanager
    def up(self) -> Iterator[str]:
        """Runs it until the block ends; gives what it says when it is up."""
        log = self.home.with_suffix(".out")
        command = [*self.release.command("medusa-peer"), "run", "--home", str(self.home)]
        with log.open("w") as file:
            process = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0"], stdout=file, stderr=file
            )
        try:
            wait_for(lambda: "is up" in log.read_text(), log.read_text)
            yield log.read_text()
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def wait_for(condition: Any, told: Any = lambda: "") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.2)


def make(release: Release, participant: str, home: Path, *options: str) -> Peer:
    peer = Peer(release, participant, home)
    peer.run("medusa-peer", "init", *(options or ("--participant", participant)))
    settings = home / "medusa.toml"
    text, changed = re.subn(r"(?m)^# preset = .*", 'preset = "local"', settings.read_text())
    assert changed == 1
    settings.write_text(text)
    return peer


def schema(peer: Peer) -> str:
    return f"""<schema name="{peer.name("x")}" time="ts">
      <field name="ts" type="long"/><field name="v" type="long"/></schema>"""


def stream(peer: Peer) -> str:
    """Everybody may post to it, and read it."""
    name, of = peer.name("s"), peer.name("x")
    return f"""<stream name="{name}" schema="{of}" readers="*" writers="*" max_ahead="none"/>"""


def query(peer: Peer, source: str) -> str:
    return f"""<query name="{peer.name("q")}"><box name="high" type="filter">
      <input port="1" stream="{source}"/><output port="1" stream="{peer.name("out")}"/>
      <param name="expression.0" value="v > 1"/></box></query>"""


ROWS: Final = "ts,v\n1000000,1\n2000000,2\n3000000,3\n"


def values(text: str) -> list[int]:
    return [json.loads(line)["v"] for line in text.splitlines()]


def exchange(one: Peer, other: Peer, tmp_path: Path) -> None:
    """Each posts to the other's stream, reads it, and runs a query over it."""
    both = (one, other), (other, one)
    for peer, _ in both:
        peer.create("schema", schema(peer), tmp_path)
        peer.create("stream", stream(peer), tmp_path)
    for peer, far in both:
        peer.medusa("post", far.name("s"), "-", "--end", given=ROWS)
    for peer, far in both:
        read = peer.medusa("subscribe", far.name("s"), "--from", "beginning", "--format", "json")
        assert values(read) == [1, 2, 3]
        peer.create("query", query(peer, far.name("s")), tmp_path)
        peer.medusa("query", "start", peer.name("q"))
    for peer, far in both:
        read = far.medusa("subscribe", peer.name("out"), "--from", "beginning", "--format", "json")
        assert values(read) == [2, 3]


@pytest.mark.spark
@pytest.mark.parametrize("founder", ["before", "now"])
def test_peers_of_two_releases_share_a_federation(
    tmp_path: Path, before: Release, founder: str
) -> None:
    releases = (before, NOW) if founder == "before" else (NOW, before)
    mit = make(
        releases[0], "mit.edu", tmp_path / "mit", "--participant", "mit.edu", "--found", "town"
    )
    utah = make(releases[1], "utah.edu", tmp_path / "utah")
    with ExitStack() as stack:
        stack.enter_context(mit.up())
        root = str(utah.home / "root.crt")
        token = mit.run("medusa-peer", "invite", "utah.edu", "--root", root).split()[-1]
        utah.run("medusa-peer", "join", token)
        stack.enter_context(utah.up())
        for peer in (mit, utah):
            wait_for(lambda p=peer: running(p) == {"mit.edu", "utah.edu"}, peer.status)
        exchange(mit, utah, tmp_path)
    upgrade(mit if founder == "before" else utah)
    for peer in (mit, utah):
        log = (peer.home / "logs" / "medusa.log").read_text()
        assert "fault" not in log, log


def upgrade(peer: Peer) -> None:
    """The home of the release before is run by this one, which has all that was there."""
    later = Peer(NOW, peer.participant, peer.home)
    with later.up():
        for path, wanted in (("s", [1, 2, 3]), ("out", [2, 3])):
            name = peer.name(path)
            read = later.medusa("subscribe", name, "--from", "beginning", "--format", "json")
            assert values(read) == wanted


def running(peer: Peer) -> set[str]:
    peers = peer.status()["peers"]
    return {each["participant"] for each in peers if each["state"] == "running"}
