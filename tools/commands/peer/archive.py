"""A peer's files in one file: a tar archive, compressed by zstd, and a signed manifest.

The manifest stands behind the archive. It has the checksum of the archive, and the size and the
checksum of each file in it; the peer signed it. A reader verifies the signature, then the archive's
bytes, before it unpacks any of them or writes anything. It extracts them into a folder that is no
peer's home yet.

    archive | mark u32 | length u32 | manifest | signature (64) | length of manifest u32
                                                                                   (little endian)

All bytes behind the archive are a frame that readers of zstd skip, so `tar --zstd` lists the files.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from msgspec import Struct

from medusa.engine.streams.storage import sync_file
from medusa.overlay.addresses import Address
from medusa.overlay.encoding import decode_json, encode_json
from medusa.overlay.errors import InvalidInputError, StorageFullError, UntrustedError
from medusa.overlay.files import storing
from medusa.overlay.signing import sign, verify

VERSION: Final = 2

DOMAIN: Final = "backup manifest"
"""The domain of the peer's signature; see `medusa.overlay.signing`."""

_SKIPPED: Final = 0x184D2A5D
"""The mark of a frame that readers of zstd skip (RFC 8878); one of sixteen."""
_FRAME: Final = struct.Struct("<II")
_LENGTH: Final = struct.Struct("<I")
_SIGNATURE_BYTES: Final = 64

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
    }
)
"""Names that an archive may hold, at the top of a home: no key, no token, no program."""

_PIECE: Final = 2**20

Progress = Callable[[int], None]
"""A function that is called with the number of bytes done."""


@dataclass(frozen=True)
class Member:
    """A file to archive: its name in the archive, its path, and the number of bytes to take."""

    name: str
    path: Path
    size: int


class Manifest(Struct, frozen=True):
    """The contents of an archive.

    Attributes:
        made_at: seconds since the epoch. home: the folder that it was made from.
        address: the peer's address; None: it did not run.
        votes: the streams with replicas on which it had a vote.
        files: for each file's name, its number of bytes, and its SHA-256 in hex.
        archive: SHA-256 in hex of the archive itself, compressed.
    """

    version: int
    participant: str
    peer: str
    made_at: float
    home: str
    address: Address | None
    votes: tuple[str, ...]
    files: dict[str, tuple[int, str]]
    archive: str


def write_archive(
    file: Path,
    members: Iterable[Member],
    manifest: Callable[[dict[str, tuple[int, str]], str], Manifest],
    key: Ed25519PrivateKey,
    progress: Progress,
) -> Manifest:
    """Write an archive, mode 0600, which appears when it is complete; returns its manifest.

    Args:
        manifest: makes it from the files' sizes and checksums, and the archive's checksum.
        key: the peer's.

    Raises:
        StorageError: the disk does not take it. InvalidInputError: a file shrank meanwhile.
    """
    part = file.with_name(f".{file.name}.part")
    files: dict[str, tuple[int, str]] = {}
    try:
        with storing(file):
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
                body = _Summed(raw)
                with (
                    pa.CompressedOutputStream(pa.PythonFile(body, "w"), "zstd") as stream,
                    tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
                ):
                    for member in members:
                        files[member.name] = (member.size, _add(tar, member, progress))
                done = manifest(files, body.checksum.hexdigest())
                raw.write(sealed(done, key))
            sync_file(part)
            os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
    return done


def sealed(manifest: Manifest, key: Ed25519PrivateKey) -> bytes:
    """The signed manifest at the end of an archive."""
    content = encode_json(manifest)
    ending = content + sign(key, DOMAIN, content) + _LENGTH.pack(len(content))
    return _FRAME.pack(_SKIPPED, len(ending)) + ending


class _Summed(io.RawIOBase):
    """Passes bytes on to a file, and computes their checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.checksum = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        self.checksum.update(data)
        return self._file.write(data)


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


def extract(file: Path, into: Path, key: Ed25519PublicKey, progress: Progress) -> Manifest:
    """Extract an archive into a new folder, each file as it was archived.

    Args:
        key: the key of the peer that made it.
        progress: called with compressed bytes.

    Raises:
        InvalidInputError: the file is no archive of that peer, or is damaged; nothing was written.
            Or the archive has other files than its manifest says, or a file that no home has;
            remove the folder then.
        StorageError: the disk does not take it.
    """
    try:
        raw = file.open("rb")
    except OSError as error:
        raise InvalidInputError(f"{file}: cannot be read: {error.strerror}") from None
    with raw:
        manifest, length = _verified(file, raw, key)
        with storing(into):
            into.parent.mkdir(parents=True, exist_ok=True)
            into.mkdir(mode=0o700)
        _check_room(file, manifest, into)
        left = dict(manifest.files)
        with _reading(file, _Counted(raw, length, progress)) as tar:
            for member in tar:
                _check(file, member, into, left)
                if _write(tar, member, into) != left.pop(member.name)[1]:
                    raise InvalidInputError(f"{file}: {_other(manifest, member.name)}")
    if left:
        raise InvalidInputError(f"{file}: {_other(manifest, min(left))}")
    return manifest


def _other(manifest: Manifest, name: str) -> str:
    return f"one of {len(manifest.files)} files is not as its manifest has it: {name!a}"


def _verified(file: Path, raw: IO[bytes], key: Ed25519PublicKey) -> tuple[Manifest, int]:
    """Check an archive's manifest and bytes; returns the manifest and the length of the bytes that
    it describes.

    Raises:
        InvalidInputError: the peer with that key did not make this archive, or somebody changed it.
    """
    manifest, length = _manifest(file, raw, key)
    raw.seek(0)
    checksum, left = hashlib.sha256(), length
    while left and (data := raw.read(min(left, _PIECE))):
        checksum.update(data)
        left -= len(data)
    if checksum.hexdigest() != manifest.archive:
        raise InvalidInputError(f"{file}: damaged: its bytes are not those that its peer signed")
    raw.seek(0)
    return manifest, length


def _manifest(file: Path, raw: IO[bytes], key: Ed25519PublicKey) -> tuple[Manifest, int]:
    size = raw.seek(0, os.SEEK_END)
    raw.seek(max(0, size - _LENGTH.size))
    ending = raw.read()
    length = _LENGTH.unpack(ending)[0] if len(ending) == _LENGTH.size else 0
    frame = length + _SIGNATURE_BYTES + _LENGTH.size
    start = size - frame - _FRAME.size
    if start < 0 or not length or length > MAX_MANIFEST:
        raise InvalidInputError(f"{file}: no backup, or its end is missing")
    raw.seek(start)
    if raw.read(_FRAME.size) != _FRAME.pack(_SKIPPED, frame):
        raise InvalidInputError(f"{file}: no backup, or its end is missing")
    content, signature = raw.read(length), raw.read(_SIGNATURE_BYTES)
    try:
        verify(key, DOMAIN, content, signature)
    except UntrustedError:
        raise InvalidInputError(
            f"{file}: not signed with these keys: it is a backup of another peer, or somebody has "
            "changed it: take another copy"
        ) from None
    manifest = decode_json(content, Manifest, limit=MAX_MANIFEST, what=f"{file}: manifest")
    if manifest.version != VERSION:
        raise InvalidInputError(
            f"{file}: of version {manifest.version}; this program reads {VERSION}"
        )
    return manifest, start


def _check_room(file: Path, manifest: Manifest, into: Path) -> None:
    """Check the size of an archive.

    Raises:
        InvalidInputError: no home has so many files.
        StorageFullError: there is no room for them.
    """
    if len(manifest.files) > MAX_FILES:
        raise InvalidInputError(f"{file}: more than {MAX_FILES} files")
    needed = sum(size for size, _ in manifest.files.values())
    if needed > (free := shutil.disk_usage(into).free):
        raise StorageFullError(f"{file}: {needed} bytes, and {free} are free in {into}")


@contextmanager
def _reading(file: Path, archive: _Counted) -> Iterator[tarfile.TarFile]:
    """
    Raises:
        InvalidInputError: it is damaged.
    """
    try:
        with (
            pa.CompressedInputStream(pa.PythonFile(archive, "r"), "zstd") as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            yield tar
    except (tarfile.TarError, pa.ArrowException, EOFError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInputError(f"{file}: no backup, or damaged ({reason})") from None


class _Counted(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: IO[bytes], length: int, progress: Progress) -> None:
        super().__init__()
        self._file = file
        self._left = length
        self._progress = progress

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        self._progress(len(data))
        return data


def _check(
    file: Path, member: tarfile.TarInfo, into: Path, left: dict[str, tuple[int, str]]
) -> None:
    """
    Args:
        left: the files of the manifest that have not come yet.

    Raises:
        InvalidInputError: no archive of ours has such a member.
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
    if member.name not in left:
        raise InvalidInputError(f"{what}: it is there twice, or its manifest does not have it")
    if member.size != left[member.name][0]:
        raise InvalidInputError(
            f"{what}: {member.size} bytes, and its manifest says {left[member.name][0]}"
        )


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
