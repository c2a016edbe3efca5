"""A real peer is killed with -9 while a view is made, filled or deleted: afterwards the whole view
exists, or nothing of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import trio
from crashing_peer import Order
from engine_peers import schema_of, send_rows, to_the_end
from kill_sweeps import DELETING_VIEWS, MAKING_VIEWS
from killed_peers import Victim, let_crash

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import END
from medusa.engine.objects.view import Last, View
from medusa.overlay.errors import NotFoundError
from medusa.overlay.failpoints import Failpoint
from medusa.testnet.kit.peers import CONFIG, open_federation
from medusa.tools.client.async_client import open_medusa

PARTICIPANT = "mit.edu"
STREAM = f"medusa://{PARTICIPANT}/s"

SOME = {
    Order(Failpoint.LOG_BEGIN),
    Order(Failpoint.VIEW_PUBLISH),
    Order(Failpoint.LOG_COMMIT, "after"),
    Order(Failpoint.STREAM_DROP, "after"),
}
"""The kill points that every run of the suite tries."""


@pytest.fixture(autouse=True)
def _crashing_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_crash(tmp_path, monkeypatch, interpreting=True)


async def kill_at(making: list[Order], deleting: list[Order]) -> None:
    async with open_federation() as federation:
        federation.config = CONFIG + "[engine]\nepoch_s = 0.05\n"
        peer = await federation.found(PARTICIPANT)
        victim = Victim(peer)
        async with open_medusa(peer.home.folder) as client:
            schema = schema_of(PARTICIPANT)
            await client.create_schema(schema)
            await client.create_stream(StreamDefinition(STREAM, schema.name))
            posted = [(number, number) for number in range(1, 21)]
            await send_rows(client, STREAM, posted, boundary=20)
            for number, step in enumerate(making):
                view = View(f"medusa://{PARTICIPANT}/v{number}", STREAM, Last(7), frozen=True)
                victim.arm(step)
                async with trio.open_nursery() as nursery:
                    # the client asks again until the view exists
                    nursery.start_soon(client.create_view, view)
                    await victim.revive()
                assert await to_the_end(client.subscribe(view.name)) == posted[-7:], step
            for number, step in enumerate(deleting):
                name = f"medusa://{PARTICIPANT}/d{number}"
                await client.create_view(View(name, STREAM, Last(7), frozen=True))
                victim.arm(step)

                async def delete(name: str = name) -> None:
                    # the client asks again, and the peer has deleted the view already
                    with suppress(NotFoundError):
                        await client.delete_view(name)

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(delete)
                    await victim.revive()
                listed = (await client.list_objects()).names
                assert name not in listed.get("view", ()), step
                assert name not in listed["stream"], step
                again = await client.create_view(View(name, STREAM, Last(3), frozen=True))
                assert (again.after, again.until) == (17, 20)
                assert await to_the_end(client.subscribe(name)) == posted[-3:]
            await client.post_event(STREAM, None, end=True)
            assert await to_the_end(client.subscribe(STREAM)) == posted
            snapshot = await client.status()
            views = [s for s in snapshot.peers[0].streams if s.role == "view"]
            assert len(views) == len(making) + len(deleting)
            assert {view.boundary for view in views} == {END}


@pytest.mark.process
async def test_killed_where_it_is_decided() -> None:
    await kill_at(
        [step for step in MAKING_VIEWS if step in SOME],
        [step for step in DELETING_VIEWS if step in SOME],
    )


@pytest.mark.soak
@pytest.mark.process
async def test_killed_at_every_step() -> None:
    await kill_at(MAKING_VIEWS, DELETING_VIEWS)
