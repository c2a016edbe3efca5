"""The call by which consumers monitor the producers of what they read."""

from __future__ import annotations

from engine.engine import Engine
from engine.replication.versions.messages import MAX_STREAMS, AskVersions, Version, Versions
from overlay.errors import InvalidInputError
from overlay.rpc import Caller


class VersionCalls:
    """The handler; `register` puts it on the peer's service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def register(self) -> None:
        self._engine.overlay.service.unary("versions", AskVersions, self.versions)

    async def versions(self, caller: Caller, request: AskVersions, _: bytes) -> Versions:
        if len(request.streams) > MAX_STREAMS:
            raise InvalidInputError(f"more than {MAX_STREAMS} streams in one question")
        found: list[Version] = []
        for stream in request.streams:
            kept = self._engine.rendition(stream)
            if kept is None:
                continue
            if self._engine.readers.may_read(kept.entry.stream, caller.participant):
                suffix, number = kept.suffix, self._engine.version(kept)
                version = Version(stream, suffix.state, kept.log.boundary, suffix.visible, number)
                found.append(version)
        return Versions(tuple(found))
