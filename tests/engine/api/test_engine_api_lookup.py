"""A lookup by name when a peer that may know the name does not answer."""

from __future__ import annotations

import pytest
from engine_peers import Cluster, begin, make_stream, received, send_rows

from medusa.engine.objects.query import Filter, Query
from medusa.overlay.errors import UnavailableError
from medusa.tools.client.entries import entry_of

pytestmark = pytest.mark.usefixtures("interpreted")


async def test_a_lookup_finds_a_peers_objects_though_its_only_sibling_is_dead(
    cluster: Cluster,
) -> None:
    """Nobody can tell whether the dead sibling has changed the object of that name."""
    one, two = await cluster.siblings(2)
    async with one.client() as client:
        source = await make_stream(client, one, "s")
        odd = Filter("odd", source, (one.name("odds"),), ("value % 2 = 1",))
        await begin(client, Query(one.name("odd"), (odd,)))
    await cluster.stop(two)
    async with one.client(patience_s=0.2) as client:
        await send_rows(client, source, [(1, 1), (2, 2)], boundary=10)
        assert await received(client.subscribe(one.name("odds")), 1) == [(1, 1)]
        for name, kind in ((source, "stream"), (one.name("odd"), "query")):
            found = await client.lookup_object(name)
            assert kind in found.entries
            assert set(found.unavailable) == {"schema", "stream", "query"} - {kind}
            assert set((await client.lookup_object(name, kind)).unavailable) == set()
        with pytest.raises(UnavailableError, match="may know of it cannot be asked"):
            entry_of(await client.lookup_object(source, "query"), "query", object)
        with pytest.raises(UnavailableError, match="may know of it cannot be asked"):
            await client.lookup_object(one.name("nothing"))
