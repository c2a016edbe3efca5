"""Any bytes in an untrusted datagram or record give a frame or a DecodeError."""

from __future__ import annotations

from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from medusa.dht.records import (
    DOMAIN,
    MAX_BODY_BYTES,
    MAX_RECORD_BYTES,
    Pointer,
    Publisher,
    Record,
    Subject,
    newer,
    read_record,
    seal,
    verify_record,
)
from medusa.dht.wire import (
    MAX_DATAGRAM,
    FindNode,
    FindValue,
    Found,
    Frame,
    Ping,
    Pong,
    Reply,
    Request,
    Store,
    Stored,
    decode_frame,
    encode_reply,
    encode_request,
)
from medusa.overlay.encoding import encode
from medusa.overlay.errors import DecodeError, InvalidInputError, MedusaError, UntrustedError
from medusa.overlay.identity import peer_id_of
from medusa.overlay.signing import Signed, sign

KEY, OTHER_KEY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
PEER, OTHER = peer_id_of(KEY.public_key()), peer_id_of(OTHER_KEY.public_key())
NOW = 1_800_000_000.0
NOW_US = int(NOW * 1e6)
HOUR_US = 3_600_000_000
HERE = "federation"


def publisher_of(peer_id: bytes) -> Publisher:
    if peer_id == PEER:
        return Publisher("mit.edu", KEY.public_key())
    if peer_id == OTHER:
        return Publisher("evil.example", OTHER_KEY.public_key())
    raise UntrustedError("no member")


def record(**changes: object) -> Record:
    fields = {
        "kind": "text",
        "many": False,
        "name": "medusa://mit.edu/notes",
        "publisher": PEER,
        "version": NOW_US,
        "issued_at": NOW_US,
        "expires_at": NOW_US + HOUR_US,
        "body": b"body",
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"x" * 500, Pointer(bytes(32), 1), None])
def test_a_sealed_record_is_believed(body: bytes | Pointer | None) -> None:
    data = seal(record(body=body), HERE, KEY)
    assert verify_record(data, HERE, publisher_of, NOW) == record(body=body)


def test_the_longest_name_and_the_largest_inline_body_fit() -> None:
    name = "medusa://" + "m" * 60 + ".edu/" + "p" * (256 - 9 - 65)
    assert len(name) == 256
    data = seal(record(name=name, kind="k" * 32, body=b"x" * 512, version=2**62), HERE, KEY)
    assert len(data) <= MAX_RECORD_BYTES


def test_a_record_signed_by_someone_else_is_not_believed() -> None:
    with pytest.raises(UntrustedError, match="bad signature"):
        verify_record(seal(record(), HERE, OTHER_KEY), HERE, publisher_of, NOW)


def test_a_record_of_another_federation_is_not_believed() -> None:
    data = seal(record(), "another", KEY)
    assert verify_record(data, "another", publisher_of, NOW) == record()
    with pytest.raises(UntrustedError, match="bad signature"):
        verify_record(data, HERE, publisher_of, NOW)


def test_a_record_of_another_participants_name_is_not_believed() -> None:
    data = seal(record(publisher=OTHER), HERE, OTHER_KEY)
    with pytest.raises(UntrustedError, match=r"only mit\.edu may"):
        verify_record(data, HERE, publisher_of, NOW)


def test_a_record_of_no_member_is_not_believed() -> None:
    with pytest.raises(UntrustedError, match="no member"):
        verify_record(seal(record(publisher=bytes(20)), HERE, KEY), HERE, publisher_of, NOW)


def test_an_expired_record_is_not_believed_unless_asked_for() -> None:
    data = seal(record(), HERE, KEY)
    later = NOW + 3600
    with pytest.raises(UntrustedError, match="expired"):
        verify_record(data, HERE, publisher_of, later)
    assert verify_record(data, HERE, publisher_of, later, expired_ok=True) == record()


@pytest.mark.parametrize("field", ["version", "issued_at"])
def test_a_record_from_the_future_is_not_believed(field: str) -> None:
    ahead = NOW_US + 61_000_000
    data = seal(record(**{field: ahead}), HERE, KEY)
    with pytest.raises(UntrustedError, match="future"):
        verify_record(data, HERE, publisher_of, NOW)


def test_a_signature_for_another_purpose_is_not_believed() -> None:
    payload = encode(record())
    data = encode(Signed(payload, sign(KEY, "medusa peer record", payload)))
    with pytest.raises(UntrustedError, match="bad signature"):
        verify_record(data, HERE, publisher_of, NOW)


def test_too_large_a_record_is_neither_made_nor_read() -> None:
    with pytest.raises(InvalidInputError, match="at most 1024"):
        seal(record(body=b"x" * 1000), HERE, KEY)
    payload = encode(record(body=b"x" * 1000))
    with pytest.raises(DecodeError, match="at most 1024"):
        read_record(encode(Signed(payload, bytes(64))))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "Text"},
        {"kind": "k" * 33},
        {"name": "medusa://mit.edu/../x"},
        {"name": "http://mit.edu/x"},
        {"publisher": b"short"},
        {"version": 0},
        {"version": 2**63},
        {"issued_at": -1},
        {"expires_at": NOW_US},
        {"expires_at": NOW_US + 25 * HOUR_US},
        {"body": Pointer(b"short", 5)},
        {"body": Pointer(bytes(32), 0)},
        {"body": Pointer(bytes(32), MAX_BODY_BYTES + 1)},
    ],
)
def test_impossible_content_is_malformed(changes: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        verify_record(seal(record(**changes), HERE, KEY), HERE, publisher_of, NOW)


def test_a_second_encoding_of_the_same_record_is_malformed() -> None:
    payload = encode(record())
    longer = payload.replace(b"\xa4text", b"\xd9\x04text")
    data = encode(Signed(longer, sign(KEY, DOMAIN + HERE, longer)))
    with pytest.raises(DecodeError, match="canonical"):
        verify_record(data, HERE, publisher_of, NOW)


def test_keys_differ_by_kind_rule_and_name() -> None:
    subjects = [
        Subject("a", False, "medusa://m/b"),
        Subject("a", True, "medusa://m/b"),
        Subject("b", False, "medusa://m/b"),
        Subject("a", False, "medusa://m/c"),
    ]
    assert len({subject.key for subject in subjects}) == 4


def test_a_newer_version_beats_a_later_renewal() -> None:
    old = record(issued_at=NOW_US + 5, expires_at=NOW_US + HOUR_US)
    assert newer(record(version=NOW_US + 1), old)
    assert newer(old, record())
    assert not newer(record(), record())


@given(st.binary(max_size=1200))
def test_any_bytes_give_a_documented_error(data: bytes) -> None:
    with pytest.raises(MedusaError) as caught:
        verify_record(data, HERE, publisher_of, NOW)
    assert type(caught.value) in {DecodeError, UntrustedError}


@given(st.data())
def test_no_changed_byte_is_believed(data: st.DataObject) -> None:
    good = seal(record(), HERE, KEY)
    at = data.draw(st.integers(0, len(good) - 1))
    flip = data.draw(st.integers(1, 255))
    bad = good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]
    with pytest.raises((DecodeError, UntrustedError)):
        verify_record(bad, HERE, publisher_of, NOW)


CALL = bytes(range(20))


@pytest.mark.parametrize(
    "message", [Ping(), Store(CALL, b"v" * 1024), FindNode(CALL), FindValue(CALL)]
)
def test_requests_round_trip(message: Request) -> None:
    assert decode_frame(encode_request(CALL, message)) == Frame(CALL, message)


@pytest.mark.parametrize(
    "message", [Pong(), Stored(), Stored("conflict", "why"), Found([CALL] * 20, [b"v" * 1024] * 6)]
)
def test_replies_round_trip_and_fit_a_datagram(message: Reply) -> None:
    data = encode_reply(CALL, message)
    assert len(data) <= MAX_DATAGRAM
    assert decode_frame(data) == Frame(CALL, message)


@pytest.mark.parametrize(
    "message", [Store(b"short", b"v"), Store(CALL, b"v" * 1025), FindNode(CALL + b"x")]
)
def test_requests_out_of_bounds_are_malformed(message: Request) -> None:
    with pytest.raises(DecodeError):
        decode_frame(encode_request(CALL, message))


@pytest.mark.parametrize(
    "message",
    [Found([CALL] * 21), Found([b"short"]), Found([], [b"v"] * 7), Stored("c", "r" * 1025)],
)
def test_replies_out_of_bounds_are_malformed(message: Reply) -> None:
    with pytest.raises(DecodeError):
        decode_frame(encode_reply(CALL, message))


def test_a_reply_is_no_request() -> None:
    with pytest.raises(DecodeError):
        decode_frame(b"\x00" + encode_reply(CALL, Pong())[1:])


def test_too_long_a_datagram_is_not_read() -> None:
    with pytest.raises(DecodeError, match="8193"):
        decode_frame(bytes(MAX_DATAGRAM + 1))


@given(st.sampled_from([b"\x00", b"\x01", b""]), st.binary(max_size=200))
def test_any_bytes_decode_or_raise_decode_error(head: bytes, data: bytes) -> None:
    with suppress(DecodeError):
        decode_frame(head + data)


@given(st.binary(max_size=64))
def test_any_content_after_a_good_head_decodes_or_raises_decode_error(data: bytes) -> None:
    with suppress(DecodeError):
        decode_frame(b"\x01" + CALL + b"\x91\x93\xa5found" + data)
