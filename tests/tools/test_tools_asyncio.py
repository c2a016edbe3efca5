"""The client under asyncio: a hidden trio loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from tools_fake_peer import DERIVED, STREAM, FakePeer, derived, fake_peer_in_thread, make_home, rows

from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import ClosedError, InvalidInputError, NotFoundError, UnavailableError
from medusa.tools.client.async_client import Corrections, open_medusa
from medusa.tools.client.blocking import MedusaClient
from medusa.tools.client.portal import Portal

EPOCHS = 200


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run in asyncio's own event loop, even if an earlier test has set another policy."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main)


def many_epochs() -> list[tuple[int, int, list[Any]]]:
    bounds = [BEGINNING, *range(10, 10 * EPOCHS, 10), END]
    return [
        (after, upto, [derived(10 * number + 1, 3)])
        for number, (after, upto) in enumerate(itertools.pairwise(bounds))
    ]


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[FakePeer]:
    with fake_peer_in_thread(tmp_path) as peer:
        yield peer


def test_calls_posts_and_subscriptions(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_medusa(tmp_path) as client:
            assert (await client.status()).federation == "fed"
            with pytest.raises(NotFoundError):
                await client.lookup_object("medusa://mit.edu/none")
            peer.crash_at = [2]
            for number in range(5):
                await client.post_event(STREAM, rows(number, 3))
            await client.flush()
            assert peer.stored[client.producer] == [(n, 3) for n in range(1, 6)]
            peer.epochs = [(BEGINNING, 9, [derived(0, 5)]), (9, END, [derived(10, 5)])]
            async with client.subscribe(DERIVED) as subscription:
                assert [epoch.upto async for epoch in subscription] == [9, END]
                assert subscription.ended
            async with client.subscribe(DERIVED, after=9) as subscription:
                assert (await subscription.receive_events(100, 5.0)).num_rows == 5
            async with client.follow(DERIVED, Corrections.REVISIONS) as changes:
                assert [change.table.num_rows async for change in changes] == [5, 5]

    with fake_peer_in_thread(tmp_path) as peer:
        run(main())


def test_many_calls_at_once(peer: FakePeer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_medusa(tmp_path) as client:
            seen = await asyncio.gather(*(client.status() for _ in range(100)))
            assert {snapshot.federation for snapshot in seen} == {"fed"}

    run(main())


def test_waits_that_are_given_up_lose_nothing(tmp_path: Path) -> None:
    """A wait is cancelled at any moment; the next wait returns the epoch."""

    async def main() -> None:
        rng = random.Random(1)
        got: list[int] = []
        gave_up = 0
        async with open_medusa(tmp_path) as client, client.subscribe(DERIVED) as subscription:
            while not subscription.ended:
                try:
                    epoch = await asyncio.wait_for(anext(subscription), rng.uniform(0, 0.002))
                except TimeoutError:
                    gave_up += 1
                else:
                    got.append(epoch.upto)
        assert got == [upto for _, upto, _ in peer.epochs]
        assert gave_up

    with fake_peer_in_thread(tmp_path) as peer:
        peer.epochs = many_epochs()
        run(main())


def test_tuples_that_are_waited_for_too_briefly_come_later(peer: FakePeer, tmp_path: Path) -> None:
    async def main() -> None:
        rng = random.Random(2)
        got: list[int] = []
        async with open_medusa(tmp_path) as client, client.subscribe(DERIVED) as subscription:
            while not subscription.ended:
                try:
                    waiting = subscription.receive_events(2, 10.0)
                    table = await asyncio.wait_for(waiting, rng.uniform(0, 0.002))
                except TimeoutError:
                    continue
                got += table.column("stime").to_pylist()
        assert got == [10 * number + row for number in range(EPOCHS) for row in (1, 2, 3)]

    peer.epochs = many_epochs()
    run(main())


def test_ctrl_c_in_a_blocking_wait_loses_nothing(peer: FakePeer, tmp_path: Path) -> None:
    """A person presses Ctrl-C in a notebook, and continues to read in the next cell."""
    with MedusaClient(tmp_path) as client:
        peer.epochs = [(BEGINNING, 9, [derived(0, 5)])]
        with client.subscribe(DERIVED) as subscription:
            waiting = iter(subscription)
            assert next(waiting).upto == 9
            main = threading.main_thread().ident
            assert main is not None
            later = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
            later.start()
            with pytest.raises(KeyboardInterrupt):
                next(waiting)
            later.join()
            peer.epochs = [(BEGINNING, 9, [derived(0, 5)]), (9, END, [derived(10, 5)])]
            peer.crash_at = [1]
            # the peer breaks the connections, and serves again
            client.post_event(STREAM, rows(0, 1))
            assert [epoch.upto for epoch in subscription] == [END]


def test_an_error_in_the_block_comes_out_as_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_medusa(tmp_path):
            raise ZeroDivisionError

    before = threading.active_count()
    with fake_peer_in_thread(tmp_path), pytest.raises(ZeroDivisionError):
        run(main())
    assert threading.active_count() == before


def test_a_missing_peer_is_reported_at_once_and_leaves_no_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_medusa(tmp_path):
            raise AssertionError

    make_home(tmp_path)
    before = threading.active_count()
    with pytest.raises(UnavailableError, match="is not running"):
        run(main())
    assert threading.active_count() == before


def test_opening_that_is_given_up_ends_its_thread(tmp_path: Path) -> None:
    opened = trio.Event()

    async def never() -> None:
        await opened.wait()

    class Opening:
        async def __aenter__(self) -> None:
            await never()

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError

    portal = Portal(lambda _: Opening())
    portal.opened.cancel()
    portal.stop()
    portal.join()


def test_calls_after_the_end_of_a_client_raise_closed_error(peer: FakePeer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_medusa(tmp_path) as client:
            subscription = client.subscribe(DERIVED)
        with pytest.raises(ClosedError):
            await client.status()
        with pytest.raises(ClosedError):
            await anext(subscription)
        with pytest.raises(ClosedError):
            client.subscribe(DERIVED)
        subscription.close()

    run(main())


def test_the_loop_goes_on_while_calls_wait(peer: FakePeer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_medusa(tmp_path) as client, client.subscribe(DERIVED) as subscription:
            waiting = asyncio.create_task(subscription.receive_events(1, 0.3))
            longest = 0.0
            while not waiting.done():
                before = time.monotonic()
                await asyncio.sleep(0)
                longest = max(longest, time.monotonic() - before)
            assert (await waiting).num_rows == 0
            # a blocking call would have stopped the loop for the whole duration of the call
            assert longest < 0.25

    peer.epochs = [(BEGINNING, 9, [])]
    run(main())


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("start_query", (7,), "start_query: argument query: expected str, got int 7"),
        ("lookup_object", (None,), "argument name: expected str, got NoneType None"),
        ("create_schema", ("conn",), "argument schema: expected Schema, got str 'conn'"),
        ("receive_events", (STREAM, "now"), "argument after: expected int, got str 'now'"),
        ("receive_events", (STREAM, 0, "1"), "argument timeout_s: expected float, got str '1'"),
        ("modify_query", ("q", "abc"), "expected sequence of BoxChange, got str 'abc'"),
        ("modify_query", ("q", [1]), r"expected sequence of BoxChange, got list \[1\]"),
        ("modify_query", ("q", [], 1.5), "argument at: expected int or None, got float 1.5"),
        ("subscribe", (STREAM, 1.5), "subscribe: argument after: expected int, got float 1.5"),
        ("follow", (STREAM, "undo"), "argument corrections: expected Corrections, got str 'undo'"),
        ("post_event", (STREAM, {1, 2}), "argument rows: expected a table of pyarrow, pandas"),
        ("post_event", (STREAM, "ts"), "argument rows: .*, got str"),
    ],
)
def test_the_error_of_a_wrong_type_names_the_argument(
    peer: FakePeer, tmp_path: Path, name: str, arguments: tuple[object, ...], said: str
) -> None:
    async def main() -> None:
        async with open_medusa(tmp_path) as client:
            with pytest.raises(InvalidInputError, match=said):
                await getattr(client, name)(*arguments)

    with MedusaClient(tmp_path) as client, pytest.raises(InvalidInputError, match=said):
        getattr(client, name)(*arguments)
    run(main())


def test_wrong_types_for_opening() -> None:
    with pytest.raises(InvalidInputError, match="argument home: expected Path or str or None, got"):
        MedusaClient(7)
    with pytest.raises(InvalidInputError, match="open_medusa: argument patience_s: expected float"):
        open_medusa(patience_s="60")
