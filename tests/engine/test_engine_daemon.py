"""A complete peer and its home: faults that prevent its start, and faults that do not."""

from __future__ import annotations

import dataclasses
import secrets
import socket
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, make_stream, received, rows, send_rows, until

from medusa.engine.api.serving import PeerService
from medusa.engine.streams.config import EngineConfig
from medusa.overlay.errors import (
    ConflictError,
    DamagedError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UnavailableError,
    UntrustedError,
)
from medusa.overlay.events import Events
from medusa.overlay.rpc import Caller
from medusa.tools.daemon.peer import open_peer
from medusa.tools.home.addresses import Address
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer


def place(folder: Path, *, found: str | None = "cluster") -> Place:
    home = Home(folder / "home")
    make_peer(home, "mit.edu", found)
    return Place(home, "mit.edu", EngineConfig(epoch_s=0.05))


async def refused(place: Place, kind: type[MedusaError], text: str, **listen: Address) -> None:
    """Check that the peer does not start, that one line gives the reason, and that no trace of a
    running peer remains."""
    config = place.config
    overlay = dataclasses.replace(config.overlay, listen=listen.get("overlay", ("127.0.0.1", 0)))
    client = dataclasses.replace(config.client, listen=listen.get("client", ("127.0.0.1", 0)))
    config = dataclasses.replace(config, overlay=overlay, client=client)
    with pytest.raises(kind, match=text) as caught, trio.fail_after(DEADLINE_S):
        async with open_peer(place.home, config):
            pass
    assert "\n" not in str(caught.value)


async def test_a_second_daemon_on_the_same_home(tmp_path: Path) -> None:
    home = place(tmp_path)
    async with open_peer(home.home, home.config) as first:
        await refused(home, ConflictError, r"runs in .* already \(pid \d+\)")
        assert home.home.running() == first.running, "the first one goes on"
        async with home.client() as client:
            assert (await client.status()).by == first.running.peer
    assert not home.home.run.exists()
    async with open_peer(home.home, home.config):
        pass


@pytest.mark.parametrize("which", ["overlay", "client"])
async def test_a_port_in_use(tmp_path: Path, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        home = place(tmp_path)
        await refused(home, ConflictError, f"{port}.* in use", **{which: ("127.0.0.1", port)})
        assert not home.home.run.exists()


@pytest.mark.parametrize("file", ["peer.key", "client.token"])
async def test_a_secret_that_others_can_read(tmp_path: Path, file: str) -> None:
    home = place(tmp_path)
    (home.home.folder / file).chmod(0o644)
    await refused(home, MedusaError, rf"{file}.*chmod 600")


async def test_a_home_that_is_not_whole(tmp_path: Path) -> None:
    await refused(Place(Home(tmp_path), "mit.edu", EngineConfig()), NotFoundError, "no peer lives")
    home = place(tmp_path, found=None)
    await refused(home, NotFoundError, "join")
    stranger = Home(tmp_path / "stranger")
    make_peer(stranger, "utah.edu", "elsewhere")
    for file in (tmp_path / "stranger").glob("federation*"):
        (home.home.folder / file.name).write_bytes(file.read_bytes())
    await refused(home, UntrustedError, r"mit\.edu is not admitted")


async def test_damaged_files_are_named(tmp_path: Path) -> None:
    home = place(tmp_path)
    async with open_peer(home.home, home.config) as peer, home.client() as client:
        home.peer = peer
        await make_stream(client, home, "s")
    for path in (
        home.home.data / "streams" / "mit.edu,s" / "stream.json",
        home.home.data / "leases.json",
        home.home.data / "queries" / "mit.edu,q.json",
    ):
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(b"{")
        await refused(home, DamagedError, f"{path.name} is damaged")
        path.unlink() if before is None else path.write_bytes(before)
    async with open_peer(home.home, home.config):
        pass


async def test_random_bytes_on_every_port_of_a_live_peer(cluster: Cluster) -> None:
    mit, _utah, _client, other, stream = await cluster.owner_and_guest(writers=("*",))
    reader = other.subscribe(stream)

    async def annoy(address: Address) -> None:
        for size in (1, 100, 100_000):
            connection = await trio.open_tcp_stream(*address)
            async with connection:
                with trio.move_on_after(5):
                    try:
                        await connection.send_all(secrets.token_bytes(size))
                        await connection.send_eof()
                        while await connection.receive_some():
                            pass
                    except trio.BrokenResourceError:
                        pass

    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        for size in (0, 1, 100, 1400, 9000):
            datagrams.sendto(secrets.token_bytes(size), mit.up.running.overlay)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(annoy, mit.up.running.overlay)
        nursery.start_soon(annoy, mit.up.running.client)
        for stime in range(20):
            await send_rows(other, stream, [(stime, stime), (stime, stime)])
    await other.post_event(stream, rows([(20, 20)]), boundary=20)
    assert len(await received(reader, 41)) == 41
    async with mit.client(patience_s=1.0) as another:
        assert len((await another.status()).peers) == 2


async def test_status_and_lists_with_a_peer_away(cluster: Cluster) -> None:
    mit, utah = await cluster.settle("mit.edu"), await cluster.settle("utah.edu")
    sibling = await cluster.settle("mit.edu", sibling=True)
    await cluster.acquainted(mit, utah, sibling)
    client, other = await cluster.clients(mit, utah)
    own, theirs = await make_stream(client, mit, "s"), await make_stream(other, utah, "t")
    for where in (mit, utah, sibling):
        where.up.engine.overlay.events.note("info", f"noted at {where.id}")
    for asking, sees in ((client, {mit.id, sibling.id}), (other, {utah.id})):
        snapshot = await asking.status()
        assert {peer.peer for peer in snapshot.peers} == {mit.id, utah.id, sibling.id}
        assert {peer.state for peer in snapshot.peers} == {"running"}
        shown = {
            peer.peer
            for peer in snapshot.peers
            if any(f"noted at {peer.peer}" in event.text for event in peer.events)
        }
        assert shown == sees, "events are for one's own participant"
        assert any(event for peer in snapshot.peers for event in peer.events)
        listed = await asking.list_objects()
        assert set(listed.names["stream"]) >= {own, theirs}
        assert listed.unreachable == ()
    assert len((await client.status(federation=False)).peers) == 1
    gone = utah.id
    await cluster.stop(utah)
    with trio.fail_after(DEADLINE_S):
        snapshot = await client.status()
        listed = await client.list_objects()
        found = await client.lookup_object(own)
    (away,) = [peer for peer in snapshot.peers if peer.peer == gone]
    assert (away.state, away.participant) == ("unreachable", "utah.edu")
    assert away.address == f"127.0.0.1:{utah.listen[1]}"
    assert {p.state for p in snapshot.peers if p.peer != gone} == {"running"}
    assert gone in listed.unreachable
    assert own in listed.names["stream"]
    assert set(found.entries) == {"stream", "producer"}
    # an existing object that cannot be reached is not called unknown
    with pytest.raises(UnavailableError), trio.fail_after(DEADLINE_S):
        async with mit.client(patience_s=0.2) as impatient:
            await anext(impatient.subscribe(theirs))
    await cluster.start(utah)
    await until(lambda: utah.up.engine.store.get(theirs) is not None)
    with pytest.raises(NotFoundError, match="nothing is known under"):
        await client.lookup_object(mit.name("nothing"))
    with pytest.raises(InvalidInputError, match="must look like"):
        await client.lookup_object("nothing")


async def test_too_early_and_too_late_is_unavailable() -> None:
    """The overlay listens before the engine exists, and after its end."""

    class Call:
        """The part of an open call that `serve` needs."""

        method = "subscribe"
        cause = ""

        def __init__(self) -> None:
            self.scope = trio.CancelScope()
            self.failure: MedusaError | None = None
            self.begun = trio.Event()

        def fail(self, error: MedusaError) -> None:
            self.failure = error

        def abandon(self) -> None:
            pass

        async def receive(self, _: object, _limit: int) -> None:
            self.begun.set()
            await trio.sleep_forever()

    service = PeerService()
    events, caller = Events(), Caller("mit.edu", None)
    early, under_way, late = Call(), Call(), Call()
    await service.serve(caller, early, events)  # type: ignore[arg-type]
    assert isinstance(early.failure, UnavailableError)
    service.unary("subscribe", object, None, clients=True)  # type: ignore[type-var, arg-type]
    async with trio.open_nursery() as nursery:
        async with service.answering():
            nursery.start_soon(service.serve, caller, under_way, events)
            await under_way.begun.wait()
        assert under_way.failure is not None
    await service.serve(caller, late, events)  # type: ignore[arg-type]
    for call in (under_way, late):
        assert isinstance(call.failure, UnavailableError)
        assert "stopping" in str(call.failure)
