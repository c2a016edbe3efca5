"""The first start of a home that was restored from a backup: it contradicts no tuple that the lost
peer sent.

Others may have consumed tuples that the lost peer sent after the backup. So a source stream begins
again behind the last tuple that any peer is known to have of it:

    ... the backup's epochs ] lost: others have it ] empty: posted, and known to nobody ] goes on

The lost part keeps its place in the log (ADR 16), and the peer fetches it again from our own peers,
if they have it. Producers' posts of that time are missing; their next ones may leap over them. The
outputs of queries here continue behind the same place, without windows that would reach back into
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct

from medusa.engine.objects.definitions import REVISIONS, Idle, StreamEntry
from medusa.engine.objects.moments import boundary_in_words
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.records.status import PeerStatus, Status
from medusa.engine.replication.records.stored_query import QueryFiles
from medusa.engine.streams.config import SourceConfig, Timing
from medusa.engine.streams.log.epochs import path_of
from medusa.engine.streams.log.scanning import MADE_EMPTY
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.revisions.columns import revisions_name, revisions_schema
from medusa.engine.streams.source.sources import open_sources
from medusa.engine.streams.store.stream_state import Role, StoredStream
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import whole_after
from medusa.overlay.addresses import Address, shown
from medusa.overlay.errors import ConflictError, InvalidInputError, MedusaError, NotFoundError
from medusa.overlay.files import load_json, storing
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

FILE: Final = "restored.json"
"""The file that a restore leaves in a peer's data until the end of the first start."""


CALL_S: Final = 5.0

OF_TODAY_US: Final = 86_400_000_000
"""Microseconds behind the clock within which a stream counts as following the clock: a day, because
some batches come a day late."""


class Restored(Struct, frozen=True):
    """Facts about the backup that the first start needs.

    Attributes:
        made_at: when the backup was made, seconds since the epoch.
        address: where the peer answered then.
        behind: a boundary, microseconds: no reader has tuples of source streams after it, unless
            another peer has them. None: it is not known.
    """

    made_at: float
    address: Address | None = None
    behind: int | None = None


def is_restored(data: Path) -> bool:
    """Whether the next start is the first one after a restore."""
    return (data / FILE).exists()


async def begin_again(data: Path, overlay: Overlay, timing: Timing) -> None:
    """Prepare a restored home before it answers any call; do nothing for any other home. Raises:
    ConflictError: the original of this copy still runs. StorageError, DamagedError: its files
    cannot be read or written; the next start tries again.
    """
    try:
        restored = load_json(data / FILE, Restored, mend="restore the backup again")
    except NotFoundError:
        return
    await _check_alone(restored, overlay)
    up_to_s = timing.restored_ask_s
    overlay.events.note("info", f"asks the other peers for newer tuples, for up to {up_to_s:g} s")
    known, silent = await _ask(overlay, timing)
    for peer in silent:
        text = f"does not know what peer {peer.hex()[:8]} alone has of our streams"
        overlay.events.note("warning", f"{text}: it did not say so within {up_to_s:g} s")
    told = await trio.to_thread.run_sync(partial(_go_on, data, known, restored, overlay.clock()))
    for text in told:
        overlay.events.note("warning", f"restored {text}")
    with storing(data / FILE):
        (data / FILE).unlink()


async def _check_alone(restored: Restored, overlay: Overlay) -> None:
    """Refuse to start while the original of this copy runs. Raises: ConflictError."""
    if restored.address is None or restored.address == overlay.address:
        return
    try:
        await overlay.transport.dial(restored.address)
    except InvalidInputError:  # this peer itself answered at that address
        raise ConflictError(
            f"the peer that this home is a copy of runs at {shown(restored.address)}: stop it for "
            "good first; two peers of one name would tell different things under it"
        ) from None
    except MedusaError:
        return


Known = Mapping[str, int]


async def _ask(overlay: Overlay, timing: Timing) -> tuple[Known, list[bytes]]:
    """The boundaries of our streams at other peers, and the peers that did not answer.

    The backup does not know the peers that joined after it. Each asked peer names the peers that it
    knows, and these are asked as well. While no peer is known, one of them may still dial us.
    """
    own = overlay.identity
    known: dict[str, int] = {}
    asked, silent = {own.peer_id}, set[bytes]()

    async def ask(peer: PeerId) -> None:
        while True:
            try:
                connection = await overlay.connect(peer)
                await overlay.exchange(connection)
                said = await connection.call("peer_status", Status(), PeerStatus, timeout_s=CALL_S)
            except MedusaError:
                await trio.sleep(timing.restored_again_s)
                continue
            limit = END
            if connection.remote.participant != own.participant:
                # Another participant is believed only about boundaries that a stream of today can
                # have.
                limit = int(overlay.clock() * 1e6)
            for stream in said.streams:
                known[stream.name] = max(
                    known.get(stream.name, BEGINNING), min(stream.boundary, limit)
                )
            silent.discard(peer)
            return

    with trio.move_on_after(timing.restored_ask_s):
        async with trio.open_nursery() as nursery:
            while True:
                for peer in {each.peer_id for each in overlay.peers.all()} - asked:
                    asked.add(peer)
                    silent.add(peer)
                    nursery.start_soon(ask, peer)
                if asked != {own.peer_id} and not silent:
                    break
                await trio.sleep(timing.restored_again_s)
    return known, sorted(silent)


def _go_on(data: Path, known: Known, restored: Restored, now: float) -> list[str]:
    """Prepare the files of restored streams; returns the losses, in words for people. Repeatable;
    blocking."""
    tasks = [
        task
        for stored in QueryFiles(data / "queries").load()
        if not stored.variant
        for task in stored.network.tasks()
    ]
    consumed = dict(known)
    for task in reversed(tasks):  # a peer that has an output has its inputs, too
        for name in task.inputs:
            upto = consumed.get(task.output, BEGINNING)
            if upto < END:
                consumed[name] = max(consumed.get(name, BEGINNING), upto)
    told: list[str] = []
    lost: dict[str, int] = {}
    for folder, stored in _state(data):
        if stored.role is Role.SOURCE and not stored.entry.stream.k_safety:
            told += _renew(folder, stored.entry, consumed, lost, restored=restored, now=now)
    logs = {s.entry.stream.name: (f, s) for f, s in _state(data) if s.role is Role.DERIVED}
    for task in tasks:
        told += _skip(task, logs, lost)
    return told


def _state(data: Path) -> Iterator[tuple[Path, StoredStream]]:
    for path in sorted(data.glob("streams/*/stream.json")):
        yield path.parent, load_json(path, StoredStream, mend="restore the backup again")


def _renew(
    folder: Path,
    entry: StreamEntry,
    known: Known,
    lost: dict[str, int],
    *,
    restored: Restored,
    now: float,
) -> Iterator[str]:
    """Begin a source stream again."""
    name, schema = entry.stream.name, entry.revised_schema
    log = StreamLog.open(folder / "log", schema.source)
    late = StreamLog.open(folder / "late", schema.source)
    logs = [(name, log), (f"{name}/late", late)]
    if entry.is_revised:
        shape = revisions_schema(schema, source=True).source
        logs.append((revisions_name(name), StreamLog.open(folder / REVISIONS, shape)))
    before = log.boundary
    if before == END:
        return
    reached = {}
    for each, state in logs:
        upto = max(known.get(each, BEGINNING), state.boundary)
        if state.boundary < upto:
            _lose(state, upto)
            lost[each] = upto
            here, there = boundary_in_words(state.boundary), boundary_in_words(upto)
            yield (
                f"{each}: the backup has it up to {here}, others up to {there}: "
                "the rows between are fetched again from our own peers, if they have them"
            )
        reached[each] = upto
    revised = reached.get(revisions_name(name), BEGINNING)
    goes_on = max(reached[name], revised if revised < END else BEGINNING)
    if restored.behind is not None:
        goes_on = max(goes_on, restored.behind)
    elif _is_of_today(entry, before, restored.made_at):
        # Another peer may have tuples that this one does not know; their time was at most the
        # present.
        goes_on = max(goes_on, int(now * 1e6))
    source, lates = open_sources(
        folder,
        name,
        schema,
        SourceConfig().of(entry.stream),
        committed=(reached[name], reached[f"{name}/late"]),
        revised=revised,
        journal=0,
        now=now,
    )
    lates.begin_again(max(reached[f"{name}/late"], int(now * 1e6)))
    source.begin_again(goes_on)
    source.close()
    lates.close()
    yield (
        f"{name}: posts answered after the backup ({boundary_in_words(before)}) are not in it; it "
        f"goes on behind {boundary_in_words(goes_on)}, and what comes with an earlier time is late"
    )


def _is_of_today(entry: StreamEntry, boundary: int, made_at: float) -> bool:
    """Whether the stream's time was the present when the backup was made: then it has followed the
    clock since. Other streams have times far from the present: with the present as boundary, all
    their posts would be late, and all kept tuples older than the stream's history. Args: boundary:
    the stream's in the backup, microseconds. made_at: when the backup was made, seconds.
    """
    stream = entry.stream
    if stream.idle is Idle.CLOCK or entry.schema.time is None:
        return True
    if stream.max_ahead_us is None:
        return False
    behind_us = int(made_at * 1e6) - boundary
    return behind_us <= OF_TODAY_US + stream.slack_us


def _skip(
    task: Task, logs: Mapping[str, tuple[Path, StoredStream]], lost: dict[str, int]
) -> Iterator[str]:
    """Let an output continue after the lost part of its inputs."""
    ends = [lost[name] for name in task.inputs if name in lost]
    if task.output not in logs or not ends:
        return
    folder, stored = logs[task.output]
    log = StreamLog.open(folder / "log", stored.entry.schema.derived)
    upto = max(ends) if task.of is not None else whole_after(task, max(ends))
    if BEGINNING < log.boundary < upto:
        _lose(log, upto)
        lost[task.output] = upto
        yield (
            f"{task.output}: the query's results up to {boundary_in_words(upto)} are fetched or "
            "computed again"
        )


def _lose(log: StreamLog, upto: int) -> None:
    """End a log with a lost interval."""
    path = path_of(log.folder, log.boundary, upto)
    with storing(path):
        path.touch()
        os.utime(path, (MADE_EMPTY, MADE_EMPTY))
