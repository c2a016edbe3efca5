from __future__ import annotations

from collections.abc import Sequence
from random import SystemRandom  # noqa: TID251 - jitter in a driver
from typing import Final

import trio

from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.following.book import Followers
from medusa.engine.replication.versions.choice import MAX_STREAMS, AskVersions, Choice, Versions
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role
from medusa.overlay.concurrency import Bell, next_beat
from medusa.overlay.errors import MedusaError
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

ANSWER_S: Final = 1.0
"""The longest wait for one answer, seconds; its producer counts as silent long before."""

LEARN_S: Final = 5.0
"""Seconds between two questions to the catalog for a followed stream's producers: so a reader
learns of a new producer within this time."""

LOOK_S: Final = 1.0
"""Seconds between two checks whether a log of this peer has become the log of a follower; a new log
is noticed at once."""

STANDING: Final = 4.0
"""Epochs after which a producer that stands still, while others advance, is believed to lack an
input."""


class VersionMonitor:
    """Asks the producers of each followed stream for their state, and makes this peer read from the
    best of them."""

    def __init__(
        self,
        *,
        overlay: Overlay,
        store: StreamStore,
        directory: Directory,
        followers: Followers,
        config: EngineConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._overlay = overlay
        self._store = store
        self._directory = directory
        self._followers = followers
        self._keep_alive_s = config.keep_alive_s
        self._standing_s = STANDING * config.epoch_s
        self._nursery = nursery
        self._jitter = SystemRandom()
        self._choices: dict[str, Choice] = {}
        self._asked: set[PeerId] = set()
        self._learned_at: dict[str, float] = {}
        self._made_from: dict[str, tuple[PeerId, int]] = {}
        self._opened = Bell()
        store.opened.add(lambda _: self._opened.ring())

    async def maintain(self) -> None:
        """Ask producers and choose, for ever."""
        while True:
            self._opened.clear()
            began = trio.current_time()
            followed = {
                state.name
                for state in self._store.all()
                if state.role is Role.FOLLOWER and state.entry.stream.query
            }
            for stream in [each for each in self._choices if each not in followed]:
                del self._choices[stream]
            self._ask_all(followed)
            for stream in self._choices:
                if not self._followers.reach.is_elsewhere(stream):
                    self._choose(stream)
            if self._choices:
                await trio.sleep_until(began + self._keep_alive_s)
            elif followed:
                await trio.sleep_until(next_beat(self._keep_alive_s))
            else:
                with trio.move_on_at(next_beat(LOOK_S)):
                    await self._opened.wait()

    def _ask_all(self, followed: set[str]) -> None:
        questions: dict[PeerId, list[str]] = {}
        for stream in sorted(followed):  # the order must not depend on hashes in a simulated run
            self._learn(stream)
            peers = self._directory.versions(stream)
            if len(peers) < 2 and stream not in self._choices:
                continue  # there is no choice
            if stream not in self._choices:
                self._choices[stream] = Choice(self._keep_alive_s, self._standing_s, self._jitter)
            self._choices[stream].known(peers)
            for peer in peers:
                questions.setdefault(peer, []).append(stream)
        for peer, streams in questions.items():
            if peer not in self._asked:
                self._asked.add(peer)
                self._nursery.start_soon(self._ask, peer, streams)

    def _learn(self, stream: str) -> None:
        now = trio.current_time()
        if now - self._learned_at.setdefault(stream, now) >= LEARN_S:
            self._learned_at[stream] = now
            self._directory.learn_soon(stream)

    async def _ask(self, peer: PeerId, streams: Sequence[str]) -> None:
        try:
            for first in range(0, len(streams), MAX_STREAMS):
                await self._ask_about(peer, streams[first : first + MAX_STREAMS])
        except MedusaError:
            pass  # the silence of the peer is the answer
        finally:
            self._asked.discard(peer)

    async def _ask_about(self, peer: PeerId, streams: Sequence[str]) -> None:
        """Raises: MedusaError: the peer does not answer."""
        with trio.move_on_after(ANSWER_S):
            connection = await self._overlay.connect(peer)
            said = await connection.call("versions", AskVersions(tuple(streams)), Versions)
            versions = {version.stream: version for version in said.versions}
            for stream in streams:
                if stream in self._choices:
                    version = versions.get(stream)
                    self._choices[stream].receive(peer, version, trio.current_time())

    def _choose(self, stream: str) -> None:
        choice, current = self._choices[stream], self._directory.read_from(stream)
        best = choice.choose(current, trio.current_time())
        if best is not None and best != current:
            self._directory.prefer(stream, best)
            self._followers.read_anew(stream)
            current = best
        if current is not None:
            self._note_version(stream, (current, choice.number(current)))

    def _note_version(self, stream: str, made_from: tuple[PeerId, int]) -> None:
        """Count a change of producer or version: streams made from it then have another version."""
        before = self._made_from.get(stream)
        self._made_from[stream] = made_from
        if before is not None and before != made_from:
            for state in self._store.all():
                if state.name == stream and state.role is Role.FOLLOWER:
                    state.version += 1
