from __future__ import annotations

from typing import Final

import trio

from medusa.engine.replication.leaders.election import Election
from medusa.engine.replication.leaders.voter import Role
from medusa.engine.streams.journal.journal import Position
from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import StorageFullError, UnavailableError

LAPSE: Final = 3
"""How long a post waits for its replicas before its producer must try again, as a multiple of
`quiet_s`: an election, and the recruiting after it, take about two."""


class News:
    """Wakes tasks that wait for a stream's leader, or for the positions of its replicas.

    Args:
        stream: its name. quiet_s: see `Election`.

    Attributes:
        trouble: why its replicas store nothing more.
    """

    def __init__(self, stream: str, election: Election, quiet_s: float) -> None:
        self.trouble = ""
        self._stream = stream
        self._election = election
        self._quiet_s = quiet_s
        self._generation = 0
        self._changes = Watched(0)

    def notify(self) -> None:
        """Wake waiting tasks: the leader, or a position of a replica, has changed."""
        self._changes.set(self._changes.value + 1)

    def suspend(self) -> None:
        """Note that this peer, which was leader or about to be, no longer acknowledges posts."""
        self._generation += 1

    async def changed(self) -> None:
        """Return once something has changed: the leader, or the replicas' positions."""
        await self._changes.changed()

    async def settled(self) -> None:
        """Return once some voter is leader."""
        nobody = {"", self._election.own}
        await self._changes.until(lambda _: self._leads or self._election.leader not in nobody)

    async def leader_changed(self) -> None:
        """Return once the leader has changed."""
        before = self._election.leader
        await self._changes.until(lambda _: self._election.leader != before)

    async def suspended(self) -> None:
        """Raise UnavailableError as soon as posts are not acknowledged here any more."""
        generation = self._generation
        await self._changes.until(lambda _: not self._leads or self._generation != generation)
        raise UnavailableError(f"{self._stream}: its leader is changing: send it again")

    async def acknowledged(self, upto: Position) -> None:
        """Return once all replicas have everything before `upto`.

        Raises:
            UnavailableError: this peer is not the leader any more, or the replicas do not answer:
                the post may be stored or not; if the producer sends it again, it is stored once.
            StorageFullError: a replica has no room.
        """
        generation = self._generation
        with trio.move_on_after(LAPSE * self._quiet_s):
            while self._generation == generation:
                if self._election.commitment.committed >= upto:
                    return
                await self._changes.changed()
        if self.trouble:
            raise StorageFullError(f"{self._stream} waits for a replica: {self.trouble}")
        raise UnavailableError(f"{self._stream}: its replicas have not answered: send it again")

    @property
    def _leads(self) -> bool:
        return self._election.role is Role.LEADER
