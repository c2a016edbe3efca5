"""The store merges, bounds and keeps records."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from damaged_files import flip, make_folder

from medusa.dht import bodies as bodies_module
from medusa.dht import store as store_module
from medusa.dht.bodies import Bodies
from medusa.dht.database import Database, open_database
from medusa.dht.records import Publisher, Record, Subject, digest_of, seal
from medusa.dht.store import MAX_PER_KEY, Publication, RecordStore
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    DecodeError,
    InvalidInputError,
    StorageFullError,
    UntrustedError,
)
from medusa.overlay.events import Events
from medusa.overlay.identity import peer_id_of

NOW = 1_800_000_000.0
NOW_US = int(NOW * 1e6)
HOUR_US = 3_600_000_000
HERE = "federation"
KEYS = {peer_id_of(k.public_key()): k for k in (Ed25519PrivateKey.generate() for _ in range(9))}
*PEERS, UTAH = sorted(KEYS)
ONE = Subject("text", False, "medusa://mit.edu/notes")
MANY = Subject("producer", True, "medusa://mit.edu/notes")


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def publisher_of(peer_id: bytes) -> Publisher:
    if peer_id not in KEYS:
        raise UntrustedError("no member")
    participant = "utah.edu" if peer_id == UTAH else "mit.edu"
    return Publisher(participant, KEYS[peer_id].public_key())


def undamaged(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(tmp_path / "catalog.sqlite", undamaged) as database:
        yield database


@pytest.fixture
def store(database: Database, clock: Clock) -> RecordStore:
    return RecordStore(database, HERE, publisher_of, clock)


def sealed(
    subject: Subject,
    version: int,
    *,
    by: bytes = PEERS[0],
    issued: int = 0,
    body: bytes | None = b"body",
) -> bytes:
    at = NOW_US + issued
    record = Record(
        subject.kind, subject.many, subject.name, by, NOW_US + version, at, at + HOUR_US, body
    )
    return seal(record, HERE, KEYS[by])


def test_the_newest_version_stays(store: RecordStore) -> None:
    for version in (1, 3):
        store.accept(ONE.key, sealed(ONE, version))
    assert store.held(ONE.key) == [sealed(ONE, 3)]


def test_a_replayed_old_version_is_refused(store: RecordStore) -> None:
    store.accept(ONE.key, sealed(ONE, 3))
    with pytest.raises(ConflictError, match="older"):
        store.accept(ONE.key, sealed(ONE, 1))
    assert store.held(ONE.key) == [sealed(ONE, 3)]


def test_an_expired_version_still_keeps_older_ones_out(store: RecordStore, clock: Clock) -> None:
    store.accept(ONE.key, sealed(ONE, 3))
    old = sealed(ONE, 1, issued=10_000_000)
    clock.now += 3605
    assert store.held(ONE.key) == []
    with pytest.raises(ConflictError):
        store.accept(ONE.key, old)


def test_a_renewal_replaces_and_a_stale_renewal_does_not(store: RecordStore) -> None:
    first, renewed = sealed(ONE, 1), sealed(ONE, 1, issued=5)
    for data in (first, renewed, first):
        store.accept(ONE.key, data)
    assert store.held(ONE.key) == [renewed]


def test_another_peer_of_the_participant_replaces_a_single_record(store: RecordStore) -> None:
    store.accept(ONE.key, sealed(ONE, 1))
    newer = sealed(ONE, 2, by=PEERS[1])
    store.accept(ONE.key, newer)
    assert store.held(ONE.key) == [newer]


def test_equal_versions_end_the_same_in_any_order(tmp_path: Path, clock: Clock) -> None:
    pair = [sealed(ONE, 1), sealed(ONE, 1, body=b"other")]
    ends = []
    for order in (pair, pair[::-1]):
        with open_database(tmp_path / f"{len(ends)}.sqlite", undamaged) as database:
            store = RecordStore(database, HERE, publisher_of, clock)
            for data in order:
                store.accept(ONE.key, data)
            ends.append(store.held(ONE.key))
    assert ends[0] == ends[1]
    assert len(ends[0]) == 1


def test_the_store_keeps_the_newest_record_of_each_publisher(store: RecordStore) -> None:
    for peer in PEERS[:3]:
        for version in (1, 2):
            store.accept(MANY.key, sealed(MANY, version, by=peer))
    assert store.held(MANY.key) == [sealed(MANY, 2, by=peer) for peer in PEERS[:3]]
    with pytest.raises(ConflictError):
        store.accept(MANY.key, sealed(MANY, 1, by=PEERS[0]))


def test_a_key_keeps_six_publishers_and_drops_withdrawn_and_stale_ones(store: RecordStore) -> None:
    for age, peer in enumerate(PEERS[:MAX_PER_KEY]):
        store.accept(MANY.key, sealed(MANY, 1, by=peer, issued=age))
    store.accept(MANY.key, sealed(MANY, 2, by=PEERS[3], issued=50, body=None))
    store.accept(MANY.key, sealed(MANY, 1, by=PEERS[6], issued=60))
    store.accept(MANY.key, sealed(MANY, 1, by=PEERS[7], issued=61))
    publishers = [by for by in PEERS if any(by in data for data in store.held(MANY.key))]
    assert publishers == [PEERS[1], PEERS[2], PEERS[4], PEERS[5], PEERS[6], PEERS[7]]


def test_a_record_under_a_key_not_its_own_is_refused(store: RecordStore) -> None:
    with pytest.raises(UntrustedError, match="not its own"):
        store.accept(MANY.key, sealed(ONE, 1))


def test_garbage_is_refused(store: RecordStore) -> None:
    with pytest.raises(DecodeError):
        store.accept(ONE.key, b"garbage")


def test_known_statements_are_not_even_verified(store: RecordStore) -> None:
    store.accept(ONE.key, sealed(ONE, 3, issued=5))
    for peer in PEERS[:2]:
        store.accept(MANY.key, sealed(MANY, 3, by=peer))

    def verified(_peer_id: bytes) -> Publisher:
        raise AssertionError("this costs a signature check")

    store._publisher_of = verified
    for stale in (sealed(ONE, 3, issued=5), sealed(ONE, 3)):
        store.accept(ONE.key, stale)
    store.accept(MANY.key, sealed(MANY, 3, by=PEERS[1]))
    for subject in (ONE, MANY):
        with pytest.raises(ConflictError):
            store.accept(subject.key, sealed(subject, 2))
    with pytest.raises(UntrustedError, match="not its own"):
        store.accept(MANY.key, sealed(ONE, 4))
    with pytest.raises(AssertionError):
        store.accept(ONE.key, sealed(ONE, 4))
    assert store.held(ONE.key) == [sealed(ONE, 3, issued=5)]


def test_the_peers_of_a_participant_share_a_limit_that_renewals_do_not_count_against(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_PER_PARTICIPANT", 2)
    subjects = [Subject("text", False, f"medusa://mit.edu/{n}") for n in range(3)]
    for subject in subjects[:2]:
        store.accept(subject.key, sealed(subject, 1))
    store.accept(subjects[0].key, sealed(subjects[0], 2))
    with pytest.raises(BusyError):
        store.accept(subjects[2].key, sealed(subjects[2], 1))
    with pytest.raises(BusyError, match=r"mit\.edu"):
        store.accept(subjects[2].key, sealed(subjects[2], 1, by=PEERS[1]))
    theirs = Subject("text", False, "medusa://utah.edu/0")
    store.accept(theirs.key, sealed(theirs, 1, by=UTAH))
    store.accept(subjects[0].key, sealed(subjects[0], 3, by=PEERS[1]))


def test_the_limit_of_a_participant_survives_a_restart(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_PER_PARTICIPANT", 2)
    path = tmp_path / "catalog.sqlite"
    with open_database(path, undamaged) as database:
        store = RecordStore(database, HERE, publisher_of, clock)
        for peer in PEERS[:2]:
            store.accept(MANY.key, sealed(MANY, 1, by=peer))
    with open_database(path, undamaged) as database:
        store = RecordStore(database, HERE, publisher_of, clock)
        with pytest.raises(BusyError):
            store.accept(ONE.key, sealed(ONE, 1, by=PEERS[2]))


def test_all_together_have_a_limit(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_RECORDS", 1)
    store.accept(ONE.key, sealed(ONE, 1))
    with pytest.raises(BusyError):
        store.accept(MANY.key, sealed(MANY, 1))


def test_long_expired_records_are_purged_and_counted_off(
    store: RecordStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_PER_PARTICIPANT", 1)
    store.accept(ONE.key, sealed(ONE, 1))
    clock.now += 3600 + 50
    store.purge(100)
    assert store.remembered(ONE.key) == [sealed(ONE, 1)]
    clock.now += 100
    store.purge(100)
    assert store.remembered(ONE.key) == []
    late = sealed(MANY, 1, issued=3_750_000_000)
    store.accept(MANY.key, late)
    assert list(store.everything()) == [(MANY.key, late)]


def test_everything_survives_a_restart(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "catalog.sqlite"
    publications = [Publication(ONE, 5, b"body"), Publication(MANY, 6, None, 7)]
    with open_database(path, undamaged) as database:
        store = RecordStore(database, HERE, publisher_of, clock)
        store.accept(ONE.key, sealed(ONE, 1))
        for publication in publications:
            store.publish(publication)
    with open_database(path, undamaged) as database:
        store = RecordStore(database, HERE, publisher_of, clock)
        assert store.held(ONE.key) == [sealed(ONE, 1)]
        assert store.publications() == sorted(publications, key=lambda p: p.subject.kind)
        assert store.publication(MANY) == publications[1]
        store.forget(publications[1])
        assert store.publication(MANY) is None
    # the write-ahead log is merged into the file
    assert [p.name for p in tmp_path.iterdir()] == ["catalog.sqlite"]


def test_everything_comes_in_pages_that_miss_nothing(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "PAGE", 2)
    expected = [(MANY.key, sealed(MANY, 1, by=peer)) for peer in PEERS[:5]]
    expected.append((ONE.key, sealed(ONE, 1)))
    for key, data in expected:
        store.accept(key, data)
    assert sorted(store.everything()) == sorted(expected)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no database": lambda path: path.write_bytes(b"no database at all, however long it is" * 100),
    "a flipped bit in its head": lambda path: flip(path, 3),
    "a flipped bit in a page": lambda path: flip(path, 4096),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2 + 100),
    "a folder": make_folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_put_aside_and_reported(
    tmp_path: Path, clock: Clock, damage: str
) -> None:
    path = tmp_path / "catalog.sqlite"
    with open_database(path, undamaged) as database:
        store = RecordStore(database, HERE, publisher_of, clock)
        for number in range(50):
            store.publish(
                Publication(Subject("text", False, f"medusa://mit.edu/{number}"), 5, b"b")
            )
    DAMAGES[damage](path)
    told: list[str] = []
    for _ in range(2):
        with open_database(path, told.append) as database:
            store = RecordStore(database, HERE, publisher_of, clock)
            assert store.publications() in ([], [Publication(ONE, 5, b"body")])
            store.publish(Publication(ONE, 5, b"body"))
    (said,) = told
    assert f"{path}: damaged" in said
    assert "catalog.sqlite.damaged-1" in said
    assert (tmp_path / "catalog.sqlite.damaged-1").exists()


def test_the_wal_beside_a_lost_file_is_ignored(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "catalog.sqlite"
    with open_database(path, undamaged) as database:
        RecordStore(database, HERE, publisher_of, clock).publish(Publication(ONE, 5, b"body"))
        log = (tmp_path / "catalog.sqlite-wal").read_bytes()
    path.unlink()
    (tmp_path / "catalog.sqlite-wal").write_bytes(log)
    with open_database(path, undamaged) as database:
        assert RecordStore(database, HERE, publisher_of, clock).publications() == []


def test_records_of_the_future_hold_no_place_and_answer_no_request(
    store: RecordStore, clock: Clock
) -> None:
    """This peer stored a sibling's record of 100 days ahead while its own clock was as far ahead.
    Once its clock is right, such a record counts for nothing."""
    clock.now += 100 * 86_400
    ahead_us = 100 * 86_400 * 1_000_000
    for subject in (ONE, MANY):
        store.accept(subject.key, sealed(subject, ahead_us, issued=ahead_us, by=PEERS[1]))
    renewed = sealed(MANY, 1, issued=ahead_us)
    store.accept(MANY.key, renewed)
    clock.now = NOW
    assert store.held(ONE.key) == store.remembered(ONE.key) == store.held(MANY.key) == []
    assert list(store.everything()) == []
    mine, others = sealed(ONE, 1), sealed(MANY, 1)
    store.accept(ONE.key, mine)
    store.accept(MANY.key, others)
    assert store.held(ONE.key) == [mine]
    assert store.held(MANY.key) == [others], "an older renewal than that of the future"


def test_a_record_that_the_disk_has_changed_holds_no_place(
    store: RecordStore, database: Database
) -> None:
    store.accept(ONE.key, sealed(ONE, 3))
    database.change(("UPDATE records SET data = ?", (b"garbage",)))
    store.accept(ONE.key, sealed(ONE, 1))
    assert store.held(ONE.key) == [sealed(ONE, 1)]


def test_a_file_of_another_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(InvalidInputError, match="version 9"), open_database(path, undamaged):
        pass


def test_a_full_disk_changes_nothing_and_is_named(database: Database, store: RecordStore) -> None:
    store.publish(Publication(ONE, 1, b"old"))
    (pages,) = database.rows("PRAGMA page_count")[0]
    database.rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFullError, match="full"):
        store.publish(Publication(ONE, 2, bytes(100_000)))
    assert store.publication(ONE) == Publication(ONE, 1, b"old")


async def nobody(_peer: bytes, _digest: bytes) -> bytes:
    raise AssertionError


def test_cached_bodies_are_crowded_out_and_our_own_are_not(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies_module, "MAX_CACHED_BYTES", 25)
    bodies = Bodies(database, nobody, Events(clock), clock)
    own = bodies.keep(b"own body, however large", own=True)
    for number in range(4):
        clock.now += 1
        bodies.keep(b"cached %d..." % number, own=False)
    kept = [n for n in range(4) if bodies.get(digest_of(b"cached %d..." % n))]
    assert kept == [2, 3]
    assert bodies.get(own.digest) == b"own body, however large"
    clock.now += 1
    bodies.release(own.digest)
    bodies.keep(b"another", own=False)
    assert bodies.get(digest_of(b"cached 2...")) is None


def test_a_body_that_the_disk_has_changed_is_not_here(database: Database, clock: Clock) -> None:
    bodies = Bodies(database, nobody, Events(clock), clock)
    pointer = bodies.keep(b"own body", own=True)
    database.change(("UPDATE bodies SET body = ?", (b"own bodx",)))
    assert bodies.get(pointer.digest) is None
