"""Private objects: a record hides them, and a peer gives the body only to permitted
participants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from dht_network import Home, World, settle
from hypothesis import given
from hypothesis import strategies as st

from medusa.dht.catalog import Kind
from medusa.dht.private import BLOCK_BYTES, kind_of, sealed
from medusa.dht.records import MAX_INLINE_BYTES, Pointer, digest_of
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import NotAuthorisedError, NotFoundError
from medusa.overlay.names import ObjectName


class Thing(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str = ""
    readers: tuple[str, ...] = ()


THING = Kind("thing", Thing, is_private=lambda thing: bool(thing.readers))
KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()

things = st.builds(Thing, st.text(max_size=3_000), st.lists(st.text(max_size=9)).map(tuple))


@given(things)
def test_sealed_bodies_are_read_as_others_and_show_no_size(thing: Thing) -> None:
    body = sealed("thing", encode(thing), KEY)
    assert decode(body, Thing, limit=len(body), what="thing") == thing
    assert len(body) % BLOCK_BYTES == 0
    assert len(body) > MAX_INLINE_BYTES
    assert sealed("thing", encode(thing), KEY) == body
    assert sealed("thing", encode(thing), OTHER) != body
    assert kind_of(body) == "thing"
    assert kind_of(encode(thing)) == ""


NAME = ObjectName.parse("medusa://mit.edu/thing")
SECRET = Thing("what it is", ("utah.edu",))


@asynccontextmanager
async def met(world: World, *participants: str) -> AsyncIterator[list[Home]]:
    """Give running homes that know each other, and give bodies to permitted participants."""
    homes = [world.home(name) for name in participants]
    async with AsyncExitStack() as stack:
        for home in homes:
            catalog = await stack.enter_async_context(home.running())
            catalog.guard(THING, lambda thing, participant: participant in thing.readers)
        await settle()
        yield homes


async def test_only_permitted_participants_get_a_body(world: World) -> None:
    async with met(world, "mit.edu", "utah.edu", "evil.org") as (mit, utah, evil):
        await mit.catalog.publish(THING, NAME, SECRET)
        assert (await mit.catalog.lookup(THING, NAME)).value == SECRET
        for _ in range(2):  # first from its owner, then from a peer that looked it up
            with pytest.raises(NotAuthorisedError, match=f"evil.org may not read {NAME}"):
                await evil.catalog.lookup(THING, NAME)
            assert (await utah.catalog.lookup(THING, NAME)).value == SECRET
        assert evil.catalog.own_names() == {}
        (record,) = evil.catalog._finder.remembered(THING.under(NAME))
        assert isinstance(record.body, Pointer)
        assert record.body.size == 2 * BLOCK_BYTES
        assert digest_of(encode(SECRET)) != record.body.digest
        for home in (mit, utah):
            assert home.catalog.body(record.body.digest, "utah.edu")
            with pytest.raises(NotAuthorisedError):
                home.catalog.body(record.body.digest, "evil.org")


async def test_a_reader_keeps_a_found_record_while_its_owner_is_away(world: World) -> None:
    async with met(world, "mit.edu", "utah.edu", "evil.org") as (mit, utah, evil):
        await mit.catalog.publish(THING, NAME, SECRET)
        await utah.catalog.lookup(THING, NAME)
        world.network.down.add(mit.address)
        assert (await utah.catalog.lookup(THING, NAME)).value == SECRET
        with pytest.raises(NotAuthorisedError):  # utah.edu has it, and only utah.edu may have it
            await evil.catalog.lookup(THING, NAME)


async def test_another_peer_of_the_owner_answers(world: World) -> None:
    """The other peer holds the record, and so has fetched the body without being asked."""
    async with met(world, "mit.edu", "mit.edu", "utah.edu", "evil.org") as homes:
        mit, _sibling, utah, evil = homes
        await mit.catalog.publish(THING, NAME, SECRET)
        await settle(5.0)
        world.network.down.add(mit.address)
        assert (await utah.catalog.lookup(THING, NAME)).value == SECRET
        with pytest.raises(NotAuthorisedError):
            await evil.catalog.lookup(THING, NAME)


async def test_the_same_again_is_no_new_version_and_a_public_one_replaces_it(world: World) -> None:
    async with met(world, "mit.edu", "utah.edu", "evil.org") as (mit, _utah, evil):
        await mit.catalog.publish(THING, NAME, SECRET)
        first = await mit.catalog.lookup(THING, NAME)
        await mit.catalog.publish(THING, NAME, SECRET)
        mit.catalog.publish_soon(THING, NAME, SECRET)
        assert (await mit.catalog.lookup(THING, NAME)).version == first.version
        assert [each.value for each in mit.catalog.own(THING)] == [SECRET]
        await mit.catalog.publish(THING, NAME, Thing("open"))
        assert (await evil.catalog.lookup(THING, NAME)).value == Thing("open")


async def test_only_the_owner_reads_a_private_object_without_a_guard(world: World) -> None:
    odd = Kind("odd", Thing, is_private=lambda _: True)
    async with met(world, "mit.edu", "mit.edu", "utah.edu") as (mit, sibling, utah):
        await mit.catalog.publish(odd, NAME, SECRET)
        assert (await sibling.catalog.lookup(odd, NAME)).value == SECRET
        with pytest.raises(NotAuthorisedError):
            await utah.catalog.lookup(odd, NAME)


async def test_only_its_owner_gets_a_malformed_body(world: World) -> None:
    async with met(world, "mit.edu", "evil.org") as (mit, _):
        odd = ({"private": 7}, {"private": "thing", "text": 7}, {"private": "another"})
        for body in (*map(encode, odd), b"\x81\xa7private"):
            digest = mit.catalog._bodies.keep(body, own=False).digest
            with pytest.raises(NotAuthorisedError):
                mit.catalog.body(digest, "evil.org")
        with pytest.raises(NotFoundError):
            mit.catalog.body(bytes(32), "evil.org")
