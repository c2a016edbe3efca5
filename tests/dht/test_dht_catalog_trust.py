"""The catalog refuses lies, replays and records of the revoked, and waits for unknown peers."""

from __future__ import annotations

import pytest
import trio
from dht_catalogs import LARGE, NAME, THING, Maker, Thing, three
from dht_network import EPOCH, FEDERATION, World, settle

from medusa.dht import catalog as catalog_module
from medusa.dht.catalog import Kind
from medusa.dht.records import Publisher, Record, Subject, seal
from medusa.overlay.encoding import encode
from medusa.overlay.errors import (
    ConflictError,
    DecodeError,
    NotAuthorisedError,
    NotFoundError,
    UntrustedError,
)


async def test_only_the_owner_publishes_and_withdraws_a_name(world: World) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        with pytest.raises(NotAuthorisedError, match=r"only mit\.edu may"):
            await utah.catalog.publish(THING, NAME, Thing("b"))
        with pytest.raises(NotAuthorisedError):
            await utah.catalog.withdraw(THING, NAME)


def hostile(
    home: object, version: int, body: bytes = b"", **changes: object
) -> tuple[bytes, bytes]:
    """Return a key and a record with arbitrary content, signed by this home."""
    now_us = int((EPOCH + trio.current_time()) * 1e6)
    fields: dict[str, object] = {
        "kind": "thing",
        "many": False,
        "name": str(NAME),
        "publisher": home.peer_id,
        "version": now_us + version,
        "issued_at": now_us,
        "expires_at": now_us + 3_600_000_000,
        "body": body,
    }
    record = Record(**{**fields, **changes})
    return record.subject.key, seal(record, FEDERATION, home.key)


async def test_hostile_records_are_refused_on_store_and_disbelieved_on_get(world: World) -> None:
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
            # a hostile node stores the record nevertheless
            utah.catalog._store.held = lambda _key, data=data: [data]
            assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("true")
            assert (await mit.catalog.lookup(THING, NAME)).value == Thing("true")
        assert any("disbelieved" in event.text for event in cmu.events.recent())


async def test_a_flood_of_lies_is_one_event_and_leaves_the_others_in_the_list(world: World) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("true"))
        cmu.events.note("error", "what matters")
        for number in range(20):
            lies = [hostile(utah, n, name=f"medusa://mit.edu/{number}/{n}")[1] for n in range(6)]
            utah.catalog._store.held = lambda _key, lies=lies: lies
            assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("true")
        disbelieved = [event for event in cmu.events.recent() if "disbelieved" in event.text]
        assert [event.times for event in disbelieved] == [120]


async def test_a_replayed_old_version_is_refused_and_loses(world: World) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("old"))
        key = Subject("thing", False, str(NAME)).key
        (old,) = utah.catalog._store.held(key)
        await mit.catalog.publish(THING, NAME, Thing("new"))
        with pytest.raises(ConflictError):
            await utah.catalog._directory.put(key, old)
        utah.catalog._store.held = lambda _key: [old]
        assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("new")


async def test_a_revoked_publisher_is_no_longer_believed(world: World) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(THING, NAME, Thing("a"))
        await utah.catalog.lookup(THING, NAME)
        world.revoked.add(mit.peer_id)
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(THING, NAME)


async def test_something_else_than_the_kind_is_a_decode_error(world: World) -> None:
    async with three(world) as (mit, utah, _):
        await mit.catalog.publish(Kind("thing", Maker), NAME, Maker("x"))
        with pytest.raises(DecodeError, match=r"thing medusa://mit\.edu/thing"):
            await utah.catalog.lookup(THING, NAME)


async def test_a_tampered_body_is_refused_and_another_source_tried(world: World) -> None:
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


async def test_a_false_conflict_does_not_make_a_publisher_give_up(world: World) -> None:
    async with three(world) as (mit, utah, cmu):
        await mit.catalog.publish(THING, NAME, Thing("a"))

        def refuse(_key: bytes, _value: bytes) -> None:
            raise ConflictError("a newer one is here, says a liar")

        utah.catalog._directory._bridge._protocol.storage.accept = refuse
        await settle(1300)
        assert [p.value for p in mit.catalog.own(THING)] == [Thing("a")]
        await mit.catalog.publish(THING, NAME, Thing("b"))
        assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("b")


async def test_an_unknown_peer_is_believed_once_it_is_known(world: World) -> None:
    """A new peer publishes before the others have its certificate; they believe it once they
    have."""
    async with three(world) as (mit, utah, _):
        world.revoked.add(mit.peer_id)
        mit.catalog._store._publisher_of = lambda peer: mit_publisher(world, peer)
        await mit.catalog.publish(THING, NAME, Thing("a"))
        assert any("could not tell of" in event.text for event in mit.events.recent())
        world.revoked.clear()
        await settle(30)
        assert (await utah.catalog.lookup(THING, NAME)).value == Thing("a")


def mit_publisher(world: World, peer: bytes) -> object:
    home = world.homes[peer]
    return Publisher(home.participant, home.key.public_key())


async def test_a_peer_lists_names_of_its_own_participant_alone_and_not_too_many(
    world: World, monkeypatch: pytest.MonkeyPatch
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


async def test_a_version_of_the_future_by_a_sibling_can_be_outdone(world: World) -> None:
    first, second, reader = world.home("mit.edu"), world.home("mit.edu"), world.home("utah.edu")
    async with first.running() as one, second.running() as two, reader.running() as other:
        await settle()
        await one.publish(THING, NAME, Thing("one"))
        # the furthest time that others believe: the clock is a minute ahead
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
