"""The trio client against a peer that crashes, refuses calls, and sends messages twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import tools_fake_peer
import trio
from deadline import DEADLINE_S
from engine_peers import send_rows
from tools_fake_peer import DERIVED, SCHEMA, STREAM, FakePeer, derived, make_home, rows

from medusa.engine.api.messages import ListObjects, Objects
from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.overlay.errors import (
    BusyError,
    ClosedError,
    DecodeError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    NotRetainedError,
    UnavailableError,
)
from medusa.overlay.files import write_secret
from medusa.tools.client import corrected_subscription
from medusa.tools.client.async_client import Corrections, open_medusa
from medusa.tools.client.link import SETTLING_S, call
from medusa.tools.client.subscription import Subscription
from medusa.tools.home.folder import Home


async def test_calls_raise_what_the_peer_answered(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path) as client:
        assert await client.create_query_xml("<x/>") == ("medusa://mit.edu/made",)
        with pytest.raises(InvalidInputError, match="line 1"):
            await client.create_query_xml("nothing")
        await client.start_query("medusa://mit.edu/q")
        await client.delete_query("medusa://mit.edu/q")
        assert [status for _, status in peer.statuses] == ["RUNNING", "DELETED"]
        with pytest.raises(NotFoundError):
            await client.lookup_object("medusa://mit.edu/none")
        with pytest.raises(InvalidInputError, match="no stream but: schema"):
            await client.stream_entry(SCHEMA.name)
        assert (await client.list_objects()).names["stream"] == (STREAM, DERIVED)
        assert (await client.status()).federation == "fed"


async def test_an_error_in_the_body_leaves_the_client_as_itself(
    peer: FakePeer, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError):
        async with open_medusa(tmp_path) as client:
            await client.lookup_object("medusa://mit.edu/none")


async def test_a_call_is_made_again_after_a_crash(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path) as client:
        peer.crash()
        assert (await client.status()).federation == "fed"
        assert peer.starts == 2


async def test_posts_survive_crashes_exactly_once(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path) as client:
        peer.crash_at = [1, 3, 4, 20]
        for number in range(30):
            await client.post_event(STREAM, rows(10 * number, 10))
        await client.post_event(STREAM, None, boundary=7)
        await send_rows(client, STREAM, end=True)
        poster = await client.poster(STREAM)
        assert peer.starts == 5
        assert peer.stored[client.producer] == [(n, 10) for n in range(1, 31)] + [(31, 0), (32, 0)]
        assert poster.boundary == END
        assert poster.duplicates >= 4


async def test_a_producer_that_comes_back_posts_only_the_rest(
    peer: FakePeer, tmp_path: Path
) -> None:
    for upto in (3, 5):
        async with open_medusa(tmp_path, producer="loader") as client:
            for number in range(upto):
                await client.post_event(STREAM, rows(number, 1))
            await client.flush()
    poster = await client.poster(STREAM)
    assert (poster.rows, poster.duplicates) == (2, 3)
    assert peer.stored["loader"] == [(n, 1) for n in range(1, 6)]


async def test_a_client_waits_for_a_busy_peer(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path) as client:
        peer.refuse = [BusyError("full"), UnavailableError("its home is away"), BusyError("full")]
        await send_rows(client, STREAM, rows(0, 5))
        assert peer.stored[client.producer] == [(1, 5)]


async def test_a_refused_post_fails_flush_and_what_follows(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path) as client:
        peer.refuse = [NotAuthorisedError("not for you")]
        await client.post_event(STREAM, rows(0, 5))
        with pytest.raises(NotAuthorisedError, match="not for you"):
            await client.flush()
        with pytest.raises(NotAuthorisedError):
            await client.post_event(STREAM, rows(5, 5))


async def test_an_unreported_failure_is_raised_at_the_end(peer: FakePeer, tmp_path: Path) -> None:
    peer.refuse = [NotAuthorisedError("not for you")]
    with pytest.raises(NotAuthorisedError, match="not for you"):
        async with open_medusa(tmp_path) as client:
            await client.post_event(STREAM, rows(0, 5))


async def test_patience_ends(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path, patience_s=0.2) as client:
        peer.refuse = [BusyError("full")] * 100
        await client.post_event(STREAM, rows(0, 5))
        with pytest.raises(BusyError):
            await client.flush()


async def test_a_row_that_does_not_fit_is_named_before_it_is_sent(
    peer: FakePeer, tmp_path: Path
) -> None:
    async with open_medusa(tmp_path) as client:
        wrong = pa.table({"ts": [1.0, 2.0], "name": ["a", "b" * 21]})
        with pytest.raises(InvalidInputError, match="row 2, field 'name'"):
            await client.post_event(STREAM, wrong)
        await send_rows(client, STREAM, rows(0, 1))
        assert peer.stored[client.producer] == [(1, 1)]


def _epochs() -> list[tuple[int, int, list[pa.Table]]]:
    return [
        (BEGINNING, 9, [derived(0, 4), derived(4, 6)]),
        (9, 19, [derived(10, 3), derived(13, 3), derived(16, 4)]),
        (19, 29, [derived(20, 0)]),
        (29, END, [derived(30, 10)]),
    ]


@pytest.mark.parametrize("crashes", [[], [1], [2], [3, 1], [4, 2, 3], [6, 1]])
async def test_a_subscription_survives_crashes_exactly_once(
    peer: FakePeer, tmp_path: Path, crashes: list[int]
) -> None:
    async with open_medusa(tmp_path) as client:
        peer.epochs, peer.crash_after = _epochs(), list(crashes)
        received = []
        boundaries = []
        async for epoch in client.subscribe(DERIVED, subscriber="me"):
            received += epoch.table.column("stime").to_pylist()
            boundaries.append((epoch.after, epoch.upto))
        assert received == [*range(20), *range(30, 40)]
        assert boundaries == [(after, upto) for after, upto, _ in _epochs()]
        assert peer.starts == 1 + len(crashes)
        assert peer.subscribed[0] == BEGINNING
        assert set(peer.subscribed) <= {BEGINNING, 9, 19, 29}
        assert peer.acknowledged[-1] == END
        assert peer.acknowledged == sorted(set(peer.acknowledged))


async def test_an_output_that_comes_again_with_another_schema_is_read_by_the_new_one(
    peer: FakePeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_medusa(tmp_path) as client:
        peer.epochs = _epochs()
        assert len([epoch async for epoch in client.subscribe(DERIVED)]) == 4
        fields = (*SCHEMA.fields, Field("more", FieldType.STRING, size=20))
        schema = Schema(SCHEMA.name, fields, SCHEMA.time)
        entry = StreamEntry(tools_fake_peer.ENTRIES[DERIVED].stream, schema)
        monkeypatch.setitem(tools_fake_peer.ENTRIES, DERIVED, entry)
        table = derived(0, 4).append_column(schema.derived.field("more"), [["x"] * 4])
        peer.epochs = [(BEGINNING, END, [table])]
        received = [epoch.table async for epoch in client.subscribe(DERIVED)]
        assert [t.column("more").to_pylist() for t in received] == [["x"] * 4]


async def test_an_epoch_is_acknowledged_when_the_next_is_asked_for(
    peer: FakePeer, tmp_path: Path
) -> None:
    async with open_medusa(tmp_path) as client:
        peer.epochs = _epochs()
        async with client.subscribe(DERIVED) as subscription:
            await anext(subscription)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert peer.acknowledged == []
            await anext(subscription)
            with trio.fail_after(DEADLINE_S):
                while not peer.acknowledged:
                    await trio.testing.wait_all_tasks_blocked(0.001)
            assert peer.acknowledged == [9]
        with pytest.raises(ClosedError):
            _ = [epoch async for epoch in subscription]


async def test_receive_events_takes_what_has_arrived(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path) as client:
        peer.epochs = _epochs()
        subscription: Subscription = client.subscribe(DERIVED)
        sizes = []
        stimes: list[int] = []
        while not subscription.ended:
            table = await subscription.receive_events(7, 5.0)
            sizes.append(table.num_rows)
            stimes += table.column("stime").to_pylist()
        assert stimes == [*range(20), *range(30, 40)]
        assert sizes == [7, 3, 7, 3, 7, 3]


async def test_receive_events_gives_nothing_when_nothing_comes(
    peer: FakePeer, tmp_path: Path
) -> None:
    async with open_medusa(tmp_path) as client:
        peer.epochs = _epochs()[:1]
        subscription = client.subscribe(DERIVED)
        assert (await subscription.receive_events(100, 5.0)).num_rows == 10
        assert (await subscription.receive_events(100, 0.05)).num_rows == 0
        peer.epochs += [(9, END, [derived(10, 1)])]
        peer.crash()
        assert (await subscription.receive_events(100, 5.0)).num_rows == 1


async def test_a_subscription_fails_for_good(peer: FakePeer, tmp_path: Path) -> None:
    async with open_medusa(tmp_path) as client:
        peer.refuse = [NotRetainedError("gone")]
        with pytest.raises(NotRetainedError):
            await anext(client.subscribe(DERIVED))
        with pytest.raises(NotFoundError):
            await anext(client.subscribe("medusa://mit.edu/none"))
        with pytest.raises(NotFoundError):
            await client.subscribe("medusa://mit.edu/none").schema()


async def test_nonsense_of_a_producer_ends_a_subscription_after_what_made_sense(
    peer: FakePeer, tmp_path: Path
) -> None:
    async with open_medusa(tmp_path) as client:
        peer.epochs = [(BEGINNING, 9, [derived(0, 10)]), (15, END, [derived(20, 1)])]
        subscription = client.subscribe(DERIVED)
        assert (await anext(subscription)).table.num_rows == 10
        told = f"{DERIVED} after boundary 9: who produces it sends what makes no sense"
        with pytest.raises(DecodeError, match=told):
            await anext(subscription)
        assert subscription.boundary == 9


async def test_no_more_is_sent_again_than_the_client_can_keep(
    peer: FakePeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_medusa(tmp_path) as client:
        peer.epochs = [(BEGINNING, 9, [derived(0, 10)]), (9, END, [derived(10, 10)])]
        async with client.follow(DERIVED, Corrections.UNDO) as changes:
            again = await changes._read(DERIVED, BEGINNING, 15)
            assert again.table.num_rows == 16
            monkeypatch.setattr(corrected_subscription, "AGAIN_BYTES", 300)
            with pytest.raises(InvalidInputError, match="follow it by revisions instead of undo"):
                await changes._read(DERIVED, BEGINNING, 15)


async def test_a_client_without_home_or_peer_names_the_command_to_run(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="medusa-peer init"):
        async with open_medusa(tmp_path / "none"):
            pass
    make_home(tmp_path / "home")
    with pytest.raises(UnavailableError, match="medusa-peer run"):
        async with open_medusa(tmp_path / "home"):
            pass


async def test_the_token_is_checked(peer: FakePeer, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.token.chmod(0o644)
    with pytest.raises(NotAuthorisedError, match="chmod 600"):
        async with open_medusa(tmp_path):
            pass
    write_secret(home.token, b"0" * 64)
    with pytest.raises(NotAuthorisedError):
        async with open_medusa(tmp_path) as client:
            await client.status()


async def test_a_peer_that_is_settling_is_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers = [UnavailableError("0 of the 0 peers asked answered")] * 3
    asked: list[str] = []

    class Settling:
        async def call(self, method: str, *_: object, **__: object) -> Objects:
            asked.append(method)
            if answers:
                raise answers.pop()
            return Objects({})

    class Linked:
        async def connection(self) -> Settling:
            return Settling()

    async def ask() -> Objects:
        return await call(
            Linked(), "list_objects", ListObjects(), Objects, timeout_s=1.0, patience_s=60.0
        )

    assert await ask() == Objects({})
    assert len(asked) == 4
    answers += [UnavailableError("cut off")] * 100
    since = trio.current_time()
    with pytest.raises(UnavailableError, match="cut off"):
        await ask()
    assert trio.current_time() - since == pytest.approx(SETTLING_S)
