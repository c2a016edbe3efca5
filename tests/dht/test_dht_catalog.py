"""The catalog among peers of several participants, in virtual time on a network in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
from dht_network import EPOCH, FEDERATION, World, open_network, settle
from msgspec import Struct
from trio.testing import MockClock

from dht import catalog as catalog_module
from dht.catalog import Kind
from dht.config import DhtConfig
from dht.records import MAX_BODY_BYTES, Record, Subject, seal
from overlay.encoding import encode
from overlay.errors import (
    ConflictError,
    DecodeError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
    UntrustedError,
)
from overlay.names import ObjectName


class Thing(Struct, frozen=True):
    text: str
    numbers: tuple[int, ...] = ()


class Maker(Struct, frozen=True):
    peer: str


THING = Kind("thing", Thing)
MAKER = Kind("maker", Maker, many=True)
NAME = ObjectName.parse("medusa://mit.edu/thing")
LARGE = Thing("large", tuple(range(5000)))


# each test names the clock itself: pytest-trio takes no notice of a fixture's fixtures
@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_network() as network:
        yield World(network, tmp_path)


@asynccontextmanager
async def three(world: World) -> AsyncIterator[tuple[object, ...]]:
    """Homes of mit.edu, utah.edu and cmu.edu, running and met."""
    homes = [world.home(name) for name in ("mit.edu", "utah.edu", "cmu.edu")]
    async with AsyncExitStack() as stack:
        for home in homes:
            await stack.enter_async_context(home.running())
        await settle()
        yield tuple(homes)


async def test_published_here_found_there(world: World, autojump_clock: MockClock) -> None:
    async with three(world) as (mit, utah, cmu):
        assert await mit.catalog.publish(THING, NAME, Thing("a")) == 3
        for home in (mit, utah, cmu):
            found = await home.catalog.lookup(THING, NAME)
            assert (found.name, found.value, found.publisher) == (NAME, Thing("a"), mit.peer_id)
        with pytest.raises(NotFoundError, match="not found"):
            await utah.catalog.lookup(THING, NAME.child("other"))
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(Kind("stuff", Thing), NAME)


async def test_a_new_version_replaces_and_the_same_value_is_no_new_version(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        first = await utah.catalog.lookup(THING, NAME)
        await mit.catalog.publish(THING, NAME, Thing("a"))
        assert await utah.catalog.lookup(THING, NAME) == first
        await mit.catalog.publish(THING, NAME, Thing("b"))
        second = await utah.catalog.lookup(THING, NAME)
        assert second.value == Thing("b")
        assert second.version > first.version


async def test_withdrawn_is_not_found_and_may_be_published_again(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        await mit.catalog.withdraw(THING, NAME)
        with pytest.raises(NotFoundError, match="withdrawn"):
            await utah.catalog.lookup(THING, NAME)
        assert mit.catalog.own(THING) == []
        with pytest.raises(NotFoundError):
            await mit.catalog.withdraw(THING, NAME)
        await mit.catalog.publish(THING, NAME, Thing("a"))
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")


async def test_a_withdrawal_outlives_what_it_withdraws(
    world: World, autojump_clock: MockClock
) -> None:
    """A node that missed it still holds the old record, and loses against it to the end."""
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


async def test_nobody_publishes_or_withdraws_under_anothers_name(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        with pytest.raises(NotAuthorisedError, match=r"only mit\.edu may"):
            await utah.catalog.publish(THING, NAME, Thing("b"))
        with pytest.raises(NotAuthorisedError):
            await utah.catalog.withdraw(THING, NAME)


def hostile(
    home: object, version: int, body: bytes = b"", **changes: object
) -> tuple[bytes, bytes]:
    """Key and record that this home signs, whatever it says."""
    now_us = int((EPOCH + trio.current_time()) * 1e6)
    fields: dict[str, object] = {
        "kind": "thing",
        "many": False,
        "name": str(NAME),
        "publisher": home.peer_id,  # type: ignore[attr-defined]
        "version": now_us + version,
        "issued_at": now_us,
        "expires_at": now_us + 3_600_000_000,
        "body": body,
    }
    record = Record(**{**fields, **changes})  # type: ignore[arg-type]
    return record.subject.key, seal(record, FEDERATION, home.key)  # type: ignore[attr-defined]


async def test_hostile_records_are_refused_on_store_and_disbelieved_on_get(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("true"))
        lie = encode(Thing("lie"))
        now_us = int((EPOCH + trio.current_time()) * 1e6)
        attacks = [
            hostile(utah, 10, lie),  # another participant's name
            hostile(utah, 10, lie, publisher=mit.peer_id),  # signed by someone else
            hostile(mit, 0, lie, issued_at=now_us - 9_000_000, expires_at=now_us - 1),  # expired
            hostile(mit, 3_600_000_000, lie),  # from the future
        ]
        for key, data in attacks:
            with pytest.raises(UntrustedError):
                await utah.catalog._directory.put(key, data)
            # a node that serves it nevertheless
            utah.catalog._store.held = lambda _key, data=data: [data]
            assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("true")
            assert (await mit.catalog.lookup(THING, NAME)).value == Thing("true")
        assert any("disbelieved" in event.text for event in cmu.events.recent())


async def test_a_flood_of_lies_is_one_event_and_leaves_the_others_in_the_list(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("true"))
        cmu.events.note("error", "what matters")
        for number in range(20):
            lies = [hostile(utah, n, name=f"medusa://mit.edu/{number}/{n}")[1] for n in range(6)]
            utah.catalog._store.held = lambda _key, lies=lies: lies
            assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("true")
        disbelieved = [event for event in cmu.events.recent() if "disbelieved" in event.text]
        assert [event.times for event in disbelieved] == [120]


async def test_a_replayed_old_version_is_refused_and_loses(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("old"))
        key = Subject("thing", False, str(NAME)).key
        (old,) = utah.catalog._store.held(key)
        await mit.catalog.publish(THING, NAME, Thing("new"))
        with pytest.raises(ConflictError):
            await utah.catalog._directory.put(key, old)
        utah.catalog._store.held = lambda _key: [old]
        assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("new")


async def test_a_revoked_publisher_is_no_longer_believed(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        await utah.catalog.lookup(THING, NAME)
        world.revoked.add(mit.peer_id)
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(THING, NAME)


async def test_something_else_than_the_kind_is_a_decode_error(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(Kind("thing", Maker), NAME, Maker("x"))
        with pytest.raises(DecodeError, match=r"thing medusa://mit\.edu/thing"):
            await utah.catalog.lookup(THING, NAME)


async def test_a_large_body_comes_from_the_publisher_or_from_who_looked_it_up(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, LARGE)
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        world.network.down.add(mit.address)
        assert (await cmu.catalog.lookup(THING, NAME)).value == LARGE
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE


async def test_a_large_body_that_nobody_has_is_unavailable(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, LARGE)
        world.network.down.add(mit.address)
        with pytest.raises(UnavailableError, match="body"):
            await utah.catalog.lookup(THING, NAME)


async def test_a_tampered_body_is_refused_and_another_source_tried(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, LARGE)
        mit.body_filter = lambda body: body[:-1] + b"\x00"
        with pytest.raises(UntrustedError, match="another body"):
            await utah.catalog.lookup(THING, NAME)
        mit.body_filter = lambda body: body
        await cmu.catalog.lookup(THING, NAME)
        mit.body_filter = lambda body: body + b"x"
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        assert any("another body" in event.text for event in utah.events.recent())


async def test_too_large_a_body_is_refused_at_once(world: World, autojump_clock: MockClock) -> None:
    async with three(world) as (mit, _, _):
        with pytest.raises(InvalidInputError, match="at most"):
            await mit.catalog.publish(THING, NAME, Thing("x" * MAX_BODY_BYTES))
        assert mit.catalog.own(THING) == []


async def test_of_a_many_kind_all_producers_are_found(
    world: World, autojump_clock: MockClock
) -> None:
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


async def test_another_peer_of_the_participant_takes_an_object_over(
    world: World, autojump_clock: MockClock
) -> None:
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


async def test_a_peer_whose_clock_is_behind_still_publishes_newer_versions(
    world: World, autojump_clock: MockClock
) -> None:
    fast, slow, reader = world.home("mit.edu"), world.home("mit.edu"), world.home("utah.edu")
    async with fast.running() as one, slow.running() as two, reader.running() as other:
        await settle()
        await one.publish(THING, NAME, Thing("one"))
        for step in range(20):  # as if a clock half a minute ahead had made these
            await one.publish(THING, NAME, Thing(f"one {step}"))
        around = two._publishing._around
        object.__setattr__(around, "clock", lambda: EPOCH + trio.current_time() - 20)
        await two.publish(THING, NAME, Thing("two"))
        assert (await other.lookup(THING, NAME)).value == Thing("two")


async def test_a_false_conflict_does_not_make_a_publisher_give_up(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("a"))

        def refuse(_key: bytes, _value: bytes) -> None:
            raise ConflictError("a newer one is here, says a liar")

        utah.catalog._directory._bridge._protocol.storage.accept = refuse
        await settle(1300)
        assert [p.value for p in mit.catalog.own(THING)] == [Thing("a")]
        await mit.catalog.publish(THING, NAME, Thing("b"))
        assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("b")


async def test_records_are_renewed_while_the_publisher_lives_and_expire_after(
    world: World, autojump_clock: MockClock
) -> None:
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
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")  # its word still holds
        await settle(1900)
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(THING, NAME)


async def test_in_a_partition_what_was_seen_still_answers_even_expired(
    world: World, autojump_clock: MockClock
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


async def test_a_restart_keeps_own_objects_and_tells_them_again(
    world: World, autojump_clock: MockClock
) -> None:
    mit, utah = world.home("mit.edu"), world.home("utah.edu")
    async with mit.running() as catalog:
        assert await catalog.publish(THING, NAME, LARGE) == 1
        (before,) = catalog.own(THING)
    async with utah.running() as other, mit.running() as catalog:
        assert catalog.own(THING) == [before]
        await settle()
        assert await other.lookup(THING, NAME) == before


async def test_what_was_published_in_a_partition_is_told_when_it_heals(
    world: World, autojump_clock: MockClock
) -> None:
    async with three(world) as (mit, utah, _):
        world.network.down.add(mit.address)
        assert await mit.catalog.publish(THING, NAME, Thing("a")) == 1
        with pytest.raises((UnavailableError, NotFoundError)):
            await utah.catalog.lookup(THING, NAME)
        world.network.down.clear()
        await settle(120)
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")


async def test_a_peer_not_known_yet_is_believed_once_it_is(
    world: World, autojump_clock: MockClock
) -> None:
    """A new peer publishes before the others have its certificate."""
    async with three(world) as (mit, utah, _):
        world.revoked.add(mit.peer_id)
        mit.catalog._store._publisher_of = lambda peer: mit_publisher(world, peer)
        await mit.catalog.publish(THING, NAME, Thing("a"))
        assert any("could not tell of" in event.text for event in mit.events.recent())
        world.revoked.clear()
        await settle(30)
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")


def mit_publisher(world: World, peer: bytes) -> object:
    from dht.records import Publisher

    home = world.homes[peer]
    return Publisher(home.participant, home.key.public_key())


async def test_a_newcomer_answers_and_is_answered(world: World, autojump_clock: MockClock) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        async with world.home("late.edu").running() as late:
            await settle()
            assert (await late.lookup(THING, NAME)).value == Thing("a")
            world.network.down.update({mit.address, utah.address, cmu.address})
            assert (await late.lookup(THING, NAME)).value == Thing("a")  # handed over


async def test_names_of_all_that_answer_and_who_does_not(
    world: World, autojump_clock: MockClock
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


async def test_a_peer_lists_names_of_its_own_participant_alone_and_not_too_many(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "MAX_NAMES", 3)
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        cmu.catalog.own_names = lambda: {
            "thing": (
                "medusa://cmu.edu/c",
                str(NAME.child("lie")),
                "\x1b[2J",
                "medusa://cmu.edu/..",
            ),
            "\x1b[31m": ("medusa://cmu.edu/c",),
        }
        listing = await utah.catalog.names()
        assert listing.names == {"thing": ("medusa://cmu.edu/c", str(NAME))}
        cmu.catalog.own_names = lambda: {"thing": tuple(f"medusa://cmu.edu/{n}" for n in range(9))}
        listing = await utah.catalog.names()
        assert len(listing.names["thing"]) == 1 + 3
        assert str(NAME) in listing.names["thing"]


async def test_a_catalog_whose_file_lost_bits_is_made_anew_from_what_its_user_has(
    world: World, autojump_clock: MockClock
) -> None:
    """Whatever bit it is: the peer starts, and all that is declared again is found again."""
    rng = Random(7)
    mit, utah = world.home("mit.edu"), world.home("utah.edu")
    objects = {NAME.child(f"o{number}"): Thing(f"v{number}") for number in range(30)}
    objects[NAME] = LARGE
    path = mit.folder / "data" / "catalog.sqlite"
    async with utah.running() as reader:
        for number in range(40):
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


async def test_what_a_peer_declares_from_its_files_is_no_news_where_it_is_known(
    world: World, autojump_clock: MockClock
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
    world: World, autojump_clock: MockClock, wrong_s: float
) -> None:
    """Started with a wrong clock, it is cut off: what it declares then counts once it is set."""
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
            # the others' lookups see what they saw before: nothing of another time
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


async def test_a_version_of_the_future_by_a_sibling_can_be_outdone(
    world: World, autojump_clock: MockClock
) -> None:
    first, second, reader = world.home("mit.edu"), world.home("mit.edu"), world.home("utah.edu")
    async with first.running() as one, second.running() as two, reader.running() as other:
        await settle()
        await one.publish(THING, NAME, Thing("one"))
        # the furthest that is believed: the clock is a minute ahead
        key, data = hostile(second, 59_000_000, encode(Thing("wild")))
        await two._directory.put(key, data)
        assert (await other.lookup(THING, NAME)).value == Thing("wild")
        assert await one.publish(THING, NAME, Thing("two")) >= 2
        assert (await other.lookup(THING, NAME)).value == Thing("two")
        for ahead in (61_000_000, 2**62 - int(EPOCH * 1e6) - 10**12):
            key, data = hostile(second, ahead, encode(Thing("wild")))
            with pytest.raises(UntrustedError, match="future"):
                await two._directory.put(key, data)
        assert (await other.lookup(THING, NAME)).value == Thing("two")


async def test_lookups_survive_loss(world: World, autojump_clock: MockClock) -> None:
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
