"""`medusa subscribe --into`, `medusa stream files`: the tuples in their files."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from engine_peers import Cluster, make_stream, rows, send_rows, until
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, END, STIME
from medusa.engine.streams.store.freezing import freeze_stream
from medusa.overlay.errors import ConflictError, NotFoundError
from medusa.tools.commands.medusa.stream_folder import Options, copy, open_folder
from medusa.tools.daemon.peer import freeze_known

STREAM = "medusa://mit.edu/s"
SCHEMA = pa.schema([pa.field(STIME, pa.int64()), pa.field("value", pa.int32())])


def table(times: list[int]) -> pa.Table:
    return pa.table({STIME: times, "value": pa.array(times, pa.int32())}, schema=SCHEMA)


def found(folder: Path) -> list[int]:
    """Return the stimes in the folder's files, as any reader finds them."""
    files = sorted(folder.glob("*.parquet"), key=lambda path: int(path.name.split("_")[0]))
    return [time for path in files for time in pq.read_table(path).column(STIME).to_pylist()]


@given(
    st.sets(st.integers(0, 200), max_size=60),
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["wait", "write", "end", "kill"]))),
)
def test_each_tuple_is_in_one_file_however_often_the_command_ends(
    tmp_path_factory: pytest.TempPathFactory, times: set[int], steps: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    ordered, names = sorted(times), set[str]()
    for step, what in [*steps, (201, "end")]:
        with open_folder(folder, STREAM, -1) as files:
            reached = files.boundary
            for _ in range(2):
                before, reached = reached, reached + step
                files.add(table([time for time in ordered if before < time <= reached]), reached)
                if what == "write":
                    files.write()
            if what == "kill":
                files.write = lambda: None  # type: ignore[method-assign]  # killed
        assert names <= set(os.listdir(folder)), "no file goes"
        names = set(os.listdir(folder))
        written = found(folder)
        assert written == [time for time in ordered if time <= max(written, default=-1)]
    assert found(folder) == ordered


def test_a_folder_has_one_stream_and_one_writer(tmp_path: Path) -> None:
    def refused(name: str, stream: str, why: str) -> None:
        with pytest.raises(ConflictError, match=why), open_folder(tmp_path / name, stream, 0):
            raise AssertionError("it was opened")

    with open_folder(tmp_path / "a", STREAM, 0):
        refused("a", STREAM, "another process writes there")
    refused("a", f"{STREAM}2", r"has the files of medusa://mit\.edu/s:")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1_2.parquet").write_bytes(b"")
    refused("b", STREAM, "did not write")


def options(**changed: float) -> Options:
    given = {"after": BEGINNING, "until": END, "every_s": 0.05, "subscriber": "", "patience_s": 9.0}
    return Options(**{**given, **changed})  # type: ignore[arg-type]


async def test_only_rows_in_a_file_are_acknowledged(cluster: Cluster, tmp_path: Path) -> None:
    place, client, stream = await cluster.founder_with_stream(history_us=1)
    with open_folder(tmp_path / "files", stream, BEGINNING) as files:
        async with (
            client.subscribe(stream, BEGINNING, "me") as subscription,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(copy, subscription, files, options(every_s=1000.0))
            for at in range(1, 40):
                await send_rows(client, stream, [(at, at)], boundary=at)
            await until(lambda: subscription.boundary == 39)
            (lease,) = place.up.engine.store.leases(stream)
            assert lease.boundary == BEGINNING, "nothing is in a file"
            files.write()
            subscription.stored = files.boundary
            await client.post_event(stream, rows([(40, 40)]), boundary=40)
            await until(lambda: place.up.engine.store.leases(stream)[0].boundary == 39)
            await until(lambda: files.waiting_bytes > 0)
            nursery.cancel_scope.cancel()
    assert found(tmp_path / "files") == list(range(1, 41))


async def test_a_folder_ends_with_its_stream(cluster: Cluster, tmp_path: Path) -> None:
    place, client, stream = await cluster.founder_with_stream()
    await client.post_event(stream, rows([(at, at) for at in range(9)]), end=True)
    with open_folder(tmp_path / "files", stream, BEGINNING) as files:
        async with client.subscribe(stream, BEGINNING, "me") as subscription:
            await copy(subscription, files, options())
    assert files.boundary == END
    (lease,) = place.up.engine.store.leases(stream)
    assert lease.boundary == END, "the stream waits for nothing"
    assert found(tmp_path / "files") == list(range(9))


async def test_files_of_no_stream_are_not_offered_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    """If another peer keeps a stream of that name, its files are offered."""
    place, _client, stream = await cluster.founder_with_stream()
    engine = place.up.engine
    with pytest.raises(NotFoundError, match=r"^(?!.*subscribe).*medusa://mit\.edu/other"):
        await freeze_known(engine, place.name("other"), tmp_path / "none")
    with pytest.raises(NotFoundError, match="has no tuples yet"):
        await freeze_known(engine, stream, tmp_path / "none")
    other = await cluster.settle("brown.edu")
    async with other.client() as theirs:
        far = await make_stream(theirs, other, "t")
    with pytest.raises(NotFoundError, match=r"keeps no log of medusa://brown\.edu/t: `medusa subs"):
        await freeze_known(engine, far, tmp_path / "none")


async def test_frozen_files_have_the_log_up_to_its_boundary(
    cluster: Cluster, tmp_path: Path
) -> None:
    place, client, stream = await cluster.founder_with_stream()
    store, log = place.up.engine.store, place.state("s").log
    with pytest.raises(NotFoundError, match="has no tuples yet"):
        await freeze_stream(store, stream, tmp_path / "none")
    with pytest.raises(NotFoundError, match=r"keeps no log of medusa://mit\.edu/other"):
        await freeze_stream(store, place.name("other"), tmp_path / "none")
    for at in range(20):
        await client.post_event(stream, rows([(at, at)]), boundary=at)
        await until(lambda at=at: log.boundary == at)
    frozen = await freeze_stream(store, stream, tmp_path / "whole")
    assert (frozen.after, frozen.upto, frozen.rows) == (log.start, 19, 20)
    assert await log.upkeep.compact() > 1
    # the empty post gives the newest file a new name
    await client.post_event(stream, rows([]), boundary=30)
    await until(lambda: log.boundary == 30)
    assert found(tmp_path / "whole") == list(range(20)), "the files stay"
    lost = sorted(log.folder.glob("*.parquet"))[0]
    lost.unlink()
    log.damage.find(lost)
    (file,) = log.files.lost
    frozen = await freeze_stream(store, stream, tmp_path / "rest")
    assert frozen.after == file.upto
    assert found(tmp_path / "rest") == [at for at in range(20) if at > file.upto]
    assert frozen.rows == len(found(tmp_path / "rest"))
