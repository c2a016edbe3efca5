"""The catalog on real overlays: three peers of three participants, real sockets on loopback."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from deadline import DEADLINE_S
from msgspec import Struct

from medusa.dht.catalog import Catalog, DhtConfig, Kind, open_catalog
from medusa.dht.records import Record, digest_of, seal
from medusa.overlay.addresses import Address
from medusa.overlay.encoding import encode
from medusa.overlay.errors import (
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
    UntrustedError,
)
from medusa.overlay.events import wall_clock
from medusa.overlay.gossip.config import Preset
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import save_membership
from medusa.overlay.names import ObjectName
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.node.node import Overlay, open_overlay
from medusa.overlay.rpc import Service

NOW = wall_clock()
ROOTS = [Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "cmu.edu")]
NAME = ObjectName.parse("medusa://mit.edu/thing")


class Thing(Struct, frozen=True):
    text: str


class Maker(Struct, frozen=True):
    peer: str


THING = Kind("thing", Thing)
MAKER = Kind("maker", Maker, many=True)
LARGE = Thing("x" * 20_000)


class Peer:
    """A home folder and the peer that runs from it."""

    def __init__(self, folder: Path, root: Root, membership: Membership) -> None:
        folder.mkdir()
        self.folder = folder
        self.identity = Identity.issue(root, NOW)
        self.membership = membership
        self.overlay: Overlay
        self.catalog: Catalog
        self._halt = self._halted = trio.Event()
        save_membership(folder, membership, NOW)

    async def run(
        self,
        bootstrap: tuple[Address, ...] = (),
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run until `stop`, in a task of its own, so that peers may stop in any order."""
        config = OverlayConfig(bootstrap=bootstrap, preset=Preset.LOCAL)
        self._halt, self._halted = trio.Event(), trio.Event()
        async with (
            open_overlay(
                self.identity, self.membership, self.folder, config, Service()
            ) as self.overlay,
            open_catalog(self.overlay, self.folder, DhtConfig()) as self.catalog,
        ):
            task_status.started()
            await self._halt.wait()
        self._halted.set()

    async def stop(self) -> None:
        self._halt.set()
        await self._halted.wait()


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[tuple[Peer, Peer, Peer, trio.Nursery]]:
    """Give peers of mit.edu, utah.edu and cmu.edu that know each other, and can be started
    again."""
    membership = Membership.found(ROOTS[0], NOW, "demo")
    for root in ROOTS[1:]:
        membership.admit(ROOTS[0], root.certificate, NOW)
    mit, utah, cmu = (
        Peer(
            folder / root.participant, root, Membership(membership.charter, membership.statements())
        )
        for root in ROOTS
    )
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(mit.run)
            for peer in (utah, cmu):
                await nursery.start(peer.run, (mit.overlay.address,))
            for peer in (mit, utah, cmu):
                await peer.catalog.joined(2)
            yield mit, utah, cmu, nursery
            for peer in (mit, utah, cmu):
                await peer.stop()


async def test_publish_on_one_look_up_on_the_others(tmp_path: Path) -> None:
    async with three(tmp_path) as (mit, utah, cmu, _):
        assert await mit.catalog.publish(THING, NAME, Thing("a")) == 3
        for peer in (mit, utah, cmu):
            found = await peer.catalog.lookup(THING, NAME)
            assert (found.value, found.publisher) == (Thing("a"), mit.identity.peer_id)
        await mit.catalog.publish(THING, NAME, Thing("b"))
        assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("b")
        await mit.catalog.withdraw(THING, NAME)
        with pytest.raises(NotFoundError, match="its owner has deleted it"):
            await utah.catalog.lookup(THING, NAME)
        with pytest.raises(NotFoundError, match="not found"):
            await utah.catalog.lookup(THING, NAME.child("other"))


async def test_a_large_body_is_fetched_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three(tmp_path) as (mit, utah, _, _):
        await mit.catalog.publish(THING, NAME, LARGE)
        honest = mit.catalog.body
        monkeypatch.setattr(
            mit.catalog, "body", lambda digest, who: honest(digest, who)[:-1] + b"y"
        )
        with pytest.raises(UntrustedError, match="another body"):
            await utah.catalog.lookup(THING, NAME)
        monkeypatch.setattr(mit.catalog, "body", honest)
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE


async def test_remembered_records_still_answer_after_their_publisher_is_gone(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (mit, utah, cmu, _):
        await mit.catalog.publish(THING, NAME, LARGE)
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        await mit.stop()
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        assert (await cmu.catalog.lookup(THING, NAME)).value == LARGE  # body from utah
        await cmu.stop()
        assert (await utah.catalog.lookup(THING, NAME)).value == LARGE
        with pytest.raises(UnavailableError):
            await utah.catalog.lookup(THING, NAME.child("never-seen"))


async def test_a_publisher_that_restarts_keeps_its_objects(tmp_path: Path) -> None:
    async with three(tmp_path) as (mit, utah, cmu, nursery):
        await mit.catalog.publish(THING, NAME, LARGE)
        await mit.catalog.publish(MAKER, NAME, Maker("m"))
        things, makers = mit.catalog.own(THING), mit.catalog.own(MAKER)
        await mit.stop()
        await nursery.start(mit.run, (utah.overlay.address,))
        assert (mit.catalog.own(THING), mit.catalog.own(MAKER)) == (things, makers)
        await mit.catalog.joined(2)
        assert await cmu.catalog.lookup(THING, NAME) == things[0]
        assert await cmu.catalog.lookup_all(MAKER, NAME) == makers
        listing = await cmu.catalog.names()
        assert listing.names == {"maker": (str(NAME),), "thing": (str(NAME),)}
        assert listing.unreachable == ()


async def test_hostile_records_are_refused_by_the_others(tmp_path: Path) -> None:
    async with three(tmp_path) as (mit, utah, cmu, _):
        await mit.catalog.publish(THING, NAME, Thing("true"))
        now_us = int(wall_clock() * 1e6)
        lie = encode(Thing("lie"))
        for publisher, key in (
            (mit.identity.peer_id, utah.identity.private_key),  # signed by another participant
            (
                utah.identity.peer_id,
                utah.identity.private_key,
            ),  # with the name of another participant
            (bytes(20), Ed25519PrivateKey.generate()),  # of nobody
        ):
            record = Record(
                "thing", False, str(NAME), publisher, now_us, now_us, now_us + 10**9, lie
            )
            data = seal(record, utah.membership.federation, key)
            with pytest.raises(UntrustedError):
                await utah.catalog._directory.put(record.subject.key, data)
        assert (await cmu.catalog.lookup(THING, NAME)).value == Thing("true")


async def test_an_admitted_peer_that_has_met_no_other_denies_no_name(
    tmp_path: Path,
) -> None:
    membership = Membership.found(ROOTS[0], NOW, "demo")
    membership.admit(ROOTS[0], ROOTS[1].certificate, NOW)
    founder, admitted = (Peer(tmp_path / root.participant, root, membership) for root in ROOTS[:2])
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(founder.run)
            await nursery.start(admitted.run)
            with pytest.raises(NotFoundError):
                await founder.catalog.lookup(THING, NAME)
            with pytest.raises(UnavailableError):
                await admitted.catalog.lookup(THING, NAME)
            with pytest.raises(UnavailableError):
                await admitted.catalog.lookup_all(MAKER, NAME)
            own = ObjectName.parse("medusa://utah.edu/thing")
            assert await admitted.catalog.publish(THING, own, Thing("a")) == 1
            assert (await admitted.catalog.lookup(THING, own)).value == Thing("a")
            for peer in (founder, admitted):
                await peer.stop()


async def test_a_record_of_another_federation_of_the_same_members_is_refused(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (mit, utah, _, _):
        now_us = int(wall_clock() * 1e6)
        body, publisher = encode(Thing("elsewhere")), mit.identity.peer_id
        record = Record("thing", False, str(NAME), publisher, now_us, now_us, now_us + 10**9, body)
        other = Membership.found(ROOTS[0], NOW, "another").federation
        data = seal(record, other, mit.identity.private_key)
        with pytest.raises(UntrustedError, match="bad signature"):
            await utah.catalog._directory.put(record.subject.key, data)
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(THING, NAME)


async def test_revoked_and_no_longer_believed(tmp_path: Path) -> None:
    async with three(tmp_path) as (_, utah, cmu, _):
        name = ObjectName.parse("medusa://cmu.edu/thing")
        await cmu.catalog.publish(THING, name, Thing("a"))
        assert (await utah.catalog.lookup(THING, name)).value == Thing("a")
        revocation = utah.membership.revoke(ROOTS[0], "cmu.edu", now=wall_clock())
        utah.overlay.learn([revocation])
        with pytest.raises(NotFoundError):
            await utah.catalog.lookup(THING, name)


async def test_random_bytes_on_the_port_do_no_harm(tmp_path: Path) -> None:
    async with three(tmp_path) as (mit, utah, _, _):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for data in (b"", b"\x00" * 30, b"\x01" * 9000, b"\x93\xc4\x01"):
                stranger.sendto(data, mit.overlay.address)
        # a member's well-signed nonsense
        utah.catalog._directory._bridge._protocol._wire.send(mit.overlay.address, b"nonsense")
        assert await utah.catalog.publish(
            THING, ObjectName.parse("medusa://utah.edu/x"), Thing("a")
        )
        assert mit.catalog._directory.counts["malformed"] == 1


async def test_a_body_of_the_wrong_hash_is_not_kept(tmp_path: Path) -> None:
    async with three(tmp_path) as (mit, utah, _, _):
        await mit.catalog.publish(THING, NAME, LARGE)
        body = encode(LARGE)
        mit.catalog.body = lambda _digest, _who: b"y" * len(body)
        with pytest.raises(UntrustedError):
            await utah.catalog.lookup(THING, NAME)
        assert utah.catalog._bodies.get(digest_of(body)) is None


async def test_a_file_of_a_later_version_is_named_and_the_overlay_closes(tmp_path: Path) -> None:
    peer = Peer(tmp_path / "mit", ROOTS[0], Membership.found(ROOTS[0], NOW, "demo"))
    (peer.folder / "data").mkdir()
    with closing(sqlite3.connect(peer.folder / "data" / "catalog.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with trio.fail_after(DEADLINE_S), pytest.raises(ExceptionGroup) as caught:
        await peer.run()
    assert caught.group_contains(InvalidInputError, match=r"catalog\.sqlite: version 99")


async def test_looking_up_what_is_for_others_is_no_event_where_it_is_refused(
    tmp_path: Path,
) -> None:
    private = Kind("thing", Thing, is_private=lambda _: True)
    async with three(tmp_path) as (mit, utah, _, _):
        await mit.catalog.publish(private, NAME, Thing("a"))
        with pytest.raises(NotAuthorisedError, match="may not read"):
            await utah.catalog.lookup(private, NAME)
        told = [event.text for event in mit.overlay.events.recent()]
        assert not any("catalog.body" in text for text in told)
