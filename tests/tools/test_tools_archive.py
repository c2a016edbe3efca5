"""Archives of homes: what they hold, and those that are damaged, of others, or made to do harm."""

from __future__ import annotations

import io
import shutil
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overlay.errors import ConflictError, InvalidInputError, MedusaError, NotFoundError
from tools.commands.peer.archive import MANIFEST, Manifest, extract
from tools.commands.peer.backup import backup, restore
from tools.home.folder import Home
from tools.home.founding import make_peer


def quiet(_: int) -> None:
    """No progress is shown."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    place = Home(tmp_path / "home")
    make_peer(place, "mit.edu", "town")
    (place.data / "schemas").mkdir()
    (place.data / "schemas" / "a.json").write_bytes(b"{}" * 5000)
    return place


def test_a_home_that_does_not_run(home: Home, tmp_path: Path) -> None:
    file, keys = tmp_path / "b", tmp_path / "k"
    done = backup(home, file, keys, quiet)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (file, keys)} == {0o600}
    assert "data/schemas/a.json" in done.files
    assert not any("key" in name or "token" in name for name in done.files)
    secret = home.client_token()
    assert secret not in file.read_bytes()
    with pytest.raises(ConflictError, match="is there already"):
        backup(home, file, None, quiet)
    shutil.rmtree(home.folder)
    with pytest.raises(NotFoundError, match="say --keys"):
        restore(file, home, None, quiet)
    restore(file, home, keys, quiet)
    assert home.client_token() == secret
    assert (home.data / "schemas" / "a.json").read_bytes() == b"{}" * 5000
    assert (home.data / "restored.json").exists()


def test_keys_of_another_peer(home: Home, tmp_path: Path) -> None:
    backup(home, tmp_path / "b", None, quiet)
    other = Home(tmp_path / "other")
    make_peer(other, "utah.edu", "town")
    backup(other, tmp_path / "b2", tmp_path / "k", quiet)
    with pytest.raises(InvalidInputError, match="not the keys of this backup"):
        restore(tmp_path / "b", Home(tmp_path / "new"), tmp_path / "k", quiet)
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob(".*restoring"))


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    """Write an archive that `backup` would never write."""
    with (
        pa.CompressedOutputStream(str(path), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="w|") as tar,
    ):
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def named(name: str, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info, b"" if more else b"content"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([named("../outside")], "a home has no such file"),
        ([named("/etc/passwd")], "a home has no such file"),
        ([named("data/../../outside")], "a home has no such file"),
        ([named("peer.key")], "a home has no such file"),
        ([named(".bashrc")], "a home has no such file"),
        ([named("data//x")], "a home has no such file"),
        ([named("data/link", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "no plain file"),
        ([named("data/link", type=tarfile.LNKTYPE, linkname="../../x")], "no plain file"),
        ([named("data/pipe", type=tarfile.FIFOTYPE)], "no plain file"),
        ([named("data/device", type=tarfile.CHRTYPE)], "no plain file"),
        ([named("data/" + "n" * 2000)], "name is too long"),
        ([named("data/x"), named("data/x")], "twice"),
        ([named("data/x")], "its end is missing"),
        ([named(MANIFEST)], "manifest"),
        ([], "its end is missing"),
    ],
)
def test_archives_that_nobody_of_ours_wrote(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], reason: str
) -> None:
    path = tmp_path / "hostile"
    archive(path, *members)
    with pytest.raises(MedusaError, match=reason):
        extract(path, tmp_path / "into", quiet)
    inside = [p for p in tmp_path.rglob("*") if p.is_file() and p != path]
    assert all(p.is_relative_to(tmp_path / "into") for p in inside)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2] + b"\0" + data[len(data) // 2 + 1 :],
        lambda _: b"no archive at all",
        lambda _: b"",
    ],
)
def test_damaged_archives(home: Home, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file, keys, new = tmp_path / "b", tmp_path / "k", Home(tmp_path / "new")
    backup(home, file, keys, quiet)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InvalidInputError, match=str(file)):
        restore(file, new, keys, quiet)
    assert not new.folder.exists()


def test_a_file_that_is_not_as_the_manifest_has_it(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "b"
    done = backup(home, file, None, quiet)
    members = []
    with (
        pa.CompressedInputStream(str(file), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        for member in tar:
            content = tar.extractfile(member).read()
            if member.name == "medusa.toml":
                content = content.replace(b"#", b" ", 1)
            members.append((tarfile.TarInfo(member.name), content))
    archive(file, *members)
    with pytest.raises(InvalidInputError, match=r"1 files are not as.*'medusa.toml'"):
        extract(file, tmp_path / "into", quiet)
    assert isinstance(done, Manifest)
