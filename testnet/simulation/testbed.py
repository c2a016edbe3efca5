"""What a manifest needs of the thing that it runs on: the simulator, or processes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from testnet.simulation.faults import Fault
from testnet.simulation.history import Covered, PeerView, Reached
from tools.client.async_client import AsyncMedusaClient
from tools.home.folder import Home


class Place(Protocol):
    """One peer's home, whether or not it runs."""

    @property
    def id(self) -> str: ...

    @property
    def participant(self) -> str: ...

    @property
    def home(self) -> Home: ...

    @property
    def up(self) -> bool: ...


class Testbed(Protocol):
    """Peers that run, and can be broken."""

    @property
    def rng(self) -> random.Random: ...

    @property
    def peers(self) -> Mapping[str, Place]: ...

    def now(self) -> float:
        """Seconds since it began."""

    def note(self, kind: str, text: str, peer: str = "") -> None:
        """A line of the trace."""

    def client(
        self, name: str, *, producer: str | None = None, patience_s: float = 60.0
    ) -> AbstractAsyncContextManager[AsyncMedusaClient]:
        """A client of that peer."""

    async def inflict(self, fault: Fault) -> None:
        """Break it.

        Raises:
            InvalidInputError: this kind of fault cannot be made here.
        """

    async def heal(self, fault: Fault) -> None:
        """Mend what `inflict` broke."""

    def look(self, *, books: bool = False) -> tuple[PeerView, ...]:
        """The peers that run, from within, as far as that can be seen. books: their ledgers too."""

    def covered(self, look: int) -> Iterable[Covered]:
        """The queries whose consumers may have only what a secondary has, as far as can be seen."""

    def reached(self, look: int) -> Iterable[Reached]:
        """The tasks that have a bound, as far as can be seen."""

    async def look_up(self, streams: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """By peer that runs, by stream, who produces it as the catalog tells there; as far as that
        can be asked. See `PeerView.producers`."""
