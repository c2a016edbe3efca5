"""A followed file gives the bytes that are added to it, until it is truncated."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.tools.rows.row_input import TAIL_BYTES, RowInput

HEADER = b"ts,name\n"


@contextmanager
def followed(path: Path) -> Iterator[tuple[RowInput, ExitStack]]:
    """Follow a file; closing the stack says that the file no longer grows."""
    until, end = os.pipe()
    with ExitStack() as growing, path.open("rb", buffering=0) as file:
        growing.callback(os.close, end)
        try:
            yield RowInput(file, until), growing
        finally:
            os.close(until)


def rewrite(path: Path, data: bytes) -> None:
    """Truncate the file, and write other bytes."""
    os.truncate(path, 0)
    with path.open("r+b") as file:
        file.write(data)


@pytest.mark.parametrize(
    "rows",
    [b"3,c\n", b"3,c\n4,d\n", b"", b"1,A\n" + bytes(TAIL_BYTES)],
    ids=["as long", "longer", "shorter", "much longer"],
)
def test_nothing_is_read_of_a_file_that_was_rewritten(tmp_path: Path, rows: bytes) -> None:
    """The reader itself compares the bytes before its position: a look at the file from time to
    time misses that it was truncated, and has grown to the same length again."""
    path = tmp_path / "log"
    path.write_bytes(HEADER + b"1,a\n")
    with followed(path) as (source, _):
        assert source.take(100) == HEADER + b"1,a\n"
        rewrite(path, HEADER + rows)
        assert source.take(100) == b""
        assert source.torn
        assert source.take(100) == b""


@given(st.lists(st.binary(min_size=1, max_size=2 * TAIL_BYTES), max_size=8), st.integers(1, 300))
def test_every_added_byte_is_read(pieces: list[bytes], size: int) -> None:
    read = b""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(HEADER)
        with followed(path) as (source, growing):
            for piece in pieces:
                with path.open("ab") as file:
                    file.write(piece)
                read += source.take(size)
            growing.close()
            while data := source.take(size):
                read += data
            assert not source.torn
    assert read == HEADER + b"".join(pieces)
