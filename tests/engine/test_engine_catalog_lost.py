"""A peer whose catalog file is lost or damaged finds its own objects in other files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from damaged_files import make_folder
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, begin, make_stream, received, schema_of, send_rows, until

from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.objects.view import Range, View
from medusa.overlay.errors import MedusaError
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.usefixtures("interpreted")


def catalog_of(place: Place) -> Path:
    return place.home.data / "catalog.sqlite"


def lose(path: Path) -> None:
    path.unlink()


def lose_all_but_the_log(path: Path) -> None:
    path.unlink()
    path.with_name("catalog.sqlite-wal").write_bytes(b"7" * 8192)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 501):
        data[at] ^= 0x10
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 7)


def fill_with_text(path: Path) -> None:
    path.write_bytes(b"this is no database at all\n" * 500)


WIDE = tuple(Field(f"field_number_{number}", FieldType.LONG) for number in range(60))
"""A description that is too long for a record: peers fetch its body."""


async def own_something(place: Place, client: AsyncMedusaClient) -> dict[str, set[str]]:
    """Create streams, a query, a view and schemas; return their names by kind."""
    source = await make_stream(client, place, "s")
    output = place.name("odds")
    boxes = (Filter("odd", source, (output,), ("value % 2 = 1",)),)
    await begin(client, Query(place.name("odd"), boxes))
    await client.create_schema(Schema(place.name("wide"), WIDE))
    await client.create_schema(schema_of(place.participant, "unused"))
    await send_rows(client, source, [(1, 1), (2, 2)], boundary=10)
    await client.create_view(View(place.name("v"), source, Range(0, 10)))
    names = (await client.list_objects()).names
    return {kind: set(found) for kind, found in names.items() if kind != "producer"}


async def found_by(client: AsyncMedusaClient, name: str) -> None:
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                found = await client.lookup_object(name)
                assert found.entries or found.private  # a schema that no stream uses yet
            except MedusaError:  # until its publisher has published it again
                await trio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize(
    "damage", [lose, lose_all_but_the_log, flip, truncate, fill_with_text, make_folder]
)
async def test_all_that_a_peer_owns_is_found_though_its_catalog_is_gone(
    cluster: Cluster, damage: Callable[[Path], None]
) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client() as client:
        owned = await own_something(mit, client)
    for place in (utah, mit):  # the other peer does not remember it, either
        await cluster.stop(place)
        damage(catalog_of(place))
    for place in (mit, utah):
        await cluster.start(place)
    async with mit.client(producer="q") as client, utah.client() as far:
        listed = (await client.list_objects()).names
        assert {k: set(v) for k, v in listed.items() if k != "producer"} == owned
        for name in sorted(set().union(*owned.values())):
            assert (await client.lookup_object(name)).entries
            await found_by(far, name)
        await send_rows(client, mit.name("s"), [(11, 7)], boundary=20)
        assert await received(far.subscribe(mit.name("odds"), 10), 1) == [(11, 7)]
    whole = damage in {lose, lose_all_but_the_log}
    assert any("is put aside as" in text for text in mit.errors()) is not whole
    assert mit.home.data.joinpath("catalog.sqlite.damaged-1").exists() is not whole


async def test_the_later_of_two_schemas_of_a_split_counts_over_restarts(
    cluster: Cluster,
) -> None:
    one, two = await cluster.settle_all("mit.edu", "mit.edu")
    early = Schema(one.name("x"), (Field("early", FieldType.LONG),))
    late = Schema(one.name("x"), (Field("late", FieldType.LONG),))
    await cluster.stop(two)
    for place, other, schema in ((one, two, early), (two, one, late)):
        # as if the peer could not rule out that another peer defined it
        place.up.engine.catalog._finder._is_ours_to_deny = _denied
        async with place.client() as client:
            await client.create_schema(schema)
        await cluster.stop(place)
        await cluster.start(other)
    await cluster.start(two)
    file = next((one.home.data / "schemas").glob("*.json"))
    await until(lambda: not file.exists(), "the earlier one gives way")
    await cluster.restart(one)
    async with one.client() as client:
        entries = (await client.lookup_object(one.name("x"))).entries
    assert "late" in entries["schema"]


async def _denied(_subject: object) -> bool:
    await trio.lowlevel.checkpoint()
    return True
