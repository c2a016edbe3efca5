"""The blocking client makes the same calls from a thread without an event loop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tools_fake_peer import DERIVED, STREAM, derived, fake_peer_in_thread, rows

from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import ClosedError, NotFoundError
from medusa.tools.client.blocking import Corrections, MedusaClient


def test_calls_posts_and_subscriptions(tmp_path: Path) -> None:
    with fake_peer_in_thread(tmp_path) as peer, MedusaClient(tmp_path) as client:
        assert client.status().federation == "fed"
        assert client.lookup_object(STREAM).entries
        with pytest.raises(NotFoundError):
            client.lookup_object("medusa://mit.edu/none")
        peer.crash_at = [2]
        for number in range(5):
            client.post_event(STREAM, rows(number, 3))
        client.flush()
        assert peer.stored[client.producer] == [(n, 3) for n in range(1, 6)]
        peer.epochs = [(BEGINNING, 9, [derived(0, 5)]), (9, END, [derived(10, 5)])]
        with client.subscribe(DERIVED) as subscription:
            assert [epoch.upto for epoch in subscription] == [9, END]
            assert subscription.ended
        with client.subscribe(DERIVED, after=9) as subscription:
            assert subscription.receive_events(100, 5.0).num_rows == 5
            assert subscription.boundary == END


def test_changes_come_to_a_thread_as_well(tmp_path: Path) -> None:
    with fake_peer_in_thread(tmp_path) as peer, MedusaClient(tmp_path) as client:
        peer.epochs = [
            (BEGINNING, 9, [derived(0, 5)]),
            (9, 20, [derived(10, 5)]),
            (9, END, [derived(10, 6)]),
        ]
        peer.tentative = {1}
        with client.follow(DERIVED, Corrections.REVISIONS) as changes:
            got = [(change.kind.value, change.table.num_rows) for change in changes]
            assert changes.boundary == END
        assert got == [("INSERTION", 5), ("TENTATIVE", 5), ("INSERTION", 1), ("INSERTION", 0)]


def test_a_client_without_a_home_fails_at_once_and_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(NotFoundError):
        MedusaClient(tmp_path / "none")
    assert threading.active_count() == before


def test_calls_after_close_raise_closed_error(tmp_path: Path) -> None:
    with fake_peer_in_thread(tmp_path):
        client = MedusaClient(tmp_path)
        client.close()
        client.close()
        with pytest.raises(ClosedError):
            client.status()


def test_leaving_the_block_waits_until_posts_are_stored(tmp_path: Path) -> None:
    with fake_peer_in_thread(tmp_path) as peer:
        peer.crash_at = [2]
        with MedusaClient(tmp_path) as client:
            for number in range(5):
                client.post_event(STREAM, rows(number, 3))
        assert peer.stored[client.producer] == [(n, 3) for n in range(1, 6)]


def test_an_error_in_the_block_comes_out_and_waits_for_nothing(tmp_path: Path) -> None:
    with fake_peer_in_thread(tmp_path), pytest.raises(ZeroDivisionError), MedusaClient(tmp_path):
        raise ZeroDivisionError
