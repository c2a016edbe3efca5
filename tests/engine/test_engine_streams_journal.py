from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.streams.journal import Journal, Record
from overlay.errors import InternalError, InvalidInputError, StorageFullError

ENTRIES = [(b"first", b"x" * 30), (b"", b""), (b"third", b""), (b"m" * 40, b"y" * 7)]


def read(folder: Path, *, durable: bool = False) -> tuple[Journal, list[Record]]:
    records: list[Record] = []
    return Journal.open(folder, records.append, durable=durable), records


def entries(folder: Path) -> list[tuple[bytes, bytes]]:
    journal, records = read(folder)
    journal.close()
    return contents(records)


def contents(records: Sequence[Record]) -> list[tuple[bytes, bytes]]:
    return [(r.meta, r.body) for r in records if not r.first]


def written(folder: Path) -> list[int]:
    """A journal of one segment; the length after each entry."""
    journal, records = read(folder)
    assert records == []
    journal.begin(b"snapshot")
    sizes = [journal.size]
    for meta, body in ENTRIES:
        journal.append(meta, body)
        sizes.append(journal.size)
    journal.close()
    return sizes


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
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


def test_a_segment_whose_snapshot_is_torn_is_damage_and_not_emptiness(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "000000000002.journal").write_bytes(b"torn")
    with pytest.raises(InternalError, match=r"000000000002.journal is damaged at byte 0"):
        read(tmp_path, durable=True)


@pytest.mark.parametrize("left", [b"", b"torn", b"\0" * 4096], ids=["nothing", "a bit", "zeros"])
def test_a_loss_of_power_may_take_the_newest_segment_of_what_is_not_durable(
    tmp_path: Path, left: bytes
) -> None:
    written(tmp_path)
    (tmp_path / "000000000002.journal").write_bytes(left)
    journal, records = read(tmp_path)
    assert contents(records) == ENTRIES
    assert "acknowledged since it was begun is lost" in journal.lost
    journal.append(b"next", b"1")
    journal.begin(b"second")
    journal.close()
    journal, records = read(tmp_path)
    assert contents(records) == [*ENTRIES, (b"next", b"1")]
    assert (journal.segments, journal.lost) == ((1, 2), "")
    journal.close()


def test_a_loss_of_power_may_take_the_only_segment(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "000000000001.journal").write_bytes(b"torn")
    journal, records = read(tmp_path)
    assert (records, journal.segments, journal.segment) == ([], (), 0)
    assert journal.lost
    journal.begin(b"anew")
    journal.close()
    assert (tmp_path / "000000000001.torn").read_bytes() == b"torn"


def test_a_loss_of_power_may_take_the_end_of_the_segment_before(tmp_path: Path) -> None:
    journal, _ = read(tmp_path)
    for _ in range(2):
        journal.begin(b"s")
        journal.append(b"entry", b"")
    journal.close()
    path = tmp_path / "000000000001.journal"
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, (1, path.stat().st_mtime - 3600))
    with pytest.raises(InternalError, match=r"000000000001.journal is damaged"):
        read(tmp_path)
    os.utime(path)
    journal, records = read(tmp_path)
    assert [record.segment for record in records] == [1, 2, 2]
    assert "000000000001.journal: a loss of power" in journal.lost
    journal.close()


def test_a_whole_segment_with_a_wrong_snapshot_is_damage(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "000000000001.journal"
    data = bytearray(path.read_bytes())
    data[15] ^= 1
    path.write_bytes(data)
    with pytest.raises(InternalError, match=r"000000000001.journal is damaged at byte 0"):
        read(tmp_path)


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


def test_damage_in_an_old_segment_and_a_missing_one_are_reported(tmp_path: Path) -> None:
    journal, _ = read(tmp_path)
    for _ in range(3):
        journal.begin(b"s")
        journal.append(b"entry", b"")
    journal.close()
    shutil.copytree(tmp_path, tmp_path / "copy")
    path = tmp_path / "000000000002.journal"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InternalError, match=r"000000000002.journal is damaged"):
        read(tmp_path, durable=True)
    (tmp_path / "copy" / "000000000002.journal").unlink()
    with pytest.raises(InternalError, match=r"segments 2\.\.2 are missing"):
        read(tmp_path / "copy")


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
    journal = Journal.open(tmp_path, lambda _: None, durable=True)
    journal.begin(b"s")
    journal.append(b"e", b"")
    journal.close()
    assert len(synced) == 2


def test_entries_that_are_too_long_are_refused(tmp_path: Path) -> None:
    journal, _ = read(tmp_path)
    journal.begin(b"s")
    with pytest.raises(InvalidInputError):
        journal.append(b"", bytes(16 * 2**20 + 1))
    journal.close()


@settings(max_examples=150, deadline=None)
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
    journal, records = read(folder)
    journal.close()
    found = contents(records)
    assert found == ENTRIES[: len(found)]
    assert len(found) >= sum(size <= at for size in sizes) - 1
