"""Commands of `medusa-peer` that change files are killed with -9 before each of their changes. The
next call completes the work, or begins anew."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from medusa.overlay.errors import ConflictError
from medusa.overlay.membership_file import load_membership
from medusa.tools.commands.peer.admission import invite
from medusa.tools.commands.peer.backup import backup, restore
from medusa.tools.commands.peer.joining import join
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import MAKING, make_peer, make_sibling

CHANGES = frozenset({"os.rename", "os.mkdir", "os.rmdir", "os.link", "os.remove", "os.truncate"})
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
MOST = 500
"""The greatest number of changes of one command, with a margin: a sweep that never ends is a fault
of the test."""


def quiet(_: int) -> None:
    """Show no progress."""


def killed(command: Callable[[], object], change: int) -> bool:
    """Run the command in a child process, and kill that process just before its change number
    `change`, from 0; a change is one of `CHANGES`, or the opening of a file to write. Return
    whether it was killed."""
    pid = os.fork()
    if not pid:
        counted = 0

        def audit(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal counted
            flags = arguments[2] if event == "open" else 0
            if event in CHANGES or (isinstance(flags, int) and flags & WRITES):
                if counted == change:
                    os.kill(os.getpid(), signal.SIGKILL)
                counted += 1

        try:
            sys.addaudithook(audit)
            command()
        except BaseException:  # noqa: BLE001 - it must not go on as a second pytest
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the command failed"
    return os.WIFSIGNALED(status)


def sweep(
    command: Callable[[], object], fresh: Callable[[], None], check: Callable[[], None]
) -> int:
    """Kill the command before each of its changes, call it again, and check the result; return the
    number of changes."""
    for change in range(MOST):
        fresh()
        if not killed(command, change):
            return change
        command()
        check()
    raise AssertionError("it does not end")


def files(folder: Path) -> set[str]:
    """Return all files but locks."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.endswith("lock")}


@pytest.mark.parametrize("found", ["cluster", None])
def test_a_killed_init_is_completed_or_begun_anew(tmp_path: Path, found: str | None) -> None:
    home, whole = Home(tmp_path / "home"), Home(tmp_path / "whole")
    make_peer(whole, "mit.edu", found)

    def check() -> None:
        assert files(home.folder) == files(whole.folder)
        assert not list(tmp_path.glob(".*"))

    def fresh() -> None:
        shutil.rmtree(home.folder, ignore_errors=True)

    assert sweep(lambda: make_peer(home, "mit.edu", found), fresh, check) > 10
    with pytest.raises(ConflictError, match="is a peer's home already"):
        make_peer(home, "mit.edu", found)


def complete(home: Home) -> bool:
    """Whether all files of a home are written, in any folder."""
    return home.config.exists() or Home(home.folder / MAKING).config.exists()


def test_a_killed_init_leaves_no_home_for_another_participant(tmp_path: Path) -> None:
    refused = made = 0
    for change in range(MOST):
        home = Home(tmp_path / f"{change}")
        if not killed(lambda home=home: make_peer(home, "mit.edu", None), change):
            break
        if complete(home):
            with pytest.raises(ConflictError, match=r"is a peer's home already, of mit\.edu"):
                make_peer(home, "utah.edu", None)
            refused += 1
        else:
            assert make_peer(home, "utah.edu", None).participant == "utah.edu"
            made += 1
    assert refused
    assert made > refused


def test_a_killed_init_of_a_sibling_is_completed_or_begun_anew(tmp_path: Path) -> None:
    first, home, whole = (Home(tmp_path / name) for name in ("first", "home", "whole"))
    make_peer(first, "mit.edu", "cluster")
    make_sibling(whole, first)

    def check() -> None:
        assert files(home.folder) == files(whole.folder)

    def fresh() -> None:
        shutil.rmtree(home.folder, ignore_errors=True)

    assert sweep(lambda: make_sibling(home, first), fresh, check) > 10


def test_a_killed_join_is_completed(tmp_path: Path) -> None:
    first, made, home = (Home(tmp_path / name) for name in ("first", "made", "home"))
    make_peer(first, "mit.edu", "cluster")
    make_peer(made, "utah.edu", None)
    token = invite(first, "utah.edu", made.root_certificate, (("127.0.0.1", 7654),)).token
    assert token is not None

    def fresh() -> None:
        shutil.rmtree(home.folder, ignore_errors=True)
        shutil.copytree(made.folder, home.folder)

    def check() -> None:
        assert load_membership(home.folder).name == "cluster"
        assert home.bootstrap.exists()

    assert sweep(lambda: join(home, token), fresh, check) > 3
    for change in range(MOST):  # every member finds all other members
        fresh()
        if not killed(lambda: join(home, token), change):
            break
        assert home.bootstrap.exists() or "federation" not in files(home.folder)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    place = Home(tmp_path / "home")
    make_peer(place, "mit.edu", "cluster")
    (place.data / "schemas").mkdir()
    (place.data / "schemas" / "a.json").write_bytes(b"{}" * 5000)
    return place


def test_a_killed_backup_is_made_by_the_next_call(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    before = files(home.folder)

    def fresh() -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()

    def check() -> None:
        assert files(place) == {"b", "k"}
        assert files(home.folder) == before
        restored = Home(tmp_path / "restored")
        restore(place / "b", restored, place / "k", quiet)
        shutil.rmtree(restored.folder)

    def command() -> None:
        with suppress(ConflictError):  # the file exists, and is complete
            backup(home, place / "b", place / "k", quiet)

    assert sweep(command, fresh, check) > 5


def test_a_killed_restore_is_made_by_the_next_call(home: Home, tmp_path: Path) -> None:
    backup(home, tmp_path / "b", tmp_path / "k", quiet)
    place = tmp_path / "new"
    restored = Home(place / "home")

    def fresh() -> None:
        shutil.rmtree(place, ignore_errors=True)

    def check() -> None:
        assert files(restored.folder) >= {"medusa.toml", "peer.key", "data/schemas/a.json"}
        assert [path.name for path in place.iterdir()] == ["home"]

    assert sweep(lambda: restore(tmp_path / "b", restored, tmp_path / "k", quiet), fresh, check) > 9
