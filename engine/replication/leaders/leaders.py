from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import trio

from medusa.engine.objects.definitions import StreamEntry, base_of
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.leaders.ballot import without_future
from medusa.engine.replication.leaders.changing import why_no_leader
from medusa.engine.replication.leaders.events import HealthChanged
from medusa.engine.replication.leaders.following import follow
from medusa.engine.replication.leaders.logs import BallotFiles, StoredBallot
from medusa.engine.replication.leaders.messages import (
    FOLLOW,
    FOUND,
    REQUEST,
    Follow,
    Found,
    Plan,
    ReplicaState,
    Shipped,
    Stored,
    VoterAnswer,
    VoterRequest,
)
from medusa.engine.replication.leaders.shipping import ship
from medusa.engine.replication.leaders.voter_driver import Surroundings, VoterDriver, started
from medusa.engine.replication.records.term import MAJORITY
from medusa.engine.streams.messages import Done, Tuples
from medusa.engine.streams.store.store import StreamStore
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.connection import Connection
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.gossip.events import Health
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import ObjectName, PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller, Duplex

CONNECT_S: Final = 1.5
"""How long a router of posts waits for a leader that does not answer, seconds: then the producer
tries again, and another peer may be leader."""

FOUND_S: Final = 10.0
"""How long the voters of a new stream may take to agree to become voters, seconds."""


class Leaders:
    """The voters of this peer; `register` puts their calls on the peer's service.

    Args:
        folder: the folder of the ballots.
        quiet_s: see `Election`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        overlay: Overlay,
        store: StreamStore,
        directory: Directory,
        announcements: Announcements,
        nursery: trio.Nursery,
        quiet_s: float,
    ) -> None:
        self._overlay = overlay
        self._directory = directory
        self._nursery = nursery
        self._files = BallotFiles(folder)
        self._around = Surroundings(
            overlay, store, announcements, self._files, overlay.events, nursery, quiet_s, ship
        )
        self._voters: dict[str, VoterDriver] = {}
        self._abstaining = self._files.abstaining()

    def register(self) -> None:
        service = self._overlay.service
        service.unary(REQUEST, VoterRequest, self.answer, own=True)
        service.unary(FOUND, Found, self.be_voter, own=True)
        service.streaming(
            FOLLOW,
            Follow,
            self.follow,
            own=True,
            takes=(Plan, Tuples, Shipped),
            sends=(ReplicaState, Stored),
        )

    async def resume(self) -> None:
        """Open the voters of the last run, each as a replica or a witness."""
        latest = MAJORITY.latest(self._overlay.clock())
        for stored in self._files.load():
            ballot = without_future(stored.ballot, latest)
            await self._start(msgspec.structs.replace(stored, ballot=ballot))
        await self._nursery.start(self._listen)

    async def _listen(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen to the failure detector until the engine closes."""
        with self._overlay.gossip.changed.listening(self._health_changed):
            task_status.started()
            await trio.sleep_forever()

    def get(self, stream: str) -> VoterDriver | None:
        """The voter of a stream, also by the name of its late tuples or of its revisions."""
        voter = self._voters.get(base_of(stream))
        if voter is None or voter.election.deleted or stream not in voter.entries:
            return None
        return voter

    async def connect(self, stream: str) -> Connection:
        """A connection to the leader of a stream, which is another peer.

        Raises:
            UnavailableError: the leader cannot be reached, or there is no leader at the moment.
        """
        voter, own = self.get(stream), self._overlay.identity.peer_id.hex()
        found: list[Connection] = []

        async def connect() -> None:
            if voter is None:
                found.append(await self._directory.connect(stream))
            elif voter.election.leader not in {"", own}:
                found.append(await self._overlay.connect(parse_peer_id(voter.election.leader)))

        with trio.move_on_after(CONNECT_S):
            await until_one_ends(
                connect, *([voter.news.leader_changed] if voter is not None else [])
            )
        if found:
            return found[0]
        if voter is not None:
            raise UnavailableError(why_no_leader(voter))
        raise UnavailableError(f"{stream}: nobody is its leader at the moment; try again")

    async def found(self, entry: StreamEntry) -> None:
        """Become the first leader of a stream; a repetition completes a creation that was cut
        short.

        Raises:
            InvalidInputError: there are too few peers for the requested number of replicas.
            ConflictError: a chosen peer is a voter of another, or a deleted, stream of that name.
                UnavailableError: the chosen peers do not answer.
        """
        voter = self._voters.get(entry.stream.name)
        self._check_votes(entry.stream.name)
        if voter is None:
            voters = self._choose(entry)
            voter = await self._start(started(entry, voters))
        if voter.election.ballot.term is None:
            await self._found_voters(voter)
        if not voter.election.ballot.promised:
            await voter.found()
        with trio.move_on_after(FOUND_S):
            await voter.news.settled()
            return
        raise UnavailableError(f"{voter.name}: its voters do not agree yet; try again")

    def _choose(self, entry: StreamEntry) -> tuple[str, ...]:
        own, k = self._overlay.identity, entry.stream.k_safety
        others = [peer.hex() for peer in self._overlay.living_siblings()]
        if len(others) < 2 * k:
            raise InvalidInputError(
                f"{entry.stream.name}: k_safety {k} needs {2 * k + 1} peers of {own.participant}; "
                f"{len(others) + 1} are known to run"
            )
        return (own.peer_id.hex(), *sorted(others)[: 2 * k])

    async def _found_voters(self, voter: VoterDriver) -> None:
        found = Found(voter.entry, voter.election.ballot.voters)
        for peer in found.voters[1:]:
            connection = await self._overlay.connect(parse_peer_id(peer))
            await connection.call(FOUND, found, Done, timeout_s=FOUND_S)

    async def _start(self, stored: StoredBallot) -> VoterDriver:
        voter = VoterDriver(self._around, stored)
        self._voters[voter.name] = voter
        await trio.to_thread.run_sync(self._files.save, stored)
        if stored.ballot.joined:
            await voter.open()
        self._nursery.start_soon(voter.run)
        return voter

    def _health_changed(self, peer: PeerId, health: Health) -> None:
        event = HealthChanged(peer.hex(), health.gone)
        for voter in self._voters.values():
            if event.peer in voter.election.ballot.voters:
                self._nursery.start_soon(voter.try_feed, event)

    # -- calls of other voters --------------------------------------------------------------

    async def answer(self, caller: Caller, request: VoterRequest, _: bytes) -> VoterAnswer:
        voter = self._of(caller, request.stream)
        assert caller.peer_id is not None
        return VoterAnswer(await voter.answer(caller.peer_id.hex(), request.message))

    async def follow(self, caller: Caller, request: Follow, duplex: Duplex) -> None:
        voter = self._of(caller, request.stream)
        assert caller.peer_id is not None
        await follow(voter, caller.peer_id.hex(), request.term_number, duplex)

    async def be_voter(self, caller: Caller, request: Found, _: bytes) -> Done:
        """Become a voter of a new stream.

        Raises:
            NotAuthorisedError: the caller is not of our participant, or not the founder.
            ConflictError: we are a voter of another stream of that name, or were.
        """
        name, own = request.entry.stream.name, self._overlay.identity
        assert caller.peer_id is not None
        if {caller.participant, ObjectName.parse(name).participant} != {own.participant}:
            raise NotAuthorisedError(f"{name}: {caller.participant} may not name its voters")
        voters = request.voters
        if voters[:1] != (caller.peer_id.hex(),) or own.peer_id.hex() not in voters:
            raise NotAuthorisedError(f"{name}: its founder names the voters, us among them")
        if len(set(voters)) != 2 * request.entry.stream.k_safety + 1:
            raise InvalidInputError(f"{name}: {len(voters)} voters are not 2k + 1")
        voter = self._voters.get(name)
        self._check_votes(name)
        if voter is None:
            await self._start(started(request.entry, voters))
        elif (voter.entry, voter.election.ballot.voters) != (request.entry, voters):
            raise ConflictError(f"{name}: another stream of that name has voters here")
        return Done()

    def abstains(self, stream: str) -> bool:
        """Whether this peer may not vote any more on that stream, or on the stream whose late
        tuples or revisions it has; the catalog may name it as the leader until another peer has
        taken over."""
        return base_of(stream) in self._abstaining

    def _check_votes(self, stream: str) -> None:
        """Refuse a stream on which this peer has no vote any more. Raises: ConflictError."""
        voter = self._voters.get(stream)
        if voter is not None and voter.election.deleted:
            raise ConflictError(
                f"{stream}: a stream with replicas of that name was deleted, and a voter that "
                "was away then may not know yet: use another name"
            )
        if self.abstains(stream):
            raise ConflictError(
                f"{stream}: this peer was restored from a backup, and what it had voted on the "
                "stream's leader is not known: ask another of its voters"
            )

    def _of(self, caller: Caller, stream: str) -> VoterDriver:
        voter = self._voters.get(stream)
        if voter is None:
            raise NotFoundError(f"{stream}: this peer is no voter of it")
        peer = "" if caller.peer_id is None else caller.peer_id.hex()
        if peer not in voter.election.ballot.voters:
            raise NotAuthorisedError(f"{stream}: {caller.participant} is no voter of it")
        return voter
