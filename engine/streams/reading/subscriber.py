"""A reader of a stream, over any number of calls: it asks, takes and acknowledges. Sans IO.

A client and a peer that follows a stream are both one. After a call has broken, the next one goes
on behind what was taken, and says what was acknowledged: the other side keeps the rest.
"""

from __future__ import annotations

import pyarrow as pa

from medusa.engine.objects.schema import END
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.messages import Acknowledge, Subscribe, Tuples
from medusa.engine.streams.reading.assembling import Incoming, Rows


class Subscriber:
    """Args:
    after: the boundary that the reader has, microseconds. seen: the boundary of its tentative
        tuples; None: it takes none. acknowledged: the boundary before which no tuples need to be
        kept for it; None: `after`. name: see `Subscribe.subscriber`. Attributes: acknowledged: the
        boundary acknowledged in the present call.
    """

    def __init__(
        self,
        stream: str,
        schema: pa.Schema,
        after: int,
        *,
        seen: int | None = None,
        acknowledged: int | None = None,
        name: str = "",
    ) -> None:
        self._stream = stream
        self._name = name
        self._tentative = seen is not None
        self._incoming = Incoming(schema, after, after if seen is None else seen)
        self.acknowledged = after if acknowledged is None else acknowledged

    @property
    def boundary(self) -> int:
        """The boundary up to which every stable tuple was taken."""
        return self._incoming.boundary

    @property
    def is_over(self) -> bool:
        """Whether the stream was taken to its end."""
        return self.boundary >= END

    @property
    def held(self) -> int:
        """Bytes of the parts of incomplete epochs."""
        return self._incoming.held

    def ask(self, term_number: int = 0) -> Subscribe:
        """The request of a new call. Incomplete epochs are dropped, because they are sent again."""
        self.drop()
        after = self.boundary
        return Subscribe(
            self._stream,
            after,
            self._name,
            term_number,
            # The producer alone knows where a view begins, so a `keep` of `after` is left out.
            keep=self.acknowledged if self.acknowledged < after else None,
            tentative=self._incoming.seen if self._tentative else None,
        )

    def take(self, message: Tuples, body: Rows) -> Epoch | None:
        """Take one part; returns the epoch if this was its last part, and it did not come before.
        Raises: DecodeError: the part does not fit the stream; close the connection.
        """
        return self._incoming.add(message, body)

    def acknowledge(self, upto: int) -> Acknowledge | None:
        """The acknowledgement to send now that the reader has everything up to that boundary; None:
        it was sent already."""
        if upto <= self.acknowledged:
            return None
        self.acknowledged = upto
        return Acknowledge(upto)

    def drop(self) -> None:
        """Drop the parts of incomplete epochs: the call is over."""
        self._incoming.reconnected()
