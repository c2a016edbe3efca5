"""How long a subscription retries with a peer whose connection keeps breaking, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest
import trio

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.schema import BEGINNING
from medusa.overlay.errors import BrokenError, MedusaError, UnavailableError
from medusa.tools.client.subscription import STOOD_S, Source, Subscription

pytestmark = pytest.mark.usefixtures("autojump_clock")


PATIENCE_S = 60.0


class Breaking:
    """A link whose every call stays open for a while, brings nothing, and breaks."""

    def __init__(self, stands_s: float, error: MedusaError) -> None:
        self.stands_s = stands_s
        self.error = error
        self.calls = 0

    async def connection(self) -> Breaking:
        await trio.lowlevel.checkpoint()
        return self

    @asynccontextmanager
    async def open(self, *_: object, **__: object) -> AsyncIterator[Breaking]:
        self.calls += 1
        await trio.lowlevel.checkpoint()
        yield self

    async def receive(self, _: object) -> None:
        await trio.sleep(self.stands_s)
        raise self.error


def subscription(link: Breaking) -> Subscription:
    async def schema(_: str) -> pa.Schema:
        await trio.lowlevel.checkpoint()
        return pa.schema([("stime", pa.int64())])

    async def entry(_: str) -> StreamEntry:
        raise NotImplementedError

    source = Source(link, schema, entry, PATIENCE_S)  # type: ignore[arg-type]
    return Subscription(source, "medusa://mit.edu/answers", after=BEGINNING)


async def test_breaks_far_apart_are_borne_though_nothing_came_between() -> None:
    """A peer is killed every half minute, and its query has no result meanwhile."""
    link = Breaking(30.0, BrokenError("killed"))
    with trio.move_on_after(20 * PATIENCE_S) as hour:
        await subscription(link).run()
    assert hour.cancelled_caught
    assert link.calls > 20


@pytest.mark.parametrize(
    ("stands_s", "error"),
    [
        (STOOD_S / 2, BrokenError("crashes at each subscription")),
        (30.0, UnavailableError("the stream's home does not answer")),
    ],
    ids=["broken in a row", "answered"],
)
async def test_consecutive_failures_end_a_subscription(stands_s: float, error: MedusaError) -> None:
    link = Breaking(stands_s, error)
    failed = subscription(link)
    with trio.fail_after(2 * PATIENCE_S):
        await failed.run()
    with pytest.raises(type(error)):
        await anext(failed)
