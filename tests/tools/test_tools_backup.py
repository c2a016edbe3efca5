"""Backups of homes: a restored peer never puts another tuple in the place of an earlier one."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, begin, make_stream, pairs_of, rows, send_rows, until

from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.retention import Hold
from medusa.overlay.errors import ConflictError, NotRetainedError
from medusa.overlay.timing import OverlayTiming
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.commands.peer.backup import backup, restore
from medusa.tools.daemon.peer import open_peer
from medusa.tools.home.folder import Home

QUICK = Timing(restored_again_s=0.05, mend_again_s=0.2)
pytestmark = [pytest.mark.cluster(timing=QUICK), pytest.mark.usefixtures("interpreted")]
ALONE = dataclasses.replace(QUICK, restored_ask_s=0.1)
"""Settings of a federation that has one peer: no other peer will answer, or call."""

GONE_US = 500_000
"""How long a restored stream waits for the client that posted before the backup, in
microseconds."""


def quiet(_: int) -> None:
    """Show no progress."""


async def back_up(place: Place, folder: Path) -> tuple[Path, Path]:
    file, keys = folder / "mit.backup", folder / "mit.keys"
    await trio.to_thread.run_sync(backup, place.home, file, keys, quiet)
    return file, keys


async def lose_and_restore(
    cluster: Cluster, place: Place, file: Path, keys: Path, behind: int | None = None
) -> None:
    await cluster.stop(place)
    shutil.rmtree(place.home.folder)
    await trio.to_thread.run_sync(restore, file, place.home, keys, quiet, behind)
    await cluster.start(place)


async def post(client: AsyncMedusaClient, stream: str, stimes: range, offset: int) -> None:
    """Post values that show which life of the peer they belong to."""
    table = rows([(at, (at + offset) % 10**6) for at in stimes])
    await send_rows(client, stream, table, boundary=stimes[-1])


def tuples(place: Place, path: str) -> dict[int, tuple[int, int]]:
    """Return (seq, value) by stime from a peer's log."""
    log = place.state(path).log
    found: dict[int, tuple[int, int]] = {}
    after = log.files.whole_from
    while (epoch := log.reader.read(after)) is not None:
        columns = (epoch.table.column(name).to_pylist() for name in ("stime", "seq", "value"))
        found |= {at: (seq, value) for at, seq, value in zip(*columns, strict=True)}
        assert epoch.upto is not None
        after = epoch.upto
    return found


def watch(place: Place, source: str) -> Query:
    """Return a query of sums in windows of 10; the peer that runs it has a mirror of the source."""
    total = AggregateCall("sum", "value", "total")
    return Query(
        place.name("q"),
        (
            Filter("all", source, (place.name("all"),), ("value >= 0",)),
            Aggregate("sums", place.name("all"), place.name("sums"), 10, 10, (), (total,)),
        ),
        (place.name("all"),),
    )


@pytest.mark.parametrize("sibling", [True, False], ids=["sibling", "other participant"])
async def test_a_restored_peer_never_sends_another_tuple(
    cluster: Cluster, tmp_path: Path, sibling: bool
) -> None:
    mit = await cluster.settle("mit.edu")
    other = await cluster.settle("mit.edu" if sibling else "utah.edu", sibling=sibling)
    await cluster.acquainted(mit, other)
    client = await cluster.open(mit.client(producer="p"))
    reader = await cluster.client(other)
    stream = await make_stream(client, mit, "s", max_ahead_us=None, readers=("*",))
    await begin(reader, watch(other, stream))
    other.state(stream).log.retention.hold(Hold("task", "test"), BEGINNING)
    await post(client, stream, range(100), 0)
    file, keys = await back_up(mit, tmp_path)
    await post(client, stream, range(100, 150), 1000)  # the backup lacks all of these rows
    await post(client, stream, range(150, 200), 1000)
    await until(lambda: other.state(stream).log.boundary == 199)
    before = tuples(other, stream)
    await lose_and_restore(cluster, mit, file, keys)
    assert "others up to 199" in told(mit)
    await post(client, stream, range(150, 300), 5000)  # half of the rows are late
    await until(lambda: other.state(stream).log.boundary == 299)
    after = tuples(other, stream)
    assert after.items() >= before.items(), "what was told stays"
    assert {at for at in after if at > 199} == set(range(200, 300))
    assert len({seq for seq, _ in after.values()}) == len(after), "no number twice"
    # the rows are lost, although the post was answered
    await until(lambda: "posts 2 to 3 of p" in told(mit))
    late = await client.receive_events(f"{stream}/late", timeout_s=10)
    assert late is not None
    assert late.table.num_rows == 50
    # The mirror's own log has the same rows, or reports which are missing.
    if sibling:
        await until(lambda: not mit.state("s").log.files.lost)
        assert tuples(mit, "s") == after
    else:
        found = []
        with pytest.raises(
            NotRetainedError, match=r"after boundary 99 up to 199.*read from 199 on"
        ):
            await gather(client, stream, found)
        assert found == [(at, at) for at in range(100)]
    sums = [epoch async for epoch in upto(reader, other.name("sums"), 289)]
    assert sum(sums) == sum(v for at, (_, v) in after.items() if at < 290)


@pytest.mark.cluster(overlay=OverlayTiming(save_gap_s=3600.0), timing=ALONE)
async def test_a_backup_has_the_peers_that_were_met_a_moment_ago(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The peer writes them to its home only from time to time."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    met = utah.id
    file, keys = await back_up(mit, tmp_path)
    await cluster.stop(utah)  # the stopped peer cannot notify the restored peer of its existence
    await lose_and_restore(cluster, mit, file, keys)
    assert f"peer {met[:8]} alone has" in told(mit)


@pytest.mark.parametrize("others", [(), ("utah.edu",)], ids=["it dials", "it is named"])
async def test_a_restored_peer_asks_peers_that_joined_after_the_backup(
    cluster: Cluster, tmp_path: Path, others: tuple[str, ...]
) -> None:
    mit, *rest = await cluster.settle_all("mit.edu", *others)
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s", max_ahead_us=None)
        await post(client, stream, range(100), 0)
        file, keys = await back_up(mit, tmp_path)
        late = await cluster.settle("mit.edu", sibling=True)
        await cluster.acquainted(*rest, late)
        async with late.client() as reader:
            await begin(reader, watch(late, stream))
        await post(client, stream, range(100, 200), 0)
        await until(lambda: late.state(stream).log.boundary == 199)
    await lose_and_restore(cluster, mit, file, keys)
    assert "others up to 199" in told(mit)


def told(place: Place) -> str:
    return "\n".join(event.text for event in place.up.engine.overlay.events.recent())


async def gather(client: AsyncMedusaClient, stream: str, found: list[tuple[int, int]]) -> None:
    async for epoch in client.subscribe(stream):
        found += pairs_of(epoch.table)


async def upto(client: AsyncMedusaClient, stream: str, boundary: int) -> Any:
    async with client.subscribe(stream) as subscription:
        while subscription.boundary < boundary:
            table = (await anext(subscription)).table
            for row in table.to_pylist():
                if row["stime"] <= boundary:
                    yield row["total"]


@pytest.mark.cluster(timing=ALONE)
async def test_a_stream_of_today_goes_on_behind_the_present(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A client may have tuples that no peer reports: their times were not beyond the clock."""
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s", idle_timeout_us=GONE_US)
        hour_ago = int(mit.wall() * 1e6) - 3_600_000_000
        await post(client, stream, range(hour_ago, hour_ago + 100), 0)
        await until(lambda: mit.state("s").log.boundary >= hour_ago + 99)
        before = tuples(mit, "s")
        assert len(before) == 100
        file, keys = await back_up(mit, tmp_path)
        began = int(mit.wall() * 1e6)
    await lose_and_restore(cluster, mit, file, keys)
    await until(lambda: mit.state("s").log.boundary >= began)
    client = await cluster.client(mit)
    assert tuples(mit, "s") == before
    at = int(mit.wall() * 1e6)
    await post(client, stream, range(at, at + 3), 0)
    await until(lambda: mit.state("s").log.boundary >= at + 2)
    assert len(tuples(mit, "s")) == 103
    assert min(seq for s, (seq, _) in tuples(mit, "s").items() if s >= at) > 2**48


@pytest.mark.cluster(timing=ALONE)
async def test_a_stream_of_another_time_keeps_its_rows_and_goes_on_where_it_was(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its times are years ago, for example; behind the present, all that it keeps would be older
    than its history."""
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s", idle_timeout_us=GONE_US)
        await post(client, stream, range(100), 0)
        file, keys = await back_up(mit, tmp_path)
    await lose_and_restore(cluster, mit, file, keys)
    client = await cluster.client(mit)
    await post(client, stream, range(100, 200), 0)
    await until(lambda: mit.state("s").log.boundary == 199)
    assert {at: value for at, (_, value) in tuples(mit, "s").items()} == {
        at: at for at in range(200)
    }


@pytest.mark.cluster(timing=ALONE)
@pytest.mark.parametrize("max_ahead_us", [None, 3_600_000_000], ids=["any time", "today"])
async def test_a_restored_stream_goes_on_behind_the_boundary_of_its_readers(
    cluster: Cluster, tmp_path: Path, max_ahead_us: int | None
) -> None:
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(
            client, mit, "s", idle_timeout_us=GONE_US, max_ahead_us=max_ahead_us
        )
        await post(client, stream, range(100), 0)
        file, keys = await back_up(mit, tmp_path)
        await post(client, stream, range(100, 150), 0)
    await lose_and_restore(cluster, mit, file, keys, behind=149)
    client = await cluster.client(mit)
    await post(client, stream, range(140, 200), 0)
    await until(lambda: mit.state("s").log.boundary == 199)
    assert set(tuples(mit, "s")) == {*range(100), *range(150, 200)}


@pytest.mark.cluster(timing=ALONE)
async def test_the_backup_has_rows_that_no_boundary_has_passed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Rows that no boundary has passed are in the journal alone; posts continue during the
    backup."""
    mit = await cluster.settle("mit.edu")
    async with mit.client(producer="p") as client:
        stream = await make_stream(client, mit, "s", max_ahead_us=None, slack_us=50)
        sent = 0

        async def keep_posting(task_status: trio.TaskStatus[None]) -> None:
            nonlocal sent
            task_status.started()
            while True:
                await send_rows(client, stream, [(sent, sent)])
                sent += 1

        async with trio.open_nursery() as nursery:
            await nursery.start(keep_posting)
            await until(lambda: sent > 100)
            least = sent
            file, keys = await back_up(mit, tmp_path)
            most = sent
            nursery.cancel_scope.cancel()
    await lose_and_restore(cluster, mit, file, keys)
    client = await cluster.client(mit)
    await send_rows(client, stream, end=True)
    await until(lambda: mit.state("s").log.boundary == END)
    found = tuples(mit, "s")
    assert least <= len(found) <= most + 1
    assert found == {at: (at, at) for at in range(len(found))}


async def test_the_queries_of_a_restored_peer_go_on(cluster: Cluster, tmp_path: Path) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client() as client, utah.client() as reader:
        stream = await make_stream(client, mit, "s", idle_timeout_us=GONE_US, max_ahead_us=None)
        await begin(client, watch(mit, stream))
        await begin(reader, watch(utah, stream))
        await post(client, stream, range(105), 0)
        await until(lambda: mit.state("sums").log.boundary >= 99)
        file, keys = await back_up(mit, tmp_path)
        await post(client, stream, range(105, 200), 0)
        await until(lambda: utah.state(stream).log.boundary == 199)
    await lose_and_restore(cluster, mit, file, keys)
    client = await cluster.client(mit)
    await post(client, stream, range(200, 400), 0)
    await until(lambda: mit.state("sums").log.boundary >= 389)
    log = mit.state("sums").log
    epoch = log.reader.read(log.files.whole_from)
    assert epoch is not None
    for row in epoch.table.to_pylist():
        at = row["stime"]
        assert row["total"] == sum(range(at - 9, at + 1)), "windows are whole, or not there"


async def test_a_restored_elector_has_no_vote(cluster: Cluster, tmp_path: Path) -> None:
    """No peer knows how it voted after the backup: the others continue without it."""
    mit = await cluster.settle("mit.edu")
    others = [await cluster.settle("mit.edu", sibling=True) for _ in range(2)]
    await cluster.acquainted(mit, *others)
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s", max_ahead_us=None, k_safety=1)
        await post(client, stream, range(100), 0)
        file, keys = await back_up(mit, tmp_path)
        await post(client, stream, range(100, 200), 0)
    await lose_and_restore(cluster, mit, file, keys)
    client, restored = await cluster.clients(others[0], mit)
    await post(client, stream, range(200, 300), 0)
    found: list[tuple[int, int]] = []
    async for epoch in client.subscribe(stream):
        found += pairs_of(epoch.table)
        if len(found) == 300:
            break
    assert found == [(at, at) for at in range(300)]
    assert mit.up.engine.leaders.get(stream) is None
    entry = await restored.stream_entry(stream)
    with pytest.raises(ConflictError, match="restored from a backup"):
        await mit.up.engine.leaders.found(entry)


async def test_two_peers_of_one_identity_do_not_run(cluster: Cluster, tmp_path: Path) -> None:
    mit = await cluster.settle("mit.edu")
    file, keys = await back_up(mit, tmp_path)
    copy = Home(tmp_path / "copy")
    with pytest.raises(ConflictError, match="stop it for good"):
        await trio.to_thread.run_sync(restore, file, copy, keys, quiet)
    with pytest.raises(ConflictError, match="is not empty"):
        await trio.to_thread.run_sync(restore, file, mit.home, keys, quiet)
    assert not copy.folder.exists()
    # As on another machine, where the lock of the running peer is not seen.
    hidden = mit.home.folder.with_name("hidden")
    mit.home.folder.rename(hidden)
    await trio.to_thread.run_sync(restore, file, copy, keys, quiet)
    hidden.rename(mit.home.folder)
    twin = Place(copy, "mit.edu", mit.engine_config)
    with pytest.raises(ConflictError, match="a copy of runs at"), trio.fail_after(DEADLINE_S):
        await open_peer(twin.home, twin.config).__aenter__()
