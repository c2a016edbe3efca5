"""Each trouble of a peer is caused: it is in the list while it lasts, and disappears when it is
mended."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from engine_peers import (
    Cluster,
    Place,
    begin,
    make_stream,
    open_cluster,
    passing,
    rows,
    send_rows,
    until,
)
from engine_small_disk import fill

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.view import Range, View
from medusa.engine.reference.executor import ReferenceTask
from medusa.engine.streams.config import Timing
from medusa.engine.streams.messages import REFUSES_POSTS, STANDS_STILL
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import InternalError, StorageFullError
from medusa.overlay.troubles import Reason, Trouble

QUICK = Timing(maintenance_s=0.02, store_again_s=0.05, mend_s=0.05, mend_again_s=0.1)


def troubles(place: Place) -> dict[Reason, Trouble]:
    return {each.reason: each for each in place.up.engine.overlay.troubles.now()}


async def state_of(place: Place, stream: str) -> str:
    async with place.client() as client:
        peer = (await client.status(federation=False)).peers[0]
    return next(each.state for each in peer.streams if each.name == stream)


async def test_a_full_disk_is_a_trouble_until_there_is_room(small_disk: Path) -> None:
    async with open_cluster(small_disk, timing=QUICK) as cluster:
        mit = await cluster.settle("mit.edu")
        client = await cluster.client(mit)
        stream = await make_stream(client, mit, "s")
        await send_rows(client, stream, [(1, 1)], boundary=1)
        assert troubles(mit) == {}
        assert await state_of(mit, stream) == "stable"
        filler = fill(small_disk)
        assert set(troubles(mit)) == {Reason.DISK_FULL}
        assert "is full: 0 bytes are free; make room" in troubles(mit)[Reason.DISK_FULL].sentence
        assert await state_of(mit, stream) == REFUSES_POSTS
        async with mit.client(patience_s=0.2) as impatient:
            await impatient.post_event(stream, rows([(n, n) for n in range(2, 5_000)]))
            with pytest.raises(StorageFullError):
                await impatient.flush()
        found = troubles(mit)
        assert list(found) == [Reason.DISK_FULL, Reason.REFUSES_POSTS]
        assert found[Reason.REFUSES_POSTS].thing == stream
        os.unlink(filler)
        assert set(troubles(mit)) == {Reason.REFUSES_POSTS}
        await send_rows(client, stream, [(2, 2)])
        assert troubles(mit) == {}
        assert await state_of(mit, stream) == "stable"


@pytest.mark.cluster(timing=QUICK, disk_bytes=2_000)
async def test_a_quota_that_is_used_up_is_a_trouble(cluster: Cluster) -> None:
    mit, _client, stream = await cluster.founder_with_stream(history_us=10**9)
    at = 0
    while Reason.DISK_FULL not in troubles(mit):
        assert at < 100
        at += 1
        async with mit.client(patience_s=0.2) as impatient:
            await send_rows(impatient, stream, [(at, at)], boundary=at)
        await until(lambda at=at: mit.state(stream).log.boundary == at)
    assert "2000 are allowed; let subscribers" in troubles(mit)[Reason.DISK_FULL].sentence
    mit.up.engine.store.quota.allow(10**6)
    assert troubles(mit) == {}


@pytest.mark.cluster(timing=QUICK)
@pytest.mark.usefixtures("interpreted")
async def test_a_task_that_fails_is_a_trouble_until_it_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, client, source = await cluster.founder_with_stream()
    await begin(client, passing(mit, "q", source, mit.name("out"), "value > 0"))

    async def fail(*_: object) -> None:
        raise InternalError("a job failed: as the test wants")

    with monkeypatch.context() as patch:
        patch.setattr(ReferenceTask, "run", fail)
        await client.post_event(source, rows([(1, 1)]), boundary=1)
        await until(lambda: Reason.TASK_FAILS in troubles(mit))
        found = troubles(mit)[Reason.TASK_FAILS]
        assert found.sentence == f"{mit.name('out')} fails: a job failed: as the test wants"
    await until(lambda: troubles(mit) == {})
    assert mit.state("out").log.files.rows == 1


@pytest.mark.cluster(timing=QUICK)
@pytest.mark.usefixtures("interpreted")
async def test_an_executor_that_cannot_start_is_one_trouble_of_all_tasks(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, client, source = await cluster.founder_with_stream()
    for name in ("one", "two"):
        await begin(client, passing(mit, f"q_{name}", source, mit.name(name)))
    with monkeypatch.context() as patch:
        patch.setattr(
            "medusa.engine.functions.computation.CallingExecutor.trouble", "there is no Java"
        )
        (found,) = mit.up.engine.overlay.troubles.now()
        assert found.reason is Reason.CANNOT_COMPUTE
        assert found.sentence == "the engine of tasks cannot compute: there is no Java"
    assert troubles(mit) == {}


@pytest.mark.cluster(timing=QUICK)
async def test_rows_that_are_lost_are_a_trouble_until_they_are_back(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    for at in (1, 2, 3):
        await send_rows(client, stream, [(at, at)], boundary=at)
        await until(lambda at=at: mit.state(stream).log.boundary == at)
    await cluster.close_clients()
    await cluster.stop(mit)
    path = sorted(mit.home.data.glob("streams/mit.edu,s/log/*.parquet"))[-2]
    copy = path.read_bytes()
    path.write_bytes(copy[:-10])
    await cluster.start(mit)
    found = troubles(mit)[Reason.ROWS_LOST]
    assert found.thing == stream
    assert f"misses rows: {path} is damaged or missing: the rows after boundary" in found.sentence
    path.write_bytes(copy)
    await until(lambda: troubles(mit) == {})


@pytest.mark.cluster(timing=QUICK)
async def test_a_folder_without_its_definition_is_a_trouble(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    await send_rows(client, stream, [(1, 1)], boundary=1)
    await cluster.close_clients()
    await cluster.stop(mit)
    folder = mit.home.data / "streams" / "mit.edu,s"
    (folder / "stream.json").unlink()
    await cluster.start(mit)
    assert troubles(mit)[Reason.ROWS_LOST].thing == str(folder)


@pytest.mark.parametrize("gone", ["", "journal"])
async def test_a_missing_folder_of_a_stream_is_a_trouble(cluster: Cluster, gone: str) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    for at in range(50):
        await client.post_event(stream, rows([(at, at)]))
    await client.flush()
    await cluster.close_clients()
    await cluster.stop(mit)
    folder = mit.home.data / "streams" / "mit.edu,s"
    shutil.rmtree(folder / gone)
    await cluster.start(mit)
    trouble = troubles(mit)[Reason.ROWS_LOST]
    assert trouble.thing == (stream if gone else str(folder))
    assert str(folder / gone) in f"{trouble.thing} {trouble.what}"
    assert "missing" in trouble.what
    assert any(str(folder / gone) in text for text in mit.errors())


@pytest.mark.cluster(timing=QUICK)
async def test_a_stream_that_stands_still_is_a_trouble(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    await send_rows(client, stream, [(1, 1)], boundary=1)
    await until(lambda: mit.state(stream).log.boundary == 1)
    folder = mit.home.data / "streams" / "mit.edu,s" / "log"
    away = folder.with_name("away")
    folder.rename(away)
    await send_rows(client, stream, [(2, 2)], boundary=2)
    await until(lambda: Reason.STANDS_STILL in troubles(mit))
    assert "there is no such folder" in troubles(mit)[Reason.STANDS_STILL].sentence
    assert await state_of(mit, stream) == STANDS_STILL
    away.rename(folder)
    await until(lambda: troubles(mit) == {})
    assert mit.state(stream).log.boundary == 2


@pytest.mark.cluster(timing=QUICK)
async def test_a_view_that_stands_still_is_a_trouble(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream(history_us=10**9)
    await send_rows(client, stream, [(1, 1)], boundary=1)
    view = mit.name("v")
    await client.create_view(View(view, stream, Range(0, 1_000)))
    await until(lambda: mit.state(view).log.boundary == 1)
    folder = mit.up.engine.store.folders.of(LogKey(view)) / "log"
    away = folder.with_name("away")
    folder.rename(away)
    await client.post_event(stream, rows([(2, 2)]), boundary=2)
    await until(lambda: Reason.STANDS_STILL in troubles(mit))
    assert troubles(mit)[Reason.STANDS_STILL].thing == view
    away.rename(folder)
    await until(lambda: troubles(mit) == {})


@pytest.mark.cluster(timing=QUICK)
@pytest.mark.usefixtures("interpreted")
async def test_a_stream_that_may_be_read_no_more_is_a_trouble(cluster: Cluster) -> None:
    _mit, utah, client, other, stream = await cluster.owner_and_guest(readers=("utah.edu",))
    await begin(other, passing(utah, "q", stream, utah.name("out")))
    await client.post_event(stream, rows([(1, 5)]), boundary=1)
    await until(lambda: utah.state("out").log.files.rows == 1)
    await client.alter_stream(stream, Alteration(readers=()))
    await until(lambda: Reason.CANNOT_READ in troubles(utah))
    found = troubles(utah)[Reason.CANNOT_READ]
    assert found.thing == stream
    assert found.mend == "ask mit.edu to let you read it"
    await client.alter_stream(stream, Alteration(readers=("utah.edu",)))
    await client.post_event(stream, rows([(2, 5)]), boundary=2)
    await until(lambda: troubles(utah) == {})


async def test_only_peers_of_the_same_participant_receive_the_troubles(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    sibling = await cluster.settle("mit.edu", sibling=True)
    await cluster.acquainted(mit, utah, sibling)
    trouble = Trouble(Reason.TASK_FAILS, "t", "fails: secret")
    mit.up.engine.overlay.troubles.add(lambda: [trouble])
    for place, told in ((utah, []), (sibling, ["t fails: secret"])):
        async with place.client() as client:
            peers = (await client.status()).peers
        (found,) = [peer for peer in peers if peer.peer == mit.id]
        assert [each.sentence for each in found.troubles] == told
