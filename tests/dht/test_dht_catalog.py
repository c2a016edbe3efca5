"""The catalog among peers of several participants, in virtual time on a network in memory."""

from __future__ import annotations

import pytest
from dht_catalogs import LARGE, MAKER, NAME, THING, Maker, Thing, three
from dht_network import World, settle

from medusa.dht.catalog import Kind
from medusa.dht.records import MAX_BODY_BYTES
from medusa.overlay.errors import InvalidInputError, NotFoundError, UnavailableError
from medusa.overlay.names import ObjectName


async def test_an_object_published_at_one_peer_is_found_at_another(world: World) -> None:
    async with three(world) as (mit, utah, cmu):
        assert await mit.catalog.publish(THING, NAME, Thing("a")) == 3
        for home in (mit, utah, cmu):
            found = await home.catalog.lookup(THING, NAME)
            assert (found.name, found.value, found.publisher) == (NAME, Thing("a"), mit.peer_id)
        with pytest.raises(NotFoundError, match="not found"):
            await utah.catalog.lookup(THING, NAME.child("other"))
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(Kind("stuff", Thing), NAME)


async def test_a_new_version_replaces_and_the_same_value_is_no_new_version(world: World) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        first = await utah.catalog.lookup(THING, NAME)
        await mit.catalog.publish(THING, NAME, Thing("a"))
        assert await utah.catalog.lookup(THING, NAME) == first
        await mit.catalog.publish(THING, NAME, Thing("b"))
        second = await utah.catalog.lookup(THING, NAME)
        assert second.value == Thing("b")
        assert second.version > first.version


async def test_withdrawn_is_not_found_and_may_be_published_again(world: World) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        await mit.catalog.withdraw(THING, NAME)
        with pytest.raises(NotFoundError, match="its owner has deleted it"):
            await utah.catalog.lookup(THING, NAME)
        assert mit.catalog.own(THING) == []
        with pytest.raises(NotFoundError):
            await mit.catalog.withdraw(THING, NAME)
        await mit.catalog.publish(THING, NAME, Thing("a"))
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")


async def test_a_withdrawal_outlives_what_it_withdraws(world: World) -> None:
    """A node that missed the withdrawal still holds the old record; every lookup prefers the
    withdrawal."""
    async with three(world) as (mit, _, cmu):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        world.network.down.add(cmu.address)
        await mit.catalog.withdraw(THING, NAME)
        world.network.down.clear()
        for _ in range(9):
            await settle(600)
            with pytest.raises(NotFoundError):
                await cmu.catalog.lookup(THING, NAME)
        assert mit.catalog._store.publications() == []


async def test_a_large_body_comes_from_the_publisher_or_from_a_peer_that_looked_it_up(
    world: World,
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, LARGE)
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        world.network.down.add(mit.address)
        assert (await cmu.catalog.lookup(THING, NAME)).value == LARGE
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE


async def test_a_large_body_that_no_peer_has_is_unavailable(world: World) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, LARGE)
        world.network.down.add(mit.address)
        with pytest.raises(UnavailableError, match="body"):
            await utah.catalog.lookup(THING, NAME)


async def test_too_large_a_body_is_refused_at_once(world: World) -> None:
    async with three(world) as (mit, _, _):
        with pytest.raises(InvalidInputError, match="at most"):
            await mit.catalog.publish(THING, NAME, Thing("x" * MAX_BODY_BYTES))
        assert mit.catalog.own(THING) == []


async def test_a_lookup_finds_every_publisher_of_a_many_kind(world: World) -> None:
    first, second, reader = world.home("mit.edu"), world.home("mit.edu"), world.home("utah.edu")
    async with first.running() as one, second.running() as two, reader.running() as other:
        await settle()
        await one.publish(MAKER, NAME, Maker("one"))
        await two.publish(MAKER, NAME, Maker("two"))
        found = await other.lookup_all(MAKER, NAME)
        assert {(p.publisher, p.value.peer) for p in found} == {
            (first.peer_id, "one"),
            (second.peer_id, "two"),
        }
        await one.withdraw(MAKER, NAME)
        assert [p.value for p in await other.lookup_all(MAKER, NAME)] == [Maker("two")]
        with pytest.raises(NotFoundError, match="not published by this peer"):
            await one.withdraw(MAKER, NAME)
        assert await other.lookup_all(MAKER, NAME.child("none")) == []


async def test_another_peer_of_the_participant_takes_an_object_over(world: World) -> None:
    first, second, reader = world.home("mit.edu"), world.home("mit.edu"), world.home("utah.edu")
    async with first.running() as one, second.running() as two, reader.running() as other:
        await settle()
        await one.publish(THING, NAME, Thing("one"))
        await settle(1)
        await two.publish(THING, NAME, Thing("two"))
        assert (await other.lookup(THING, NAME)).value == Thing("two")
        await settle(700)
        assert (await other.lookup(THING, NAME)).value == Thing("two")
        assert one.own(THING) == []
        assert any("another peer of ours" in event.text for event in first.events.recent())
        await one.withdraw(THING, NAME)
        with pytest.raises(NotFoundError):
            await other.lookup(THING, NAME)


async def test_a_listing_has_the_names_of_peers_that_answer_and_the_ids_of_the_others(
    world: World,
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        await mit.catalog.publish(MAKER, NAME, Maker("m"))
        await cmu.catalog.publish(THING, ObjectName.parse("medusa://cmu.edu/c"), Thing("c"))
        world.network.down.add(cmu.address)
        listing = await utah.catalog.names()
        assert listing.names == {"maker": (str(NAME),), "thing": (str(NAME),)}
        assert listing.unreachable == (cmu.peer_id.hex(),)
        world.network.down.clear()
        listing = await utah.catalog.names()
        assert listing.names["thing"] == ("medusa://cmu.edu/c", str(NAME))
