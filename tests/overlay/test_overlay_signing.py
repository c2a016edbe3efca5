"""Signatures, the one decoder, and secrets on disk; any text is either a name, or gives the one
error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import (
    DecodeError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    StorageError,
    UntrustedError,
)
from medusa.overlay.events import Events
from medusa.overlay.files import read_secret, write_atomically, write_secret
from medusa.overlay.names import MAX_NAME, ObjectName, check_participant
from medusa.overlay.signing import Signed, sign, verify

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\1")


def test_a_signature_holds_for_its_key_purpose_and_payload_alone() -> None:
    signature = sign(KEY, "purpose", b"payload")
    verify(KEY.public_key(), "purpose", b"payload", signature)
    for key, domain, payload, given_signature in [
        (OTHER, "purpose", b"payload", signature),
        (KEY, "other", b"payload", signature),
        (KEY, "purpose", b"payloae", signature),
        (KEY, "purpose", b"payload", signature[:-1]),
        (KEY, "purpose", b"payload", b""),
        # the signature covers the boundary between domain and payload
        (KEY, "purposep", b"ayload", signature),
    ]:
        with pytest.raises(UntrustedError, match="bad signature"):
            verify(key.public_key(), domain, payload, given_signature)


@given(st.binary(max_size=200))
@example(b"\x92\xa2\xff\xfe\xc4\x00")
@example(b"\x91" * 5000)
@example(b"\x92\xc6\xff\xff\xff\xff")
@example(b"\xdd\xff\xff\xff\xff")
def test_any_bytes_decode_or_give_the_one_error(data: bytes) -> None:
    for kind in (Signed, list[str], dict[str, int], object):
        with suppress(DecodeError):
            decode(data, kind, limit=6000, what="thing")


def test_too_long_is_refused_before_reading() -> None:
    with pytest.raises(DecodeError, match="101 bytes, at most 100"):
        decode(encode(bytes(99)), bytes, limit=100, what="x")


def test_a_secret_is_written_closed_and_read_only_closed(tmp_path: Path) -> None:
    path = tmp_path / "peer.key"
    write_secret(path, b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    write_secret(path, b"two")
    assert read_secret(path) == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["peer.key"]
    for mode in (0o640, 0o604, 0o700, 0o644):
        path.chmod(mode)
        with pytest.raises(NotAuthorisedError, match=f"chmod 600 {path}"):
            read_secret(path)


def test_public_files_are_readable_by_all(tmp_path: Path) -> None:
    write_atomically(tmp_path / "root.crt", b"x")
    assert (tmp_path / "root.crt").stat().st_mode & 0o777 == 0o644


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        read_secret(tmp_path / "nothing")
    with pytest.raises(StorageError, match="missing: there is no such folder: make it"):
        write_atomically(tmp_path / "missing" / "x", b"")


def test_events_are_bounded_counted_and_printable() -> None:
    events = Events(lambda: 7.0)
    events.note("info", "a\x1b[2Jb")
    for _ in range(3):
        events.note("warning", "again")
    first, second = events.recent()
    assert (first.text, first.at, first.times) == ("a?[2Jb", 7.0, 1)
    assert (second.text, second.times) == ("again", 3)


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
participants = st.lists(labels, min_size=1, max_size=4).map(".".join)
segments = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True).filter(
    lambda s: s not in {".", ".."}
)


@given(participants, st.lists(segments, min_size=1, max_size=6))
def test_a_name_survives_writing_and_reading(participant: str, path: list[str]) -> None:
    name = ObjectName(participant, "/".join(path))
    assert ObjectName.parse(str(name)) == name


@given(st.text(max_size=300) | st.text(max_size=40).map(lambda s: "medusa://mit.edu/" + s))
def test_any_text_is_a_name_or_the_one_error(text: str) -> None:
    try:
        name = ObjectName.parse(text)
    except InvalidInputError:
        return
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://mit.edu/a", "medusa://participant/path"),
        ("medusa://mit.edu", "path segment"),
        ("medusa://mit.edu/", "path segment"),
        ("medusa://mit.edu/a//b", "path segment"),
        ("medusa://mit.edu/a/../b", "'..'"),
        ("medusa://mit.edu/.", "'.'"),
        ("medusa://mit.edu/a b", "'a b'"),
        ("medusa://MIT.edu/a", "'MIT'"),
        ("medusa:///a", "0 characters"),
        ("medusa://mit..edu/a", "''"),
        ("medusa://mit.edu/" + "a" * MAX_NAME, "at most 256"),
        ("medusa://mit.edu/a\n", "path segment"),
    ],
)
def test_errors_name_the_fault(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason.replace(".", r"\.")):
        ObjectName.parse(text)


@pytest.mark.parametrize(
    "text", ["", "-a", "a-", "a_b", "a.", ".a", "a" * 65, "mit.edu\n", "\u00e9cole.fr", "a/b"]
)
def test_no_participant(text: str) -> None:
    with pytest.raises(InvalidInputError, match="participant name"):
        check_participant(text)


def test_children() -> None:
    name = ObjectName.parse("medusa://mit.edu/conn")
    assert str(name.child("late")) == "medusa://mit.edu/conn/late"
    with pytest.raises(InvalidInputError):
        name.child("..")
