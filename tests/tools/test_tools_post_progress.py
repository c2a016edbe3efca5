"""The progress of a post: stored rows, of how many, how quickly; and the peer for which it
waits."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio
from tools_fake_peer import SCHEMA, STREAM, fake_peer_in_thread, open_fake_peer, rows

from medusa.tools.client.async_client import open_medusa
from medusa.tools.commands.medusa import post_progress
from medusa.tools.commands.medusa.file_position import Trail
from medusa.tools.commands.medusa.post_file import Options, post_file
from medusa.tools.commands.medusa.post_progress import PostProgress, open_progress
from medusa.tools.rows.formats import Reading
from medusa.tools.rows.row_process import open_rows


async def test_a_waiting_post_names_the_peer_and_the_seconds(tmp_path: Path) -> None:
    async with open_fake_peer(tmp_path) as peer, open_medusa(tmp_path) as client:
        poster = await client.poster(STREAM)
        progress = PostProgress(poster)
        await poster.resume()
        assert poster.waiting_s == 0
        assert progress.text == "0 rows"
        peer.silent = True
        await poster.post(rows(0, 5))
        poster._answered_at -= 12  # so long ago
        assert progress.text == "waiting for mit.edu, 12s"
        peer.silent = False
        peer.crash()  # the command sends the post again, and the peer answers
        await poster.flush()
        assert progress.text == "0 rows", "they were of no file"


async def test_rows_of_rows_or_bytes_of_bytes(tmp_path: Path) -> None:
    pq.write_table(rows(0, 1000), tmp_path / "f.parquet")
    (tmp_path / "f.csv").write_text("ts,name\n" + "1,a\n" * 1000)
    async with open_fake_peer(tmp_path / "home"), open_medusa(tmp_path / "home") as client:
        poster = await client.poster(STREAM)
        await poster.resume()
        for name, share, text in (
            ("f.parquet", (1000, 1000), "1,000 of 1,000 rows"),
            ("f.csv", (4008, 4008), "1,000 rows, 0.0 of 0.0 MB"),
        ):
            trail, progress = Trail(SCHEMA.payload), PostProgress(poster)
            with open_rows(tmp_path / name, Reading(SCHEMA)) as reading:
                progress.opened(reading, 0)
                for table in reading.batches():
                    await poster.post(table, offset_after=trail.step)
                    progress.seen = trail.rows
                assert progress.share[0] <= share[0], "never more than is stored"
                await poster.flush()
            assert progress.share == share
            assert progress.text.partition(" rows/s")[0].startswith(text[:11])
            assert progress.name == name


async def test_lines_are_written_only_when_something_has_changed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new rate, or a longer wait, is no change."""
    monkeypatch.setattr(post_progress, "LINES_S", 0.01)

    async def lines(some: bool) -> list[str]:
        await trio.sleep(0.1)
        if some:
            return capfd.readouterr().err.splitlines()
        assert not capfd.readouterr().err
        return []

    async with open_fake_peer(tmp_path) as peer, open_medusa(tmp_path) as client:
        poster = await client.poster(STREAM)
        trail = Trail(SCHEMA.payload)
        await poster.resume()
        async with open_progress(poster, quiet=False):
            assert await lines(some=True) == [": 0 rows"]
            await lines(some=False)
            await poster.post(rows(0, 5), offset_after=trail.step)
            await poster.flush()
            (line,) = await lines(some=True)
            assert line.startswith(": 5 rows")
            await lines(some=False)
            peer.silent = True
            await poster.post(rows(5, 5), offset_after=trail.step)
            poster._answered_at -= 12  # so long ago
            assert await lines(some=True) == [": waiting for mit.edu, 12s"]
            await lines(some=False)
            peer.silent = False
            peer.crash()
            await poster.flush()
            assert (await lines(some=True))[-1].startswith(": 10 rows")
            await lines(some=False)


def test_no_progress_is_shown_if_the_user_wants_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.csv"
    file.write_text("ts,name,more\n1,a,b\n")
    with fake_peer_in_thread(tmp_path):
        for quiet in (True, False):
            post_file(
                str(tmp_path),
                STREAM,
                str(file),
                Options(ignore_extra=True, again=True, quiet=quiet),
            )
            told = capfd.readouterr()
            assert told.out == ""
            assert told.err == "" or not quiet
    assert told.err == "medusa: column 'more': no field of the schema, not posted\n"


def test_a_file_without_rows_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.csv"
    file.write_text("ts,name\n")
    with fake_peer_in_thread(tmp_path):
        for quiet in (True, False):
            post_file(str(tmp_path), STREAM, str(file), Options(quiet=quiet))
            told = "" if quiet else f"medusa: {file}: it has no rows\n"
            assert capfd.readouterr().err == told
