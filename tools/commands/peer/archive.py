"""A peer's files in one file: a tar archive, compressed by zstd, with a checksum of each.

The last member is the manifest, which lists all files as they were read. No part of an archive is
trusted before the whole is verified: it is extracted into a folder that is no peer's home yet.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import pyarrow as pa
from msgspec import Struct

from engine.streams.storage import sync_file
from overlay.addresses import Address
from overlay.encoding import decode_json, encode_json
from overlay.errors import InvalidInputError, StorageFullError
from overlay.files import storing

VERSION: Final = 1

MANIFEST: Final = "manifest.json"

MAX_FILES: Final = 1_000_000
"""Files in an archive: a hundred thousand streams, each with its journal and some epochs."""

MAX_MANIFEST: Final = 256 * 2**20
"""Bytes of the manifest: of as many files, with names of usual length."""

MAX_MEMBER_NAME: Final = 1024
"""Characters of a file's name in an archive: folders, and an object's name."""

ROOTS: Final = frozenset(
    {
        "data",
        "contracts",
        "medusa.toml",
        "bootstrap.json",
        "federation",
        "root.crt",
        "peer.crt",
        "ledger.sqlite",
        "ledger.sqlite.begun",
    }
)
"""Names that an archive may hold, at the top of a home: no key, no token, no program."""

_PIECE: Final = 2**20

Progress = Callable[[int], None]
"""Called with the number of bytes done."""


@dataclass(frozen=True)
class Member:
    """A file to archive: its name there, its path, and the number of bytes that count."""

    name: str
    path: Path
    size: int


class Manifest(Struct, frozen=True):
    """The contents of an archive, as its last member lists them.

    Attributes:
        made_at: seconds since the epoch. home: the folder that it was made from.
        address: the peer's address; None: it did not run.
        votes: the streams with replicas on which it had a vote.
        files: by name: bytes, and SHA-256 in hex.
    """

    version: int
    participant: str
    peer: str
    made_at: float
    home: str
    address: Address | None
    votes: tuple[str, ...]
    files: dict[str, tuple[int, str]]


def write_archive(
    file: Path,
    members: Iterable[Member],
    manifest: Callable[[dict[str, tuple[int, str]]], Manifest],
    progress: Progress,
) -> Manifest:
    """Write an archive, mode 0600, which appears when it is complete; returns its manifest.

    Args:
        manifest: makes it from the files' sizes and checksums.

    Raises:
        StorageError: the disk does not take it. InvalidInputError: a file shrank meanwhile.
    """
    part = file.with_name(f".{file.name}.part")
    files: dict[str, tuple[int, str]] = {}
    try:
        with storing(file):
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            with (
                pa.CompressedOutputStream(str(part), "zstd") as stream,
                tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                for member in members:
                    files[member.name] = (member.size, _add(tar, member, progress))
                done = manifest(files)
                content = encode_json(done)
                info = tarfile.TarInfo(MANIFEST)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            sync_file(part)
            os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
    return done


def _add(tar: tarfile.TarFile, member: Member, progress: Progress) -> str:
    """Add a file; returns its checksum."""
    with storing(member.path), member.path.open("rb") as opened:
        info = tarfile.TarInfo(member.name)
        info.size = member.size
        info.mtime = int(os.fstat(opened.fileno()).st_mtime)
        reader = _Hashing(opened, progress)
        try:
            tar.addfile(info, reader)  # type: ignore[arg-type]  # only `read` is used
        except OSError as error:
            if "unexpected end of data" in str(error):
                raise InvalidInputError(f"{member.path} became shorter: try again") from None
            raise
    return reader.checksum.hexdigest()


class _Hashing:
    """A file that computes the checksum of the bytes read."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self.checksum = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.checksum.update(data)
        self._progress(len(data))
        return data


def extract(file: Path, into: Path, progress: Progress) -> Manifest:
    """Extract an archive into a new folder, each file as it was archived.

    Args:
        progress: called with compressed bytes.

    Raises:
        InvalidInputError: it is no archive of ours, is damaged, or has a file that no home has;
            remove the folder then.
        StorageError: the disk does not take it.
    """
    with storing(into):
        into.mkdir(mode=0o700)
    found: dict[str, tuple[int, str]] = {}
    manifest: Manifest | None = None
    with _reading(file, progress) as tar:
        for member in tar:
            if manifest is not None:
                raise InvalidInputError(f"{file}: it goes on behind its manifest")
            if member.name == MANIFEST:
                manifest = _manifest(file, tar, member)
                continue
            _check(file, member, into, found)
            found[member.name] = (member.size, _write(tar, member, into))
    if manifest is None:
        raise InvalidInputError(f"{file}: its end is missing")
    _compare(file, manifest, found)
    return manifest


@contextmanager
def _reading(file: Path, progress: Progress) -> Iterator[tarfile.TarFile]:
    """
    Raises:
        InvalidInputError: it is damaged.
    """
    try:
        raw: Any = file.open("rb")
    except OSError as error:
        raise InvalidInputError(f"{file}: cannot be read: {error.strerror}") from None
    with raw:
        try:
            counted = pa.PythonFile(_Counted(raw, progress), "r")
            with (
                pa.CompressedInputStream(counted, "zstd") as stream,
                tarfile.open(fileobj=stream, mode="r|") as tar,
            ):
                yield tar
        except (tarfile.TarError, pa.ArrowException, EOFError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InvalidInputError(f"{file}: no backup, or damaged ({reason})") from None


class _Counted(io.RawIOBase):
    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        super().__init__()
        self._file = file
        self._progress = progress

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._progress(len(data))
        return data


def _check(file: Path, member: tarfile.TarInfo, into: Path, found: dict[str, Any]) -> None:
    """
    Raises:
        InvalidInputError: no archive of ours has such a member.
        StorageFullError: there is no room for it.
    """
    what = f"{file}: member {member.name[:80]!a}"
    path = PurePosixPath(member.name)
    if not member.isreg() or len(member.name) > MAX_MEMBER_NAME:
        raise InvalidInputError(f"{what}: it is no plain file, or its name is too long")
    if str(path) != member.name or ".." in path.parts or path.parts[0] not in ROOTS:
        raise InvalidInputError(f"{what}: a home has no such file")
    try:
        tarfile.data_filter(member, str(into))
    except tarfile.FilterError as error:
        raise InvalidInputError(f"{what}: {error}") from None
    if member.name in found:
        raise InvalidInputError(f"{what}: it is there twice")
    if len(found) >= MAX_FILES:
        raise InvalidInputError(f"{file}: more than {MAX_FILES} files")
    if member.size > (free := shutil.disk_usage(into).free):
        raise StorageFullError(f"{what}: {member.size} bytes, and {free} are free in {into}")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> str:
    """Write a file; returns its checksum."""
    path = into / member.name
    checksum = hashlib.sha256()
    source = tar.extractfile(member)
    assert source is not None, "it is a plain file"
    data = source.read(_PIECE)
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            while data:
                checksum.update(data)
                target.write(data)
                data = source.read(_PIECE)
            target.flush()
            os.fsync(target.fileno())
        os.utime(path, (member.mtime, member.mtime))
    return checksum.hexdigest()


def _manifest(file: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> Manifest:
    if not member.isreg() or member.size > MAX_MANIFEST:
        raise InvalidInputError(f"{file}: its manifest is no file, or too long")
    source = tar.extractfile(member)
    assert source is not None, "it is a plain file"
    manifest = decode_json(source.read(), Manifest, limit=MAX_MANIFEST, what=f"{file}: manifest")
    if manifest.version != VERSION:
        raise InvalidInputError(
            f"{file}: of version {manifest.version}; this program reads {VERSION}"
        )
    return manifest


def _compare(file: Path, manifest: Manifest, found: dict[str, tuple[int, str]]) -> None:
    if manifest.files == found:
        return
    names = sorted(
        name for name in {*manifest.files, *found} if manifest.files.get(name) != found.get(name)
    )
    raise InvalidInputError(
        f"{file}: {len(names)} files are not as its manifest has them: {names[0]!a}"
    )
