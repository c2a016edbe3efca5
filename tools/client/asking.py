"""The base of the client: sends one request to the peer, and returns one answer."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from medusa.engine.api.messages import Created, LookupObject, ObjectDescription
from medusa.engine.replication.views.messages import ViewCreated
from medusa.engine.streams.messages import Done
from medusa.tools.client.link import Link, call
from medusa.tools.client.portal import Portal, in_trio

Answer = TypeVar("Answer", bound=msgspec.Struct)

CALL_S: Final = 15.0
"""Seconds for a call that looks something up: several tries of a request to the DHT."""
DEFINE_S: Final = 60.0
"""Seconds for a call that defines or starts something: the peer may pass it on, and Spark may be
starting."""


class Asking:
    """The part of a client that asks its peer. Any peer takes any call and routes it by the
    catalog.

    Attributes:
        remarks: the peer's warnings about the last definition, one sentence each: for example that
            a reader is no member of the federation.
        readers: for each stream that the last definition made, by name, the participants that may
            read it, in words.

    Every call may raise, beside its own errors:
        InvalidInputError: an argument has another type, or is no name of an object.
        NotAuthorisedError: only another participant may do that.
        UnavailableError: the peer that must answer could not be reached within the patience.
    """

    def __init__(self, link: Link, *, patience_s: float, portal: Portal[Any] | None) -> None:
        self.portal = portal
        self._link = link
        self._patience_s = patience_s
        self.remarks: tuple[str, ...] = ()
        self.readers: dict[str, str] = {}

    @in_trio
    async def lookup_object(self, name: str, kind: str = "") -> ObjectDescription:
        """Look up the catalog's entries under a name.

        Args:
            kind: schema, stream or query: the peer looks for an object of this kind first, and for
                other kinds only if it finds none; "": it looks for all kinds.

        Raises:
            NotFoundError: nothing has that name.
            UnavailableError: too few peers answer, and the peer that is asked knows nothing of it.

        Example:
            >>> "stream" in (await medusa.lookup_object("medusa://mit.edu/conns")).entries
            True
        """
        return await self._ask("lookup_object", LookupObject(name, kind), ObjectDescription)

    async def _ask(self, method: str, request: msgspec.Struct, response: type[Answer]) -> Answer:
        return await call(
            self._link, method, request, response, timeout_s=CALL_S, patience_s=self._patience_s
        )

    async def _define(self, method: str, request: msgspec.Struct, response: type[Answer]) -> Answer:
        # a repeated definition is no error, so these calls may be repeated too
        self.remarks, self.readers = (), {}
        answer = await call(
            self._link, method, request, response, timeout_s=DEFINE_S, patience_s=self._patience_s
        )
        if isinstance(answer, Created | Done):
            self.remarks = answer.remarks
        if isinstance(answer, Created | ViewCreated):
            self.readers = answer.readers
        return answer
