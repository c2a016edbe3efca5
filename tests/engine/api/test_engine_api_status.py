"""status at complete peers (`engine_peers`): members tell each other the permitted parts, and a
liar's status does no harm."""

from __future__ import annotations

import pytest
from engine_peers import Cluster, Place, make_stream, rows, until
from hostile_partner import say

from medusa.engine.api.messages import ListObjects, LookupObject, ObjectDescription, Objects
from medusa.engine.api.status import SNAPSHOT_BYTES, cut, fitted
from medusa.engine.replication.records.status import EventRecord, PeerStatus, Snapshot, Status
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.encoding import encode
from medusa.overlay.errors import NotAuthorisedError
from medusa.overlay.rpc import MAX_STRUCT_BYTES

STEERING = "\x1b[2J\x9b31m\u202e[/bold]"


def stream_status(name: str, role: str = "source", rate: float = 1.0) -> StreamStatus:
    return StreamStatus(name, role, rate, 5, 0.0, 1, 0, 1, 1)


def task_status(name: str, owner: str = "") -> TaskStatus:
    return TaskStatus(name, "q", (), 5, 1, 1.0, 1.0, 1.0, "running", "why", owner=owner)


async def seen(cluster: Cluster, by: Place, other: Place) -> PeerStatus:
    """Return one peer as a client of another peer sees it."""
    await cluster.acquainted(by, other)
    async with by.client() as client:
        snapshot = await client.status()
    return next(peer for peer in snapshot.peers if peer.peer == other.id)


async def test_a_peer_is_not_believed_about_its_identity_or_about_other_peers(
    cluster: Cluster,
) -> None:
    mit, evil = await cluster.settle("mit.edu"), await cluster.settle("evil.org")
    lie = PeerStatus(
        "mit.edu",
        mit.id,
        f"{STEERING}:1",
        "running",
        spark=STEERING,
        load=float("inf"),
        capacity=float("nan"),
        memory_bytes=2**64 - 1,
        streams=(
            stream_status(mit.name("s")),
            stream_status(mit.name("t"), "follower", float("-inf")),
            stream_status(evil.name(STEERING)),
        ),
        tasks=(task_status(mit.name("t")), task_status(mit.name("u"), mit.id)),
        events=(EventRecord(1e300, "error", "mit burns"),),
        health="alive",
    )
    say(evil.up, "peer_status", lie)
    told = await seen(cluster, mit, evil)
    host, port = evil.up.running.overlay
    assert (told.participant, told.peer) == ("evil.org", evil.id)
    assert (told.address, told.state) == (f"{host}:{port}", "running")
    assert [each.name for each in told.streams] == [mit.name("t"), evil.name("?[2J?31m?[/bold]")]
    assert [each.name for each in told.tasks] == [mit.name("u")]
    assert told.events == ()
    assert (told.load, told.capacity, told.memory_bytes) == (1e18, 0.0, 2**63 - 1)
    assert told.streams[0].rate == -1e18
    assert "\x1b" not in repr(told)


@pytest.mark.parametrize(
    "lie", [b"\xff" * 40, PeerStatus("evil.org", "", "", "unreachable"), Status()]
)
async def test_a_status_that_makes_no_sense_is_shown_as_nonsense(
    cluster: Cluster, lie: bytes | PeerStatus
) -> None:
    mit, evil = await cluster.settle("mit.edu"), await cluster.settle("evil.org")
    say(evil.up, "peer_status", lie)
    told = await seen(cluster, mit, evil)
    assert (told.participant, told.peer, told.state) == ("evil.org", evil.id, "nonsense")


async def test_a_long_answer_crowds_out_no_other_answer(cluster: Cluster) -> None:
    mit, utah = await cluster.settle("mit.edu"), await cluster.settle("utah.edu")
    async with mit.client() as client:
        await make_stream(client, mit, "s")
    streams = tuple(stream_status(utah.name(f"s{n:05}" * 8)) for n in range(4500))
    lie = PeerStatus(utah.participant, utah.id, "", "running", streams=streams)
    assert SNAPSHOT_BYTES < len(encode(lie)) < MAX_STRUCT_BYTES
    say(utah.up, "peer_status", lie)
    told = await seen(cluster, mit, utah)
    assert told.streams == streams[: len(told.streams)]
    assert told.left_out + len(told.streams) == len(streams)
    async with mit.client() as client:
        snapshot = await client.status()
    (own,) = [peer for peer in snapshot.peers if peer.peer == mit.id]
    assert (mit.name("s") in {each.name for each in own.streams}, own.left_out) == (True, 0)
    assert len(encode(snapshot)) < SNAPSHOT_BYTES + 4096


def test_short_answers_are_whole_and_long_ones_share_the_rest() -> None:
    def peer(number: int, streams: int) -> PeerStatus:
        said = tuple(stream_status(f"medusa://mit.edu/{n}") for n in range(streams))
        return PeerStatus("mit.edu", f"{number}", "", "running", streams=said)

    peers = [peer(0, 1000), peer(1, 3), peer(2, 1000), peer(3, 0)]
    whole = sum(len(encode(each)) for each in peers)
    assert fitted(peers, whole) == tuple(peers)
    shown = fitted(peers, whole // 2)
    assert (shown[1], shown[3]) == (peers[1], peers[3])
    assert [len(each.streams) + each.left_out for each in shown] == [1000, 3, 1000, 0]
    assert whole // 2 - 1000 < sum(len(encode(each)) for each in shown) <= whole // 2
    assert abs(len(shown[0].streams) - len(shown[2].streams)) < 5
    assert cut(peers[0], 10).streams == ()


async def test_status_shows_other_participants_only_readable_streams(cluster: Cluster) -> None:
    mit, utah = await cluster.settle("mit.edu"), await cluster.settle("utah.edu")
    sibling = await cluster.settle("mit.edu", sibling=True)
    async with mit.client() as client:
        await make_stream(client, mit, "open")
        private = await make_stream(client, mit, "private", readers=("brown.edu",))
        for stime in (5, 1):
            await client.post_event(private, rows([(stime, 1)]))
        await client.flush()
    await until(lambda: mit.state("private/late").log.files.rows == 1)
    mit.up.engine.overlay.events.note("error", "burns")
    foreign, own = await seen(cluster, utah, mit), await seen(cluster, sibling, mit)
    assert {each.name for each in foreign.streams} == {mit.name("open")}
    names = {mit.name("open"), mit.name("private"), mit.name("private/late")}
    assert {each.name for each in own.streams} == names
    assert foreign.links == foreign.events == ()
    assert "burns" in {each.text for each in own.events}
    assert utah.id in own.links
    assert foreign.capacity == own.capacity > 0


async def test_no_peer_has_another_one_ask_around(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    connection = await utah.up.engine.overlay.connect(bytes.fromhex(mit.id))
    for method, request, answer in (
        ("status", Status(), Snapshot),
        ("list_objects", ListObjects(), Objects),
        ("lookup_object", LookupObject(mit.name("s")), ObjectDescription),
    ):
        with pytest.raises(NotAuthorisedError, match=f"{method} is not for peers"):
            await connection.call(method, request, answer)
