"""Three peers that keep one revised stream, driven step by step: they do the work of
`medusa.engine.replication.leaders` without its messages; and the conditions of the end."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from engine_streams_data import next_epoch
from hypothesis import currently_in_test_context, event
from revised_epochs import KEYED, SLACK_US, Act, Model, after, as_rows

from medusa.engine.objects.schema import BEGINNING, END, REVISION_KIND
from medusa.engine.replication.leaders.following import _Anew, _copy, _fits, _stays
from medusa.engine.replication.leaders.messages import Part, ReplicaState, Segment
from medusa.engine.replication.leaders.shipping import _continues
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.journal.journal import START, Journal, Position
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.revisions.columns import folded, request_schema
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.leader import Leader, open_leader
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.source import Source
from medusa.engine.streams.source.sources import journal_folders, open_sources
from medusa.overlay.errors import StorageFullError

NOW = 1_700_000_000.0
"""Seconds, long after all tuples, so that no writer is ahead of the clock."""

CONFIG = SourceConfig(slack_us=SLACK_US, segment_bytes=3072, replicated=True)

REOPENED = "reopened"
"""The mark of a reopening in `Cluster.order`, with the term."""

WRITERS = {"p": Writer("client"), "q": Writer("client", "utah.edu"), "ender": Writer("ender")}
"""Two clients with one name, of two participants."""


class Peer:
    """One voter's logs of the stream. journal: as `Ballot.journal`."""

    def __init__(self, folder: Path, history_us: int, lateness_us: int = 0) -> None:
        self.folder = folder
        self.history_us = history_us
        self.config = replace(CONFIG, lateness_us=lateness_us)
        self.journal = 0
        self.seen: list[tuple[int, int, pa.Table]] = []
        self._closing = AsyncExitStack()
        self.leader: Leader

    async def open(self) -> None:
        self._closing = AsyncExitStack()
        opening = open_leader(
            self.folder,
            "s",
            KEYED,
            self.config,
            history_us=self.history_us,
            journal=self.journal,
            now=0.0,
        )
        self.leader = await self._closing.enter_async_context(opening)

    async def close(self) -> None:
        await self._closing.aclose()

    async def crash(self) -> None:
        await self.close()
        await self.open()

    async def advance(self, full: int = 3) -> None:
        """Move the boundary. full: the number of the log that has no room."""
        log = self.leader.logs.all[full % 3]
        commit = log.commit if full > 2 else no_room
        with patch.object(log, "commit", commit), suppress(StorageFullError):
            await self.leader.advance(0.0)
        assert self.leader.logs.revised >= self.leader.logs.stream.boundary, (
            "whoever has those finds these"
        )
        for number, log in enumerate(self.leader.logs.all):
            self.seen.append((number, _stays(log), contents(log)))
            log.upkeep.retain(0.0)

    def has(self) -> ReplicaState:
        segments = tuple(Segment(*each) for each in self.leader.source.journal.segments)
        return ReplicaState(
            bool(segments), segments, *(_stays(log) for log in self.leader.logs.all)
        )

    def lead(self, term_number: int) -> None:
        self.leader.replica.lead(term_number)

    def follow(self, other: Leader, limit: int) -> None:
        """Copy one part of the leader's journal that this peer lacks."""
        at = self.leader.source.journal.position
        if at < other.source.journal.position:
            part = other.source.journal.read(at, limit)
            self.leader.note_reopening(*part)
            self.leader.replica.follow(*part)

    async def join(self, other: Peer, broken: int) -> None:
        """Bring the peer up to date. broken: the number of epochs after which the peer dies and
        tries again."""
        leader = other.leader
        at = _continues(self.has(), leader.source)
        if currently_in_test_context():
            event("begins anew" if at is None else "goes on")
        if at is None:
            await self._begin_anew(leader, broken)
        while self.leader.source.journal.position < leader.source.journal.position:
            self.follow(leader, 300)

    async def _begin_anew(self, leader: Leader, broken: int) -> None:
        if not _fits(self.leader, self._planned(leader)):
            await self.close()
            shutil.rmtree(self.folder)
            self.journal += 1
            await self.open()
        for (log, start, _), source in zip(self._planned(leader), leader.logs.all, strict=True):
            if log.boundary == BEGINNING and start > BEGINNING:
                log.begin(start)
            if log.boundary == END:
                log.reopen(_stays(log))
            while epoch := next_epoch(source, max(log.boundary, source.start), 2):
                if not broken:
                    await self.crash()
                    await self._begin_anew(leader, -1)
                    return
                broken -= 1
                log.append(*epoch)
        self.journal += 1
        folders = journal_folders(self.folder, self.journal)
        copy_journal(leader.source, folders[0])
        copy_journal(leader.sources.late, folders[1])
        async with self.leader.cutter.at_rest():
            self.leader.sources.replace(
                *open_sources(
                    self.folder,
                    "s",
                    KEYED,
                    self.config,
                    committed=(self.leader.logs.stream.boundary, self.leader.logs.late.boundary),
                    revised=self.leader.logs.revised,
                    journal=self.journal,
                    now=0.0,
                )
            )

    def _planned(self, leader: Leader) -> list[tuple[StreamLog, int, int]]:
        both = zip(self.leader.logs.all, leader.logs.all, strict=True)
        return [(ours, log.start, log.boundary) for ours, log in both]


async def no_room(*_: object) -> float:
    raise StorageFullError("no room for an epoch")


def copy_journal(source: Source, folder: Path) -> None:
    journal = Journal.open(folder, _Anew())
    at = (source.journal.segments[0][0], 0)
    while at < source.journal.position:
        at, data = source.journal.read(at, 300)
        _copy(journal, Part(at, START), data)
        at = (at[0], at[1] + len(data))
    journal.close()


def contents(log: StreamLog) -> pa.Table:
    if not log.files.rows:
        return log.schema.empty_table()
    with log.reader.pinned(log.start, log.boundary) as paths:
        tables = [pq.ParquetFile(path).read(use_threads=False) for path in paths]
    shape = pa.schema([pa.field(each.name, each.type) for each in log.schema])
    return pa.concat_tables([shape.empty_table(), *(table.cast(shape) for table in tables)])


class Cluster:
    """Three peers, of which one is home and another its replica; and two clients that make the acts
    in turn.

    Attributes:
        order: the acts in the home's journal, by client and number, and the places where the ended
            stream was reopened.
        answers: for each acknowledged act, the revisions that found no tuple.
    """

    def __init__(
        self, folder: Path, done: Sequence[Act], history_us: int, lateness_us: int = 0
    ) -> None:
        self.peers = [Peer(folder / str(number), history_us, lateness_us) for number in range(3)]
        self.lateness_us = lateness_us
        self.leader, self.replica, self.third = self.peers
        self.history_us = history_us
        self.term_number = 1
        self.acts = {"p": done[::2], "q": done[1::2], "ender": list[Act]()}
        self.order: list[tuple[str, int]] = []
        self.answers: dict[tuple[str, int], list[int]] = {}
        self._sent: list[tuple[tuple[str, int], Position, Posted]] = []
        self._next = dict.fromkeys(self.acts, 0)

    async def found(self) -> None:
        for peer in self.peers:
            await peer.open()
        await self.fail_over(0)

    async def fail_over(self, how: int) -> None:
        """Let one of the two live peers lead, with the other or the third. how: selects the peer,
        and when the catching up breaks."""
        self._stand_down()
        members = [self.leader, self.replica]
        leader = members.pop(how % 2)
        (other,) = members
        leader.lead(self.term_number)
        self._forget_what_is_not_in(leader)
        await self._go_on(leader, other, how // 2)

    async def reopen(self, how: int) -> None:
        """Let the leader reopen the ended stream, with one of the other peers. how: selects the
        peer, and when the catching up breaks; or the replica takes over, with or without knowing of
        the reopening."""
        if not self.leader.leader.logs.have_end:
            return
        self._stand_down()
        await self.leader.leader.reopen(self.term_number)
        self.order.append((REOPENED, self.term_number))
        if how % 3 == 0:
            if how // 3 % 2:
                await self.ship(300)
            await self.fail_over(how // 6 * 2 + 1)
        else:
            await self._go_on(self.leader, self.replica, how // 3)

    def _stand_down(self) -> None:
        for (client, number), _, _ in reversed(self._sent):
            self._next[client] = number
        self._sent.clear()
        self.leader.leader.replica.settling.leading = False
        self.term_number += 1

    def _forget_what_is_not_in(self, leader: Peer) -> None:
        last_of = leader.leader.source.acceptance.last_of
        self.order = [
            (client, n)
            for client, n in self.order
            if client == REOPENED or n < last_of(WRITERS[client])
        ]
        marks = [client for client, _ in self.order if client in {REOPENED, "ender"}]
        if leader.leader.boundary == END and marks[-1:] == [REOPENED]:
            self.order = [each for each in self.order if each != self._last(REOPENED)]

    def _last(self, client: str) -> tuple[str, int]:
        return next(each for each in reversed(self.order) if each[0] == client)

    async def _go_on(self, leader: Peer, other: Peer, how: int) -> None:
        joins = (other, self.third)[how % 2]
        self.third = self.third if joins is other else other
        self.leader, self.replica = leader, joins
        await joins.join(leader, how // 2 % 8)
        leader.leader.replica.settling.leading = True
        await self.settle()
        await self.notify()

    async def post(self, how: int) -> None:
        await self._post_next("pq"[how % 2])

    async def end(self) -> None:
        if self._next["ender"] == len(self.acts["ender"]):
            self.acts["ender"].append(Act("s0", promise=END))
        await self._post_next("ender")

    async def _post_next(self, client: str) -> None:
        number = self._next[client]
        if number == len(self.acts[client]):
            return
        ended = self.leader.leader.boundary == END and (client, number) not in self.order
        if self.acts[client][number].revised and ended:
            return  # the reopening is refused
        posted = await self._post(self.acts[client][number], number + 1, client)
        assert posted.duplicate == ((client, number) in self.order)
        if not posted.duplicate:
            self.order.append((client, number))
        self._sent.append(((client, number), self.leader.leader.source.journal.position, posted))
        self._next[client] += 1

    async def _post(self, act: Act, sequence: int, client: str = "p") -> Posted:
        leader, writer = self.leader.leader, WRITERS[client]
        if act.revised:
            shape = request_schema(KEYED).payload
            request = [
                {REVISION_KIND: kind, **(new if kind == "REPLACEMENT" else {"b": new["b"]})}
                for kind, new in act.revised
            ]
            body = encode(pa.Table.from_pylist(request, schema=shape))
            return await leader.revise(
                PostRequest(writer, Post(sequence, revisions=True), body),
                history_us=self.history_us,
                now=NOW,
            )
        body = encode(pa.Table.from_pylist(act.rows, schema=KEYED.payload)) if act.rows else b""
        return await leader.post(
            PostRequest(writer, Post(sequence, boundary=act.promise), body), now=NOW
        )

    async def ship(self, limit: int) -> None:
        self.replica.follow(self.leader.leader, limit)

    async def settle(self) -> None:
        """Let the leader learn what its replica has, and answer its clients."""
        await self.leader.leader.settle(self.replica.leader.source.journal.position, 0.0)
        while self._sent and self._sent[0][1] <= self.leader.leader.replica.settling.settled:
            which, _, posted = self._sent.pop(0)
            assert self.answers.setdefault(which, list(posted.missed)) == list(posted.missed)

    async def notify(self) -> None:
        await self.replica.leader.settle(self.leader.leader.replica.settling.settled, 0.0)

    async def do(self, step: tuple[int, int]) -> None:
        what, how = step
        match what:
            case 0 | 1 | 2 | 3 | 4:
                await self.post(how)
            case 5 | 6:
                await self.ship((300, 600, 10_000)[how % 3])
            case 7:
                await self.settle()
            case 8:
                await self.notify()
            case 9 | 10 | 11:
                await self.peers[how % 3].advance((how >> 3) % 8)
            case 12:
                if (victim := self.peers[how % 3]) is not self.leader:
                    await victim.crash()
                elif (how >> 5) % 2:
                    await victim.crash()
                    await self.fail_over(how >> 6)
            case 13:
                await self.fail_over(how)
            case 14:
                await self.end()
            case _:
                await self.reopen(how)

    async def finish(self) -> None:
        while self.leader.leader.boundary == END:
            await self.all_settled()
            while not self.leader.leader.logs.have_end:
                await self.leader.advance()
            await self.reopen(1)
        for client, done in self.acts.items():
            while self._next[client] < len(done):
                await self._post_next(client)
                if self.leader.leader.boundary == END:
                    await self.finish()
                    return
        await self.ship_all()
        for (client, number), missed in self.answers.items():  # posting again changes nothing
            posted = await self._post(self.acts[client][number], number + 1, client)
            assert (posted.duplicate, list(posted.missed)) == (True, missed)
        await self.end()
        await self.all_settled()
        await self.third.join(self.leader, 7)
        await self.third.leader.settle(self.third.leader.source.journal.position, 0.0)
        for peer in self.peers:
            while peer.leader.logs.stream.boundary < END:
                await peer.leader.advance(0.0)

    async def ship_all(self) -> None:
        ours, theirs = self.replica.leader.source, self.leader.leader.source
        while ours.journal.position < theirs.journal.position:
            await self.ship(600)
        await self.settle()

    async def all_settled(self) -> None:
        await self.ship_all()
        await self.notify()


class EndingModel(Model):
    """The stream may also end, and be reopened: it then continues from the greatest promised
    boundary."""

    ended_at = -(2**63)

    def take(self, act: Act) -> list[int]:
        before, greatest = self.boundary, self.greatest
        missed = super().take(act)
        if before == END:
            self.greatest = greatest
        elif self.boundary == END:
            self.ended_at = before
        return missed

    def reopen(self) -> None:
        assert self.boundary == END, "it has not ended"
        self.boundary = max(self.ended_at, self.greatest, self.revised_at)


def check(cluster: Cluster) -> None:
    model = EndingModel(cluster.history_us, cluster.lateness_us)
    done = [(client, number) for client, number in cluster.order if client != REOPENED]
    assert len(done) == len(cluster.answers) == sum(len(acts) for acts in cluster.acts.values())
    for client, number in cluster.order:
        if client == REOPENED:
            model.reopen()
            continue
        assert model.take(cluster.acts[client][number]) == cluster.answers[client, number]
    times = [time for log in cluster.leader.leader.logs.all[:2] for time in stimes(contents(log))]
    earliest = max(times, default=0) - cluster.history_us
    last = [contents(log) for log in cluster.leader.leader.logs.all]
    for peer in cluster.peers:
        revised, stable, late = (contents(log) for log in peer.leader.logs.all)
        found = folded(stable, [revised])
        known = [{name: row[name] for name in found.column_names} for row in model.rows]
        assert after(as_rows(found), earliest) == after(known, earliest)
        common = min(late.num_rows, last[2].num_rows)
        assert values(late)[late.num_rows - common :] == values(last[2])[-common or END :]
        assert late.column("seq").to_pylist() == sorted(set(late.column("seq").to_pylist()))
        for number, upto, table in peer.seen:
            since = max(
                peer.leader.logs.all[number].start, cluster.leader.leader.logs.all[number].start
            )
            assert cut(table, since, END) == cut(last[number], since, upto)


def values(late: pa.Table) -> list[dict[str, Any]]:
    return late.drop_columns(["stime"]).to_pylist()


def stimes(table: pa.Table) -> list[int]:
    return table.column("stime").to_pylist()


def cut(table: pa.Table, since: int, upto: int) -> list[dict[str, Any]]:
    stime = table.column("stime")
    within = pc.and_(pc.greater(stime, since), pc.less_equal(stime, upto))
    return table.filter(within).to_pylist()
