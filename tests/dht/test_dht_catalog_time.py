"""The catalog works over restarts, partitions and losses, and with wrong clocks."""

from __future__ import annotations

from contextlib import AsyncExitStack
from random import Random

import pytest
import trio
from dht_catalogs import LARGE, MAKER, NAME, THING, Maker, Thing, three
from dht_network import EPOCH, World, settle

from examples import examples
from medusa.dht.config import DhtConfig
from medusa.overlay.errors import NotAuthorisedError, NotFoundError, UnavailableError
from medusa.overlay.names import ObjectName


async def test_a_peer_whose_clock_is_behind_still_publishes_newer_versions(world: World) -> None:
    fast, slow, reader = world.home("mit.edu"), world.home("mit.edu"), world.home("utah.edu")
    async with fast.running() as one, slow.running() as two, reader.running() as other:
        await settle()
        await one.publish(THING, NAME, Thing("one"))
        for step in range(20):  # as if a clock half a minute ahead had made these
            await one.publish(THING, NAME, Thing(f"one {step}"))
        local = two._publishing._local
        object.__setattr__(local, "clock", lambda: EPOCH + trio.current_time() - 20)
        await two.publish(THING, NAME, Thing("two"))
        assert (await other.lookup(THING, NAME)).value == Thing("two")


async def test_records_are_renewed_while_the_publisher_lives_and_expire_after(world: World) -> None:
    async with AsyncExitStack() as others:
        mit, utah, cmu = (world.home(name) for name in ("mit.edu", "utah.edu", "cmu.edu"))
        for home in (utah, cmu):
            await others.enter_async_context(home.running())
        async with mit.running() as catalog:
            await settle()
            await catalog.publish(THING, NAME, Thing("a"))
            await settle(3 * 3600)
            assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")
        await settle(1800)
        # its published record still counts
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")
        await settle(1900)
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(THING, NAME)


async def test_in_a_partition_remembered_records_still_answer_even_expired_ones(
    world: World,
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, LARGE)
        await utah.catalog.lookup(THING, NAME)
        world.network.down.update({mit.address, cmu.address})
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        await settle(2 * 3600)
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        with pytest.raises(UnavailableError):
            await utah.catalog.lookup(THING, NAME.child("never-seen"))


async def test_a_restart_keeps_own_objects_and_publishes_them_again(world: World) -> None:
    mit, utah = world.home("mit.edu"), world.home("utah.edu")
    async with mit.running() as catalog:
        assert await catalog.publish(THING, NAME, LARGE) == 1
        (before,) = catalog.own(THING)
    async with utah.running() as other, mit.running() as catalog:
        assert catalog.own(THING) == [before]
        await settle()
        assert await other.lookup(THING, NAME) == before


async def test_records_published_in_a_partition_spread_when_it_heals(world: World) -> None:
    async with three(world) as (mit, utah, _):
        world.network.down.add(mit.address)
        assert await mit.catalog.publish(THING, NAME, Thing("a")) == 1
        with pytest.raises((UnavailableError, NotFoundError)):
            await utah.catalog.lookup(THING, NAME)
        world.network.down.clear()
        await settle(120)
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")


async def test_a_newcomer_answers_and_is_answered(world: World) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        async with world.home("late.edu").running() as late:
            await settle()
            assert (await late.lookup(THING, NAME)).value == Thing("a")
            world.network.down.update({mit.address, utah.address, cmu.address})
            assert (await late.lookup(THING, NAME)).value == Thing("a")  # handed over


async def test_a_catalog_whose_file_lost_bits_is_made_anew_from_what_its_user_has(
    world: World,
) -> None:
    """Whichever bit flips, the peer starts and finds every object again once its user has declared
    it again."""
    rng = Random(7)
    mit, utah = world.home("mit.edu"), world.home("utah.edu")
    objects = {NAME.child(f"o{number}"): Thing(f"v{number}") for number in range(30)}
    objects[NAME] = LARGE
    path = mit.folder / "data" / "catalog.sqlite"
    async with utah.running() as reader:
        for number in range(examples(12, soak=40)):
            async with mit.running() as catalog:
                for name, value in objects.items():
                    catalog.publish_soon(THING, name, value)
                await settle(60)
                assert {p.name: p.value for p in catalog.own(THING)} == objects
                for name in rng.sample(sorted(objects, key=str), 3):
                    for each in (catalog, reader):
                        assert (await each.lookup(THING, name)).value == objects[name]
            data = bytearray(path.read_bytes())
            match number % 4:
                case 0:
                    path.unlink()
                case 1:
                    path.write_bytes(data[: rng.randrange(len(data))])
                case _:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                    path.write_bytes(data)


async def test_republishing_the_same_value_from_files_makes_no_new_record(
    world: World,
) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        before = await utah.catalog.lookup(THING, NAME)
        mit.catalog.publish_soon(THING, NAME, Thing("a"))
        await settle(5)
        assert await utah.catalog.lookup(THING, NAME) == before
        mit.catalog.publish_soon(THING, NAME, Thing("b"))
        await settle(5)
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("b")
        with pytest.raises(NotAuthorisedError):
            utah.catalog.publish_soon(THING, NAME, Thing("c"))


@pytest.mark.parametrize("wrong_s", [-3000.0, 100 * 86_400.0, -100 * 86_400.0])
async def test_a_peer_finds_its_own_whatever_its_clock_and_is_found_once_it_is_right(
    world: World, wrong_s: float
) -> None:
    """A peer that starts with a wrong clock is cut off; its declarations count once the clock is
    right."""
    mit, utah = world.home("mit.edu"), world.home("utah.edu")
    off_s = 0.0
    mit.clock = lambda: EPOCH + trio.current_time() + off_s
    async with utah.running() as reader:
        async with mit.running() as catalog:
            await catalog.publish(THING, NAME, Thing("a"))
            await catalog.publish(MAKER, NAME, Maker("a"))
            await catalog.publish(THING, NAME.child("gone"), Thing("a"))
            await catalog.withdraw(THING, NAME.child("gone"))
            await settle(5)
        off_s = wrong_s
        async with mit.running() as catalog:
            await settle(5)
            assert (await catalog.lookup(THING, NAME)).value == Thing("a")
            await catalog.publish(THING, NAME, Thing("b"))
            assert (await catalog.lookup(THING, NAME)).value == Thing("b")
            assert [p.value for p in await catalog.lookup_all(MAKER, NAME)] == [Maker("a")]
            with pytest.raises(NotFoundError):
                await catalog.lookup(THING, NAME.child("gone"))
            if wrong_s < 0:
                dated = [e.text for e in mit.events.recent() if "clock says" in e.text]
                assert dated
                assert "set it" in dated[0]
            # the others' lookups return the same as before: no record from another time
            assert (await reader.lookup(THING, NAME)).value == Thing("a")
        for _ in range(2):
            off_s = 0.0
            async with mit.running() as catalog:
                await settle(60)
                for each in (catalog, reader):
                    assert (await each.lookup(THING, NAME)).value == Thing("b")
                    assert [p.value for p in await each.lookup_all(MAKER, NAME)] == [Maker("a")]
                await catalog.publish(THING, NAME, Thing("c"))
                assert (await reader.lookup(THING, NAME)).value == Thing("c")
                await catalog.publish(THING, NAME, Thing("b"))


async def test_lookups_survive_loss(world: World) -> None:
    homes = [world.home(f"p{n}.edu", DhtConfig()) for n in range(10)]
    world.network.loss = 0.1
    async with AsyncExitStack() as stack:
        for home in homes:
            await stack.enter_async_context(home.running())
        await settle()
        for number, home in enumerate(homes):
            name = ObjectName.parse(f"medusa://p{number}.edu/x")
            await home.catalog.publish(THING, name, Thing(str(number)))
        for number in range(10):
            name = ObjectName.parse(f"medusa://p{number}.edu/x")
            found = await homes[9 - number].catalog.lookup(THING, name)
            assert found.value == Thing(str(number))
