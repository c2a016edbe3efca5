"""A filter before overlapping windows is modified. One of these windows is always open, so both
editions make panes for as long as a window lasts."""

from __future__ import annotations

import pytest
from engine_peers import Cluster, begin, make_stream
from modified_queries import (
    MORE,
    Edition,
    ModifiedReader,
    change,
    edition,
    modify,
    rolling_sums,
    stored,
)
from moving_tasks import post
from replicated_queries import LOSSLESS, Made, asked, cast, die, stands_by

from medusa.engine.objects.availability import Mode
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import InvalidInputError

QUICK = Timing(
    modified_s=0.05,
    maintenance_s=0.05,
    keep_up_s=0.05,
    parted_s=0.3,
    workers_s=0.05,
    confirm_s=0.05,
)
pytestmark = [pytest.mark.cluster(timing=QUICK), pytest.mark.usefixtures("interpreted")]

OTHER = change("sieve", expression_0="value > 3")
SHORTER = change("sum", window_size="0.0003")

BEGIN, SINCE = 599, 1099
"""After `BEGIN` both editions make panes; after `SINCE` the new edition makes every window."""


async def test_the_new_edition_counts_once_its_first_window_is_whole(cluster: Cluster) -> None:
    one, two = await cluster.siblings(2)
    async with two.client() as reader:
        async with one.client() as client:
            source = await make_stream(client, one, "s")
            query = rolling_sums(one, source)
            await begin(client, query)
            sums = ModifiedReader(reader, one.name("sums"), "total", "number")
            await sums.feed(client, source, range(530))
            with pytest.raises(InvalidInputError, match=r"from 1099 .* on, not from 600"):
                await modify(client, query.name, MORE, at=600)
            assert (await modify(client, query.name, MORE)).since == SINCE
            with pytest.raises(InvalidInputError, match=r"from 1599 .* on, not from 1200"):
                await modify(client, query.name, OTHER, at=1200)
            await sums.feed(client, source, range(530, 850))
            assert one.state("sums/panes").log.boundary > BEGIN
        await cluster.restart(one)
        async with one.client() as client:
            assert len(stored(one).editions) == 1
            await sums.feed(client, source, range(850, 1730))
            shorter = (await modify(client, query.name, SHORTER)).since
            assert shorter == 1730 - 1, "what is behind the panes changes at once"
            await sums.end(client, source, range(1730, 2500))
    editions = [Edition(query), edition(query, SINCE, MORE)]
    editions.append(edition(editions[-1].query, shorter, SHORTER))
    sums.check(editions, source, range(2500))


@pytest.mark.parametrize("mode", LOSSLESS)
async def test_a_primary_that_dies_meanwhile_is_succeeded(
    cluster: Cluster, made: Made, mode: Mode
) -> None:
    home, one, two, reader = await cast(cluster, made)
    async with home.client() as poster, one.client() as owner, reader.client() as client:
        source = await make_stream(poster, home, "s")
        query = asked(rolling_sums(one, source), mode, two)
        await begin(owner, query)
        sums = ModifiedReader(client, one.name("sums"), "total", "number")
        await sums.feed(poster, source, range(250))
        await stands_by(one, two, "q")
        await sums.feed(poster, source, range(250, 530))
        assert (await modify(owner, query.name, MORE)).since == SINCE
        await sums.feed(poster, source, range(530, 850))
        await die(made, one, cluster, home, two, reader)
        await sums.end(poster, source, range(850, 2000))
    sums.check([Edition(query), edition(query, SINCE, MORE)], source, range(2000))


@pytest.mark.parametrize("moved", ["sums/panes", "sums"])
async def test_a_task_moves_meanwhile(cluster: Cluster, moved: str) -> None:
    one, two, three = await cluster.siblings(3)
    async with one.client() as client, three.client() as reader:
        source = await make_stream(client, one, "s")
        query = rolling_sums(one, source)
        await begin(client, query)
        sums = ModifiedReader(reader, one.name("sums"), "total", "number")
        mover = one.up.engine.mover
        await sums.feed(client, source, range(250))
        await mover.move(one.name(moved), two.peer_id, Deal(giver=one.id))
        await sums.feed(client, source, range(250, 530))
        assert (await modify(client, query.name, MORE)).since == SINCE
        _, placed = one.up.engine.queries.find(one.name(moved))
        assert not placed.current.term.holder, "it is at home, to be changed"
        await sums.feed(client, source, range(530, 850))
        await mover.move(one.name(moved), two.peer_id, Deal(giver=one.id))
        await post(client, source, range(850, 950))
        # after the restart the peer plans the task with both editions again
        await cluster.restart(two)
        await sums.feed(client, source, range(950, 1500))
        assert placed.current.term.holder == two.peer_id
        await sums.end(client, source, range(1500, 2000))
    sums.check([Edition(query), edition(query, SINCE, MORE)], source, range(2000))
