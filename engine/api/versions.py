"""The call by which consumers monitor the producers of what they read."""

from __future__ import annotations

from engine.objects.readers import Readers
from engine.replication.copies import Copies
from engine.replication.versions.messages import MAX_STREAMS, AskVersions, Version, Versions
from overlay.errors import InvalidInputError
from overlay.node import Overlay
from overlay.rpc import Caller


class VersionCalls:
    """The handler; `register` puts it on the peer's service."""

    def __init__(self, overlay: Overlay, copies: Copies, readers: Readers) -> None:
        self._overlay = overlay
        self._copies = copies
        self._readers = readers

    def register(self) -> None:
        self._overlay.service.unary("versions", AskVersions, self.versions)

    async def versions(self, caller: Caller, request: AskVersions, _: bytes) -> Versions:
        if len(request.streams) > MAX_STREAMS:
            raise InvalidInputError(f"more than {MAX_STREAMS} streams in one question")
        found: list[Version] = []
        for stream in request.streams:
            kept = self._copies.rendition(stream)
            if kept is None:
                continue
            if self._readers.may_read(kept.entry.stream, caller.participant):
                suffix, number = kept.suffix, self._copies.version(kept)
                version = Version(stream, suffix.state, kept.log.boundary, suffix.visible, number)
                found.append(version)
        return Versions(tuple(found))
