"""A file is posted again: stored rows are not stored twice, and the rest is stored."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import medusa_command
from tools_fake_peer import SCHEMA, STREAM, FakePeer, fake_peer_in_thread, rows

from medusa.engine.objects.schema import FieldType
from medusa.overlay.errors import InvalidInputError
from medusa.tools.commands.medusa.file_position import Position, Trail, decode_position
from medusa.tools.commands.medusa.post_file import Done, Options, post_file

pytestmark = pytest.mark.process


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[FakePeer]:
    with fake_peer_in_thread(tmp_path) as peer:
        yield peer


def post(peer: FakePeer, file: Path, **options: Any) -> Done:
    return post_file(str(peer.home.folder), STREAM, str(file), Options(**options))


def csv(file: Path, table: pa.Table, *more: str) -> Path:
    lines = [f"{row['ts']},{row['name']}" for row in table.to_pylist()]
    file.write_text("\n".join(["ts,name", *lines, *more, ""]))
    return file


def stored(peer: FakePeer) -> pa.Table:
    return pa.concat_tables([SCHEMA.payload.empty_table(), *peer.tables])


def test_after_a_bad_row_is_mended_the_rest_is_stored(peer: FakePeer, tmp_path: Path) -> None:
    table = rows(0, 150_000)
    file = csv(tmp_path / "f.csv", table.slice(0, 140_000), "x,bad")
    told = r"row 140001, .* the first 131,072 rows are stored, and the same command goes on after"
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=told):
            post(peer, file)
    done = post(peer, csv(file, table))
    assert (done.rows, done.before) == (150_000 - 131_072, 131_072)
    done = post(peer, file)
    assert (done.rows, done.before) == (0, 150_000)
    done = post(peer, csv(file, rows(0, 150_002)))
    assert (done.rows, done.before) == (2, 150_000), "a file that has grown"
    assert stored(peer).equals(rows(0, 150_002))


def test_the_same_file_is_known_however_it_is_written(peer: FakePeer, tmp_path: Path) -> None:
    post(peer, csv(tmp_path / "f.csv", rows(0, 1000)), producer="f")
    pq.write_table(rows(0, 1500), tmp_path / "f.parquet", row_group_size=333)
    assert post(peer, tmp_path / "f.parquet", producer="f").before == 1000
    assert stored(peer).equals(rows(0, 1500))
    (tmp_path / "link.csv").symlink_to("f.csv")
    post(peer, tmp_path / "f.csv")
    assert post(peer, tmp_path / "link.csv").rows == 0


def test_a_part_that_is_stored_and_was_edited_is_noticed(peer: FakePeer, tmp_path: Path) -> None:
    file = csv(tmp_path / "f.csv", rows(0, 1000))
    post(peer, file)
    for changed in (rows(1, 1000), rows(0, 999), rows(0, 0)):
        with pytest.raises(
            InvalidInputError,
            match=r"f\.csv: its first 1,000 rows are not those .* with --again .* as a new file$",
        ):
            post(peer, csv(file, changed))
    assert stored(peer).equals(rows(0, 1000))


def test_a_file_may_be_posted_again_on_purpose(peer: FakePeer, tmp_path: Path) -> None:
    file = csv(tmp_path / "f.csv", rows(0, 70_000))
    post(peer, file)
    csv(file, rows(0, 70_000), "x,bad")
    with pytest.raises(
        InvalidInputError, match="the first 65,536 rows are stored, and the same command, without"
    ):
        post(peer, file, again=True)
    done = post(peer, csv(file, rows(0, 70_000)))
    assert (done.rows, done.before) == (70_000 - 65_536, 65_536)
    assert stored(peer).equals(pa.concat_tables([rows(0, 70_000)] * 2))
    assert post(peer, csv(file, rows(5, 10)), again=True).rows == 10


def test_a_row_that_the_leader_refuses_is_named_by_its_place_in_the_file(
    peer: FakePeer, tmp_path: Path
) -> None:
    peer.refuse_at[2] = InvalidInputError("row 5: ts is a year ahead of the clock")
    with pytest.raises(InvalidInputError, match=r"row 65541: ts .* first 65,536 rows are stored"):
        post(peer, csv(tmp_path / "f.csv", rows(0, 70_000)))


def test_a_time_that_is_none_is_named(peer: FakePeer, tmp_path: Path) -> None:
    file = csv(tmp_path / "f.csv", rows(0, 70_000), "NaN,bad")
    with pytest.raises(InvalidInputError, match=r"row 70001, field 'ts': NaN is no time"):
        post(peer, file)


def test_all_or_nothing(peer: FakePeer, tmp_path: Path) -> None:
    file = csv(tmp_path / "f.csv", rows(0, 100_000), "x,bad")
    with pytest.raises(InvalidInputError, match=r"row 100001, .* no row is posted"):
        post(peer, file, all_or_nothing=True)
    assert stored(peer).num_rows == 0
    assert post(peer, csv(file, rows(0, 100_000)), all_or_nothing=True).rows == 100_000
    with pytest.raises(InvalidInputError, match="reads a file twice"):
        post(peer, Path("-"), all_or_nothing=True)


def test_a_producer_that_has_posted_no_file_is_not_taken_for_one(
    peer: FakePeer, tmp_path: Path
) -> None:
    peer.stored["me"] = [(1, 10)]
    with pytest.raises(InvalidInputError, match=r"--producer me: .* give another name"):
        post(peer, csv(tmp_path / "f.csv", rows(0, 1)), producer="me")


def test_standard_input_goes_on_under_a_name(peer: FakePeer, tmp_path: Path) -> None:
    def run(file: Path, *more: str) -> dict[str, object]:
        command = medusa_command("post", STREAM, "-", "--json")
        with file.open() as lines:
            done = subprocess.run(
                [*command, "--home", str(tmp_path), *more],
                stdin=lines,
                capture_output=True,
                check=True,
            )
        return json.loads(done.stdout)

    file = csv(tmp_path / "f.csv", rows(0, 10))
    assert run(file, "--producer", "p")["rows"] == 10
    csv(file, rows(0, 12))
    again = run(file, "--producer", "p")
    assert (again["rows"], again["before"]) == (2, 10)
    assert run(file)["rows"] == 12, "without a name it is new each time"


def test_the_client_checks_the_position_that_a_peer_sends(peer: FakePeer, tmp_path: Path) -> None:
    file = csv(tmp_path / "f.csv", rows(0, 10))
    peer.stored["p"], peer.offsets["p"] = [(1, 10)], b"nonsense"
    with pytest.raises(Exception, match="position in a file"):
        post(peer, file, producer="p")


EVERY_TYPE = pa.schema([pa.field(f"f{kind.name}", kind.arrow) for kind in FieldType])
VALUES = st.lists(
    st.fixed_dictionaries(
        {
            field.name: st.none()
            | (
                st.booleans()
                if pa.types.is_boolean(field.type)
                else st.text(max_size=3)
                if pa.types.is_string(field.type)
                else st.integers(0, 9)
            )
            for field in EVERY_TYPE
        }
    ),
    max_size=12,
)


@settings(max_examples=50)
@given(VALUES, st.lists(st.integers(0, 12), max_size=4), VALUES)
def test_a_position_depends_on_the_rows_alone(
    values: list[dict[str, object]], cuts: list[int], others: list[dict[str, object]]
) -> None:
    """The cut of the rows makes no difference; other rows have another position."""
    table = pa.Table.from_pylist(values, schema=EVERY_TYPE)
    trail, start = Trail(EVERY_TYPE), 0
    for cut in sorted(cuts):
        trail.step(table.slice(start, max(0, cut - start)))
        start = max(start, cut)
    trail.step(table.slice(start))
    whole = Trail(EVERY_TYPE)
    assert decode_position(whole.step(table)) == whole.position == trail.position
    assert whole.position.rows == len(values)
    other = Trail(EVERY_TYPE)
    other.step(pa.Table.from_pylist(others, schema=EVERY_TYPE))
    assert (other.position == whole.position) == (values == others)


@settings(max_examples=50)
@given(VALUES, st.integers(0, 12), st.integers(1, 5))
def test_the_rest_begins_after_the_position(
    values: list[dict[str, object]], passed: int, width: int
) -> None:
    table = pa.Table.from_pylist(values, schema=EVERY_TYPE)
    before = Trail(EVERY_TYPE)
    before.step(table.slice(0, passed))
    cut = [table.slice(start, width) for start in range(0, len(table), width)]
    rest = Trail(EVERY_TYPE).rest(iter(cut), before.position)
    assert pa.concat_tables([EVERY_TYPE.empty_table(), *rest]).equals(table.slice(passed))
    beyond = Position(len(values) + 1, before.position.digest)
    with pytest.raises(InvalidInputError, match=re.escape(f"first {len(values) + 1:,} rows")):
        list(Trail(EVERY_TYPE).rest(iter(cut), beyond))
