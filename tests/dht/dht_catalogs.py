"""Catalogs of three participants that know each other, and the kinds of objects that they
publish."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from dht_network import World, settle
from msgspec import Struct

from medusa.dht.catalog import Kind
from medusa.overlay.names import ObjectName


class Thing(Struct, frozen=True):
    text: str
    numbers: tuple[int, ...] = ()


class Maker(Struct, frozen=True):
    peer: str


THING = Kind("thing", Thing)
MAKER = Kind("maker", Maker, many=True)
NAME = ObjectName.parse("medusa://mit.edu/thing")
LARGE = Thing("large", tuple(range(5000)))


@asynccontextmanager
async def three(world: World) -> AsyncIterator[tuple[object, ...]]:
    """Yield running homes of mit.edu, utah.edu and cmu.edu that know each other."""
    homes = [world.home(name) for name in ("mit.edu", "utah.edu", "cmu.edu")]
    async with AsyncExitStack() as stack:
        for home in homes:
            await stack.enter_async_context(home.running())
        await settle()
        yield tuple(homes)
