from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from damaged_files import flip
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.streams.journal.journal import Journal, Record
from medusa.overlay.errors import DamagedError, InvalidInputError, StorageError, StorageFullError
from medusa.overlay.inventory import Inventory

ENTRIES = [(b"first", b"x" * 30), (b"", b""), (b"third", b""), (b"m" * 40, b"y" * 7)]


class OpeningReports:
    """The reports of a journal at its opening. `at`: the entries before each loss."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.lost: list[str] = []
        self.at: list[int] = []
        self.ends_torn = False

    def restore(self, record: Record) -> None:
        self.records.append(record)

    def missing(self, what: str) -> None:
        self.lost.append(what)
        self.at.append(len(self.records))

    def torn(self, what: str) -> None:
        assert ".journal: its last " in what
        self.ends_torn = True

    def state(self) -> bytes:
        return b"state after %d" % len(self.records)


def heard(folder: Path, *, durable: bool = False) -> tuple[Journal, OpeningReports]:
    reader = OpeningReports()
    return Journal.open(folder, reader, durable=durable), reader


def read(folder: Path, *, durable: bool = False) -> tuple[Journal, list[Record]]:
    """Return a whole journal."""
    journal, reader = heard(folder, durable=durable)
    assert not reader.lost
    return journal, reader.records


def entries(folder: Path) -> list[tuple[bytes, bytes]]:
    journal, records = read(folder)
    journal.close()
    return contents(records)


def contents(records: Sequence[Record]) -> list[tuple[bytes, bytes]]:
    return [(r.meta, r.body) for r in records if not r.first]


def written(folder: Path) -> list[int]:
    """Write a journal of one segment; return the length after each entry."""
    journal, records = read(folder)
    assert records == []
    journal.begin(b"snapshot")
    sizes = [journal.size]
    for meta, body in ENTRIES:
        journal.append(meta, body)
        sizes.append(journal.size)
    journal.close()
    return sizes


def test_appended_entries_are_read_again(tmp_path: Path) -> None:
    written(tmp_path)
    journal, records = read(tmp_path)
    assert records[0] == Record(1, True, b"snapshot", b"")
    assert contents(records) == ENTRIES
    journal.append(b"more", memoryview(b"body"))
    journal.close()
    assert entries(tmp_path) == [*ENTRIES, (b"more", b"body")]


def test_cut_at_every_byte_gives_the_whole_entries_and_goes_on(tmp_path: Path) -> None:
    sizes = written(tmp_path / "whole")
    data = (tmp_path / "whole" / "000000000001.journal").read_bytes()
    for length in range(sizes[0], len(data) + 1):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / "000000000001.journal").write_bytes(data[:length])
        whole = sum(size <= length for size in sizes) - 1
        journal, records = read(folder)
        assert contents(records) == ENTRIES[:whole]
        journal.append(b"next", b"1")
        journal.close()
        assert entries(folder) == [*ENTRIES[:whole], (b"next", b"1")]


def test_a_crash_at_every_byte_of_a_new_segment_leaves_the_old_one(tmp_path: Path) -> None:
    written(tmp_path)
    for length in range(30):
        (tmp_path / ".tmp-2").write_bytes(b"\0" * length)
        journal, records = read(tmp_path)
        assert contents(records) == ENTRIES
        assert journal.segments == (1,)
        journal.close()
        assert not (tmp_path / ".tmp-2").exists()


@pytest.mark.parametrize("left", [b"", b"torn", b"\0" * 4096], ids=["nothing", "a bit", "zeros"])
@pytest.mark.parametrize("durable", [False, True])
def test_a_newest_segment_without_a_snapshot_goes_on_from_the_segments_before(
    tmp_path: Path, left: bytes, durable: bool
) -> None:
    written(tmp_path)
    path = tmp_path / "000000000002.journal"
    path.write_bytes(left)
    journal, reader = heard(tmp_path, durable=durable)
    assert contents(reader.records) == ENTRIES
    (lost,) = reader.lost
    assert lost.startswith(f"{path}: {len(left)} bytes from byte 0 on are damaged")
    assert reader.at == [1 + len(ENTRIES)]
    assert reader.records[-1] == Record(2, True, b"state after 5", b"")
    assert path.with_suffix(".damaged").read_bytes() == left
    journal.append(b"next", b"1")
    journal.close()
    journal, records = read(tmp_path)
    assert contents(records) == [*ENTRIES, (b"next", b"1")]
    assert journal.segments == (1, 2)
    journal.close()


def test_the_only_segment_may_be_lost(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "000000000001.journal").write_bytes(b"torn")
    journal, reader = heard(tmp_path)
    assert reader.records == [Record(1, True, b"state after 0", b"")]
    assert len(reader.lost) == 1
    journal.begin(b"anew")
    journal.close()
    assert (tmp_path / "000000000001.damaged").read_bytes() == b"torn"


def test_a_segment_before_the_newest_may_have_lost_its_end(tmp_path: Path) -> None:
    journal, _ = read(tmp_path)
    for _ in range(2):
        journal.begin(b"s")
        journal.append(b"entry", b"")
    journal.close()
    path = tmp_path / "000000000001.journal"
    path.write_bytes(path.read_bytes()[:-1])
    journal, reader = heard(tmp_path)
    assert [record.segment for record in reader.records] == [1, 2, 2]
    assert reader.at == [1]
    assert f"{path}: " in reader.lost[0]
    journal.close()
    assert len(entries(tmp_path)) == 1


def test_a_flipped_bit_in_the_only_snapshot_leaves_the_entries(tmp_path: Path) -> None:
    sizes = written(tmp_path)
    path = tmp_path / "000000000001.journal"
    flip(path, 15)
    journal, reader = heard(tmp_path)
    journal.close()
    assert reader.at == [0]
    assert f"{sizes[0]} bytes from byte 0 on are damaged" in reader.lost[0]
    assert contents(reader.records) == ENTRIES
    assert entries(tmp_path) == ENTRIES


def test_segments_follow_each_other_and_the_oldest_go(tmp_path: Path) -> None:
    journal, _ = read(tmp_path)
    for number in range(1, 5):
        journal.begin(b"s%d" % number)
        journal.append(b"e%d" % number, b"")
    journal.drop(3)
    journal.drop(99)
    assert journal.segments == (4,)
    journal.begin(b"s5")
    journal.append(b"e5", b"")
    journal.close()
    journal, records = read(tmp_path)
    assert [(r.segment, r.first, r.meta) for r in records] == [
        (4, True, b"s4"),
        (4, False, b"e4"),
        (5, True, b"s5"),
        (5, False, b"e5"),
    ]
    assert journal.segment == 5
    journal.close()


@pytest.mark.parametrize("gone", [(2,), (3,), (2, 3), (2, 4)])
def test_missing_segments_are_reported_once(tmp_path: Path, gone: tuple[int, ...]) -> None:
    journal, _ = read(tmp_path)
    for number in range(1, 6):
        journal.begin(b"s%d" % number)
        journal.append(b"entry %d" % number, b"")
    journal.close()
    for number in gone:
        (tmp_path / f"{number:012d}.journal").unlink()
    left = [(b"entry %d" % number, b"") for number in range(1, 6) if number not in gone]
    journal, reader = heard(tmp_path)
    assert contents(reader.records) == left
    assert journal.segments == tuple(range(1 + len(gone), 6))
    gaps = [(2, 3)] if gone == (2, 3) else [(number, number) for number in gone]
    assert [text.partition(": journal segments ")[2].split(" ")[0] for text in reader.lost] == [
        f"{first}..{last}" for first, last in gaps
    ]
    assert [reader.records[at].meta for at in reader.at] == [
        b"s%d" % (last + 1) for _, last in gaps
    ]
    journal.append(b"more", b"")
    journal.close()
    assert entries(tmp_path) == [*left, (b"more", b"")]


@pytest.mark.parametrize(
    ("gone", "told", "lost_end"),
    [
        ((3,), ["3..3"], False),
        ((3, 4), ["3..4"], False),
        ((5,), ["5..5"], True),
        ((4, 5), ["4..5"], True),
        ((3, 5), ["3..3", "5..5"], True),
        ((3, 4, 5), ["3..5"], True),
    ],
)
@pytest.mark.parametrize("folder", [True, False])
def test_missing_segments_at_both_ends_are_reported_once(
    tmp_path: Path, gone: tuple[int, ...], told: list[str], lost_end: bool, folder: bool
) -> None:
    place = tmp_path / "journal"
    journal, _ = read(place)
    for number in range(1, 6):
        journal.begin(b"s%d" % number)
        journal.append(b"entry %d" % number, b"")
    journal.drop(3)
    journal.close()
    for number in gone:
        (place / f"{number:012d}.journal").unlink()
    if folder and len(gone) == 3:
        place.rmdir()
    left = [(b"entry %d" % number, b"") for number in range(3, 6) if number not in gone]
    journal, reader = heard(place)
    assert contents(reader.records) == left
    assert [text.partition(": journal segments ")[2].split(" ")[0] for text in reader.lost] == told
    assert journal.lost_end == lost_end
    journal.begin(b"snapshot")
    journal.append(b"more", b"")
    journal.close()
    assert entries(place) == [*left, (b"more", b"")]


def test_a_crash_between_a_segment_and_its_inventory_is_no_loss(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    journal, _ = read(place)
    for number in range(1, 4):
        journal.begin(b"s%d" % number)
    before = journal_inventory(place).read_bytes()
    journal.begin(b"s4")
    journal.close()
    # as after a crash between the making of segment 4's file and the line of the inventory that
    # names it
    journal_inventory(place).write_bytes(before)
    journal, _ = read(place)
    journal_inventory(place).write_bytes(journal_inventory(place).read_bytes() + b"-000000000001")
    journal.close()  # a part of a line was written, the file was not
    journal, _ = read(place)
    assert journal.segments == (1, 2, 3, 4)
    journal.close()


def journal_inventory(folder: Path) -> Path:
    return Inventory(folder).path


def test_a_full_disk_leaves_no_part_of_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = read(tmp_path)
    journal.begin(b"s")
    journal.append(b"kept", b"")
    real = os.pwritev
    room = 7

    def nearly_full(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(descriptor, [b"".join(buffers)[:room]], offset)
        room -= count
        return count

    monkeypatch.setattr(os, "pwritev", nearly_full)
    with pytest.raises(StorageFullError, match=r"no room for 000000000001.journal"):
        journal.append(b"refused", b"z" * 100)
    with pytest.raises(StorageFullError):
        journal.begin(b"snapshot")
    monkeypatch.undo()
    assert journal.segment == 1
    assert (tmp_path / "000000000001.journal").stat().st_size == journal.size
    journal.append(b"after", b"")
    journal.close()
    assert entries(tmp_path) == [(b"kept", b""), (b"after", b"")]
    assert [p.name for p in tmp_path.iterdir()] == ["000000000001.journal"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = read(tmp_path)
    real = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, buffers, at: real(fd, [b"".join(buffers)[:5]], at)
    )
    journal.begin(b"snapshot")
    journal.append(b"meta" * 3, b"body" * 5)
    journal.close()
    monkeypatch.undo()
    assert entries(tmp_path) == [(b"meta" * 3, b"body" * 5)]


def test_durable_writes_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal = Journal.open(tmp_path, OpeningReports(), durable=True)
    journal.begin(b"s")
    journal.append(b"e", b"")
    journal.close()
    assert len(synced) == 3, "the segment, its name in the inventory, and the entry"


def test_entries_that_are_too_long_are_refused(tmp_path: Path) -> None:
    journal, _ = read(tmp_path)
    journal.begin(b"s")
    with pytest.raises(InvalidInputError):
        journal.append(b"", bytes(16 * 2**20 + 1))
    journal.close()


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.integers(0, 255), st.binary(max_size=40))
def test_damage_never_gives_other_entries(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, tail: bytes
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    sizes = written(folder)
    path = folder / "000000000001.journal"
    data = bytearray(path.read_bytes() + tail)
    at = sizes[0] + at % (len(data) - sizes[0])
    data[at] = value
    path.write_bytes(data)
    journal, reader = heard(folder)
    journal.close()
    found = contents(reader.records)
    assert [entry for entry in ENTRIES if entry in found] == found
    assert len(found) >= sum(size <= at for size in sizes) - 1


METAS = st.builds(
    lambda name, rest: msgspec.msgpack.encode([name, *rest]),
    st.text(max_size=40),
    st.lists(st.integers(-5, 2**40), max_size=11),
)
"""Entries' metadata as a source writes it."""

DAMAGE = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 300), st.booleans()), max_size=4)
"""Places within the file, the number of damaged bytes, and whether these become zeros or wrong
bytes."""


@settings(max_examples=150)
@given(st.lists(st.tuples(METAS, st.binary(max_size=200)), min_size=1, max_size=30), DAMAGE)
def test_whole_entries_are_found_whatever_is_damaged(
    tmp_path_factory: pytest.TempPathFactory,
    given_entries: list[tuple[bytes, bytes]],
    damage: list[tuple[float, int, bool]],
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal, _ = read(folder)
    journal.begin(b"snapshot")
    places = [(0, journal.size)]
    for meta, body in given_entries:
        start = journal.size
        journal.append(meta, body)
        places.append((start, journal.size))
    journal.close()
    path = folder / "000000000001.journal"
    whole = path.read_bytes()
    data = bytearray(whole)
    for share, length, zeros in damage:
        start = int(share * len(data))
        part = data[start : start + length]
        data[start : start + length] = bytes(len(part)) if zeros else bytes(b ^ 255 for b in part)
    path.write_bytes(data)
    untouched = [whole[a:b] == data[a:b] for a, b in places]
    journal, reader = heard(folder)
    assert contents(reader.records) == [
        entry for entry, same in zip(given_entries, untouched[1:], strict=True) if same
    ]
    # A length of the last entry that exceeds the file looks like a torn entry.
    assert (bool(reader.lost) or reader.ends_torn) == (not all(untouched))
    journal.append(b"more", b"")
    journal.close()
    journal, again = heard(folder)
    journal.close()
    assert again.lost == []
    assert contents(again.records) == [*contents(reader.records), (b"more", b"")]


def test_the_last_entry_may_be_damaged_and_is_not_torn_then(tmp_path: Path) -> None:
    sizes = written(tmp_path)
    flip(tmp_path / "000000000001.journal", sizes[-1] - 1)
    journal, reader = heard(tmp_path)
    journal.close()
    assert contents(reader.records) == ENTRIES[:-1]
    assert f"{sizes[-1] - sizes[-2]} bytes from byte {sizes[-2]} on" in reader.lost[0]


def test_the_search_for_whole_entries_is_bounded(tmp_path: Path) -> None:
    """The post consists of beginnings of entries, each of which claims all bytes behind it."""
    meta, rounds = msgspec.msgpack.encode(["producer"]), 20_000
    claim = struct.pack("<III", 1, len(meta), 15 * 2**20) + meta
    journal, _ = read(tmp_path)
    journal.begin(b"s")
    start = journal.size
    journal.append(meta, claim * rounds)
    journal.append(meta, bytes(15 * 2**20))
    journal.append(meta, b"last")
    journal.close()
    flip(tmp_path / "000000000001.journal", start + 5)
    began = time.process_time()
    journal, reader = heard(tmp_path)
    assert time.process_time() - began < 10
    journal.close()
    assert reader.lost
    assert entries(tmp_path) == contents(reader.records)


def test_bytes_that_the_disk_does_not_return_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = msgspec.msgpack.encode(["producer"])
    journal, _ = read(tmp_path)
    journal.begin(b"s")
    for number in range(30):
        journal.append(meta, bytes([number]) * 1000)
    journal.close()
    real, bad = os.pread, range(3 * 4096, 4 * 4096)

    def pread(descriptor: int, length: int, at: int) -> bytes:
        if at < bad.stop and bad.start < at + length:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, length, at)

    monkeypatch.setattr(os, "pread", pread)
    journal, reader = heard(tmp_path)
    journal.close()
    monkeypatch.undo()
    state = [body[0] for _, body in contents(reader.records)]
    assert [number for number in range(30) if number not in state] == [12, 13, 14, 15, 16]
    assert len(reader.lost) == 1
    assert entries(tmp_path) == contents(reader.records)


def test_a_reader_elsewhere_is_not_given_what_is_damaged(tmp_path: Path) -> None:
    sizes = written(tmp_path)
    journal, _ = read(tmp_path)
    flip(tmp_path / "000000000001.journal", sizes[1] - 1)
    with pytest.raises(DamagedError, match=r"000000000001.journal is damaged after byte"):
        journal.read((1, 0), 10**6)
    assert journal.read((1, sizes[1]), 10**6)[0] == (1, sizes[1])
    journal.close()


def test_after_a_failed_sync_its_file_is_written_to_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the failed sync may be on the disk or not, and the next sync of that file would
    not report it."""
    failing: set[int] = set()
    real = os.fdatasync

    def sync(descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if not failing:
            failing.add(inode)
        if inode in failing:
            failing.add(-1)
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    journal, _ = read(tmp_path, durable=True)
    journal.begin(b"s")
    journal.append(b"before", b"")
    path = tmp_path / "000000000001.journal"
    monkeypatch.setattr(os, "fdatasync", sync)
    with pytest.raises(StorageError, match=r"000000000001\.journal"):
        journal.append(b"refused", b"")
    assert path.stat().st_ino in failing
    journal.append(b"after", b"")
    assert path.stat().st_ino not in failing
    journal.close()
    monkeypatch.undo()
    assert entries(tmp_path) == [(b"before", b""), (b"after", b"")]


def test_a_refused_entry_leaves_nothing_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if the disk does not allow to truncate the file."""
    journal, _ = read(tmp_path, durable=True)
    journal.begin(b"s")
    real = os.ftruncate, os.fdatasync

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(StorageError):
        journal.append(b"refused" * 10, b"refused" * 10)
    monkeypatch.setattr(os, "ftruncate", real[0])
    monkeypatch.setattr(os, "fdatasync", real[1])
    journal.append(b"short", b"")
    journal.close()
    assert entries(tmp_path) == [(b"short", b"")]
