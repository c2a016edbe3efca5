"""Outputs of queries are altered: at the worker, at the secondary, and after a restart."""

from __future__ import annotations

import pytest
from engine_peers import Cluster, Place, begin, make_stream, until
from moving_tasks import post, windows
from replicated_queries import Made, asked, die, stands_by

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.engine.streams.store.store import OUTPUT
from medusa.overlay.errors import InvalidInputError

pytestmark = pytest.mark.cluster(timing=Timing(maintenance_s=0.05, workers_s=0.05, keep_up_s=0.05))


UTAH = Alteration(readers=("utah.edu",), history_us=123)


def says_utah(definition: StreamDefinition) -> bool:
    return (definition.readers, definition.history_us) == (("utah.edu",), 123)


def at_worker(place: Place, stream: str) -> StreamDefinition:
    state = place.up.engine.store.get(stream, OUTPUT)
    assert state is not None, "it is the task's worker"
    return state.entry.stream


@pytest.mark.usefixtures("made")
async def test_a_restarted_peer_and_workers_know_the_alteration(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    out = one.name("out")
    async with one.client() as client, two.client() as far:
        source = await make_stream(client, one, "s")
        await begin(client, windows(one, source))
        await post(client, source, range(250))
        await one.up.engine.mover.move(out, two.peer_id, Deal(giver=one.id))
        assert at_worker(two, out).readers == ("*",)
        await far.alter_stream(out, UTAH)
        assert says_utah((await far.stream_entry(out)).stream)
        assert says_utah(one.state("out").entry.stream)
        await until(lambda: says_utah(at_worker(two, out)), "its worker is told")
        with pytest.raises(InvalidInputError, match="it has no slack"):
            await client.alter_stream(out, Alteration(slack_us=1))
        edition = one.state("out").entry.stream.edition
        await client.alter_stream(out, UTAH)
        assert one.state("out").entry.stream.edition == edition, "the same again"
    await cluster.restart(one)
    assert says_utah(one.state("out").entry.stream)
    await cluster.restart(two)
    await until(lambda: bool(two.up.engine.assignments.all()))
    await until(lambda: says_utah(at_worker(two, out)))
    client = await cluster.client(one)
    await one.up.engine.mover.take_back(out)
    await client.alter_stream(out, Alteration(readers=("*",)))
    now = one.state("out").entry.stream
    assert (now.readers, now.history_us) == (("*",), 123)
    assert now.edition > edition
    await one.up.engine.mover.move(out, two.peer_id, Deal(giver=one.id))
    assert at_worker(two, out) == now


@pytest.mark.parametrize("mode", [Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY, Mode.ACTIVE_STANDBY])
async def test_a_new_primary_follows_the_altered_output(
    cluster: Cluster, made: Made, mode: Mode
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    out = home.name("out")
    async with home.client() as poster, primary.client() as owner:
        source = await make_stream(poster, home, "s")
        await begin(owner, asked(windows(home, source), mode, secondary))
        await post(poster, source, range(250))
        await stands_by(primary, secondary, "q/out")
        await owner.alter_stream(out, UTAH)
        before = (await poster.stream_entry(out)).stream
        assert says_utah(before)
    await die(made, primary, cluster, home, secondary)
    poster = await cluster.client(home)
    serving = secondary.up.engine.store
    await until(lambda: serving.serving(out) is not None, "it has taken over")
    state = serving.serving(out)
    assert state is not None
    assert says_utah(state.entry.stream)
    await poster.alter_stream(out, Alteration(readers=("*",)))
    after = (await poster.stream_entry(out)).stream
    assert after.readers == ("*",)
    assert after.edition > before.edition
