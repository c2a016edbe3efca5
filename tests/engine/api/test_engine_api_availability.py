"""A client asks for an availability of a query, at complete peers (`engine_peers`): the peers keep
the request, override or refuse it, and report it."""

from __future__ import annotations

import itertools

import msgspec
import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, make_stream, rows

from medusa.engine.api.own_status import UNKNOWN
from medusa.engine.objects.availability import Availability, AvailabilityRequest, Mode, Recovery
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import Filter, Query
from medusa.engine.replication.records.status import PeerStatus, ReplicaStatus
from medusa.overlay.errors import InvalidInputError

DOCUMENT = """<query name="medusa://mit.edu/q" {attributes}>
  <box name="pass" type="filter">
    <input port="1" stream="medusa://mit.edu/s"/><output port="1" stream="medusa://mit.edu/out"/>
    <param name="expression.0" value="value > 1"/>
  </box>
</query>"""

KEEPS_NO_OUTPUTS = (Mode.AMNESIA, Mode.UPSTREAM_BACKUP)

SCHEMA = '<schema name="medusa://mit.edu/later"><field name="a" type="int"/></schema>'


pytestmark = pytest.mark.usefixtures("interpreted")


async def test_flags_count_more_than_the_document(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    await make_stream(client, mit, "s")
    text = DOCUMENT.format(attributes='ha="passive" recovery="rollback" bound="4"')
    asked = AvailabilityRequest(Mode.ACTIVE_STANDBY)
    await client.create_query_xml(text, asked)
    expected = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE, 4.0)
    described = await client.lookup_object(mit.name("q"))
    entry = msgspec.json.decode(described.entries["query"], type=QueryEntry)
    assert entry.query.availability == expected
    assert (await client.list_objects()).availability == {mit.name("q"): expected}
    await client.create_query_xml(text, asked)  # creating it again is no error


async def test_a_refused_request_leaves_nothing_behind(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client = await cluster.client(mit)
    source = await make_stream(client, mit, "s")
    text = f"<medusa>{SCHEMA}{DOCUMENT.format(attributes='')}</medusa>"
    refused = [
        (AvailabilityRequest(Mode.AMNESIA, Recovery.PRECISE), "'pass', is repeatable"),
        (AvailabilityRequest(checkpoint_s=2.0), "for a query with a standby"),
    ]
    for asked, reason in refused:
        with pytest.raises(InvalidInputError, match=f"query medusa://mit.edu/q: .*{reason}"):
            await client.create_query_xml(text, asked)
    with pytest.raises(InvalidInputError, match="the document defines none"):
        await client.create_query_xml(SCHEMA, AvailabilityRequest(Mode.AMNESIA))
    names = (await client.list_objects()).names
    assert "query" not in names
    assert mit.name("later") not in names["schema"], "not even what stood before the query"
    box = Filter("pass", source, (mit.name("out"),), ("value > 1",))
    for availability, reason in (
        (Availability(Mode.NONE, Recovery.PRECISE), "'pass', is repeatable: ask for gap"),
        (Availability(Mode.AMNESIA, secondary=mit.id), "cannot be its secondary as well"),
        (
            Availability(Mode.AMNESIA, secondary=utah.id),
            r"must be a peer of mit\.edu; .* is one of utah\.edu",
        ),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            await client.create_query(Query(mit.name("q"), (box,), (), availability))
    assert "query" not in (await client.list_objects()).names


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.NONE])
async def test_the_snapshot_names_the_peers_of_a_query_and_their_health(
    cluster: Cluster, mode: Mode
) -> None:
    mit, other = await cluster.settle_all("mit.edu", "mit.edu")
    client = await cluster.client(mit)
    source = await make_stream(client, mit, "s")
    await client.create_query_xml(
        DOCUMENT.format(attributes=""), AvailabilityRequest(mode, secondary=other.id)
    )
    await client.start_query(mit.name("q"))
    peers: tuple[PeerStatus, ...] = ()
    with trio.fail_after(DEADLINE_S):
        for moment in itertools.count(1):
            await client.post_event(source, rows([(moment, 2)]), boundary=moment)
            peers = (await client.status()).peers
            if _told(peers, mode):
                break
            await trio.sleep(0.1)
    assert {peer.health for peer in peers} <= {"alive", "suspect"}, "or slow, here and now"
    primary, secondary = _replica(peers, mit.id), _replica(peers, other.id)
    assert primary is not None
    assert secondary is not None
    for each in (primary, secondary):
        assert (each.query, each.mode) == (mit.name("q"), mode)
        assert (each.primary, each.secondary) == (mit.id, other.id)
    assert (primary.role, secondary.role) == ("primary", "secondary")
    assert primary.term_number == secondary.term_number
    if mode in KEEPS_NO_OUTPUTS:
        assert (primary.behind_us, secondary.behind_us) == (UNKNOWN, UNKNOWN)


def _replica(peers: tuple[PeerStatus, ...], peer: str) -> ReplicaStatus | None:
    return next((replica for each in peers if each.peer == peer for replica in each.replicas), None)


def _told(peers: tuple[PeerStatus, ...], mode: Mode) -> bool:
    """Whether both peers report the query, and the primary reports that the secondary has its
    results."""
    replicas = [replica for peer in peers for replica in peer.replicas]
    return len(replicas) == 2 and any(
        (each.role, each.state) == ("primary", "caught up")
        and (each.behind_us >= 0 or mode in KEEPS_NO_OUTPUTS)
        for each in replicas
    )
