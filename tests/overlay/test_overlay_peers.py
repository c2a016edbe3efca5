"""The peer table: only a peer speaks for itself, and its latest record counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay import peers as peers_module
from medusa.overlay.certificates import der
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import (
    BusyError,
    DamagedError,
    DecodeError,
    InvalidInputError,
    UntrustedError,
)
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.peer_records import DOMAIN, PeerRecord, Stamp
from medusa.overlay.peers import PeerTable
from medusa.overlay.signing import Signed, signed

NOW = 1_700_000_000.0
MIT, UTAH, EVIL = (Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "evil.org"))
ONE, TWO = Identity.issue(MIT, NOW), Identity.issue(UTAH, NOW)
STRANGER = Identity.issue(EVIL, NOW)
HERE, THERE = ("10.0.0.1", 7654), ("10.0.0.2", 7654)


def members() -> Membership:
    membership = Membership.found(MIT, NOW)
    membership.admit(MIT, UTAH.certificate, NOW)
    return membership


MEMBERS = members()


def table(identity: Identity = ONE, membership: Membership = MEMBERS) -> PeerTable:
    return PeerTable(identity, membership)


def record_of(identity: Identity, at: tuple[str, int] = THERE, now: float = NOW) -> PeerRecord:
    return table(identity).announce([at], now)


def refused(peers: PeerTable, data: bytes, now: float = NOW) -> Exception | None:
    (change,) = peers.merge([data], now)
    return change.error


def test_a_peer_makes_itself_known() -> None:
    peers = table()
    own = peers.announce([HERE], NOW)
    (change,) = peers.merge([record_of(TWO).data], NOW)
    assert (change.error, change.text) == (None, f"found peer {TWO.name} at 10.0.0.2:7654")
    record = peers.get(TWO.peer_id)
    assert record is not None
    assert (record.name, record.participant, record.addresses) == (TWO.name, "utah.edu", (THERE,))
    assert record.expires == NOW + 365 * 86400
    assert peers.addresses_of(TWO.peer_id) == (THERE,)
    assert peers.by_address(THERE) == record
    assert peers.all() == (own, record)
    assert peers.get(b"unknown") is None
    assert peers.addresses_of(b"unknown") == ()


def test_the_newer_incarnation_counts_whatever_the_order() -> None:
    old, new = record_of(TWO, HERE, NOW), record_of(TWO, THERE, NOW + 1)
    for order in ([old, new], [new, old], [new, new, old]):
        peers = table()
        peers.merge([record.data for record in order], NOW + 1)
        assert peers.addresses_of(TWO.peer_id) == (THERE,)
        assert peers.by_address(HERE) is None
    peers = table()
    peers.merge([new.data], NOW + 1)
    assert peers.merge([old.data], NOW + 1) == []


def test_a_clock_that_goes_back_does_not_make_a_peer_older() -> None:
    peers = table()
    first = peers.announce([HERE], NOW)
    second = peers.announce([THERE], NOW - 3600)
    assert second.stamp > first.stamp
    # after a restart, the other peers still hold the record from the faster clock
    restarted = table()
    restarted.announce([THERE], NOW - 3600)
    restarted.merge([first.data], NOW)
    own = restarted.get(ONE.peer_id)
    assert own is not None
    assert own.stamp > first.stamp
    assert own.addresses == (THERE,)


def test_a_record_made_with_our_key_is_outdone_whatever_it_says() -> None:
    """A forged record has the greatest version. The peer itself then makes a record of a later
    incarnation, and the others believe that one."""
    peers, others = table(), table(TWO)
    own = peers.announce([HERE], NOW)
    body = body_of(own)
    for version in (7, 2**62):
        stolen = forged([*body[:2], [THERE], int((NOW + 599) * 1e6), version], ONE)
        for each in (peers, others):
            each.merge([stolen], NOW)
        mine = peers.get(ONE.peer_id)
        assert mine is not None
        assert mine.addresses == (HERE,)
        others.merge([mine.data], NOW)
        assert others.addresses_of(ONE.peer_id) == (HERE,)


def test_records_taken_while_our_clock_was_ahead_give_way_to_present_ones() -> None:
    peers = table()
    peers.announce([HERE], NOW)
    wild, right = record_of(TWO, THERE, NOW + 100 * 86_400), record_of(TWO, HERE, NOW)
    peers.merge([wild.data], NOW + 100 * 86_400)
    assert peers.addresses_of(TWO.peer_id) == (THERE,)
    peers.merge([right.data], NOW)
    assert peers.addresses_of(TWO.peer_id) == (HERE,)


@pytest.mark.parametrize("behind_s", [3600, 7 * 3600])
def test_saved_records_that_lie_in_the_future_are_of_peers_that_may_run(
    tmp_path: Path, behind_s: int
) -> None:
    two, membership = Identity.issue(UTAH, NOW + behind_s), members()
    good = record_of(two, THERE, NOW + behind_s)
    before = table()
    before.announce([HERE], NOW + behind_s)
    before.merge([good.data, record_of(STRANGER).data], NOW + behind_s)
    assert before.missed() == []
    before.save(tmp_path)
    behind = table(membership=membership)
    for _ in range(2):  # the peer starts, and starts again
        behind.load(tmp_path, NOW)
        assert behind.all() == ()
        assert behind.missed() == [two.peer_id]
        assert behind.participant_of(two.peer_id, NOW) == "utah.edu"
        assert behind.participant_of(two.peer_id, NOW + 400 * 86400) == ""
        assert behind.participant_of(STRANGER.peer_id, NOW) == ""
        behind.save(tmp_path)
    behind.merge([good.data], NOW + behind_s)  # the clock is set right
    assert behind.missed() == []
    assert behind.participant_of(two.peer_id, NOW + behind_s) == "utah.edu"
    behind.load(tmp_path, NOW)
    membership.revoke(MIT, "utah.edu", now=NOW)
    assert behind.missed() == []


def test_once_our_clock_is_set_we_announce_ourselves_as_of_now() -> None:
    peers, others = table(), table(TWO)
    first = peers.announce([HERE], NOW)
    others.merge([first.data], NOW)
    peers.announce([HERE], NOW + 100 * 86_400)
    again = peers.announce_anew([THERE], NOW + 1)
    assert first.incarnation < again.incarnation <= (NOW + 1) * 1e6
    others.merge([again.data], NOW + 1)
    assert others.addresses_of(ONE.peer_id) == (THERE,)


def forged(body: object, signer: Identity) -> bytes:
    return encode(signed(signer.private_key, DOMAIN, encode(body)))


def body_of(record: PeerRecord) -> list[object]:
    payload = decode(record.data, Signed, limit=9000, what="").payload
    fields: list[object] = decode(payload, list[object], limit=9000, what="")
    return fields


def test_a_record_signed_by_another_peer_is_refused() -> None:
    peers = table()
    body = body_of(record_of(TWO))
    error = refused(peers, forged(body, ONE))
    assert isinstance(error, UntrustedError)
    assert "bad signature" in str(error)
    assert refused(peers, forged(body, TWO)) is None
    assert peers.get(TWO.peer_id) is not None


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        (0, "another federation", UntrustedError),
        (1, der(STRANGER.certificate), UntrustedError),
        (1, b"junk", UntrustedError),
        (2, [], DecodeError),
        (2, [["10.0.0.1", 1]] * 5, DecodeError),
        (2, [["peer.mit.edu", 1]], DecodeError),
        (2, [["0.0.0.0", 1]], DecodeError),
        (2, [["10.0.0.1", 0]], DecodeError),
        (2, [["10.0.0.1", 70000]], DecodeError),
        (2, [["fe80::1%eth0", 1]], DecodeError),
        (3, int((NOW + 3600) * 1e6), DecodeError),
        (3, 2**63, DecodeError),
        (3, -1, DecodeError),
        (4, -1, DecodeError),
    ],
)
def test_wrong_fields(field: int, value: object, error: type[Exception]) -> None:
    body = body_of(record_of(TWO))
    body[field] = value
    assert isinstance(refused(table(), forged(body, TWO)), error)


def test_strangers_and_expired_peers() -> None:
    strangers = Membership.found(EVIL, NOW)
    record = PeerTable(STRANGER, strangers).announce([HERE], NOW)
    assert isinstance(refused(table(), record.data), UntrustedError)
    late = NOW + 366 * 86400
    assert "expired" in str(refused(table(), record_of(TWO).data, late))


def test_revocation_removes_a_peer_from_sight() -> None:
    membership = members()
    peers = table(membership=membership)
    peers.merge([PeerTable(TWO, membership).announce([THERE], NOW).data], NOW)
    assert peers.get(TWO.peer_id) is not None
    membership.revoke(UTAH, "utah.edu", TWO.peer_id, now=NOW)
    assert peers.get(TWO.peer_id) is None
    assert peers.by_address(THERE) is None
    assert peers.all() == ()
    assert peers.missing(()) == ()
    peers.merge([], NOW)  # the record takes no room any more, either
    assert peers.have() == ()
    assert peers.by_address(THERE) is None


def test_expired_peers_are_forgotten_and_not_offered() -> None:
    peers = table()
    peers.announce([HERE], NOW)
    peers.merge([record_of(TWO).data], NOW)
    peers.merge([], NOW + 366 * 86400)
    assert [stamp.peer_id for stamp in peers.have()] == [ONE.peer_id]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "MAX_PEERS_PER_PARTICIPANT", 2)
    peers = table()
    records = [record_of(Identity.issue(UTAH, NOW)).data for _ in range(3)]
    errors = [change.error for change in peers.merge(records, NOW)]
    assert [type(error) for error in errors] == [type(None), type(None), BusyError]
    monkeypatch.setattr(peers_module, "MAX_PEERS", 2)
    assert isinstance(refused(peers, record_of(Identity.issue(MIT, NOW)).data), BusyError)


@pytest.mark.parametrize(
    "at",
    [
        ("peer.mit.edu", 1),
        ("0.0.0.0", 1),
        ("::", 1),
        ("10.0.0.1", 0),
        ("224.0.0.1", 1),
        ("255.255.255.255", 1),
        ("ff02::1", 1),
        ("::ffff:224.0.0.1", 1),
    ],
)
def test_invalid_announcements_are_refused(at: tuple[str, int]) -> None:
    with pytest.raises(InvalidInputError, match="cannot announce"):
        table().announce([at], NOW)


@given(st.binary(max_size=400))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(refused(table(), data), DecodeError)
    signed_junk = encode(signed(TWO.private_key, DOMAIN, data))
    assert isinstance(refused(table(), signed_junk), DecodeError)


def test_missing_returns_newer_and_unknown_records() -> None:
    peers = table()
    own = peers.announce([HERE], NOW)
    two = record_of(TWO)
    peers.merge([two.data], NOW)
    assert peers.missing(()) == (own.data, two.data)
    assert peers.missing(peers.have()) == ()
    older = Stamp(TWO.peer_id, two.incarnation - 1, 5)
    newer = Stamp(ONE.peer_id, own.incarnation, own.version + 1)
    assert peers.missing([older, newer]) == (two.data,)


def test_the_table_survives_a_restart(tmp_path: Path) -> None:
    peers = table()
    assert peers.load(tmp_path, NOW) == []
    own = peers.announce([HERE], NOW)
    peers.merge([record_of(TWO).data], NOW)
    peers.save(tmp_path)
    again = table()
    again.load(tmp_path, NOW + 60)
    assert again.addresses_of(TWO.peer_id) == (THERE,)
    assert again.announce([THERE], NOW + 60).stamp > own.stamp
    (tmp_path / "peers").write_bytes(b"junk")
    with pytest.raises(DamagedError, match="remove it"):
        table().load(tmp_path, NOW)
