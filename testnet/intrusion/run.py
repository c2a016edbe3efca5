"""The scenario: several participants' connections, one query over all of them, answers compared.

Participant i posts at its own peer; the last participant's peer owns and runs the query; the
subscriber is at the first peer. Everything uses the commands and the client of ordinary users. The
answers must equal, row by row, those of `medusa.testnet.connections.query` over the same traces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct, structs

from medusa.engine.objects.availability import AvailabilityRequest, Mode
from medusa.engine.objects.query import QueryStatus
from medusa.overlay.errors import InvalidInputError
from medusa.testnet.connections.conn import conn_schema
from medusa.testnet.connections.generate import generate
from medusa.testnet.connections.query import (
    COLUMNS,
    Answers,
    Names,
    Row,
    expected,
    intrusion_document,
    source_schema,
    source_stream,
    write_answers,
)
from medusa.testnet.connections.traces import Trace, open_trace, write_trace
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.flow import admit, flow
from medusa.testnet.kit.answers import Fold
from medusa.testnet.kit.peers import CONFIG, Federation, Launcher, open_federation, participant_name
from medusa.tools.client.async_client import AsyncMedusaClient

MIN_PEERS: Final = 2
"""One peer posts, one runs the query."""

DIFFERENCES_SHOWN: Final = 5
"""Differing rows reported of one answer: enough to recognise the kind of fault."""


@dataclass(frozen=True)
class Options:
    """The options of the scenario.

    Attributes:
        speed: seconds of trace per second; None posts as fast as the peers take it.
        out: the folder for the answers.
        keep: keep homes and logs.
        stretch_s: without a speed: posting lasts that many seconds, or until the disturbance ends;
            None: as fast as possible.
        mode: what a second peer of the query's owner keeps of it; recovery is precise.
        k_safety: the k-safety of the source streams; each participant that posts has twice as many
            further peers, so that a majority of voters decides the leader.
        bound_s: how long answers may wait for missing input, seconds; 0: without limit.
        config, configs: see `medusa.testnet.kit.peers.Federation`.
    """

    peers: int = 3
    traces: tuple[Path, ...] = ()
    speed: float | None = None
    out: Path = Path("out")
    keep: bool = False
    seed: int = 0
    stretch_s: float | None = None
    mode: Mode = Mode.NONE
    k_safety: int = 0
    bound_s: float = 0.0
    config: str = CONFIG
    configs: Mapping[str, str] = field(default_factory=dict)

    def siblings(self) -> dict[str, int]:
        """Number of further peers for each participant."""
        names = [participant_name(index) for index in range(self.peers)]
        return {
            **dict.fromkeys(names[:-1], 2 * self.k_safety),
            names[-1]: 0 if self.mode is Mode.NONE else 1,
        }


class AnswerResult(Struct, frozen=True):
    """One answer against the batch run: rows received, rows expected, and differences.

    Attributes:
        strongest: the received row with the greatest count; None without any.
    """

    rows: int
    expected: int
    exact: bool
    strongest: Row | None = None
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()


class Result(Struct, frozen=True):
    """The result of a run.

    Attributes:
        generated: the connections are synthetic, with attacks among them; else they are traces'.
        rows: connections posted. seconds: the time from the first post to the last answer.
        first_answer_seconds: from the command's start to the first row received; None without one.
        first_answer_after_post_seconds: the same from the first post.
        stage_seconds: duration of each stage.
    """

    scenario: str
    generated: bool
    peers: tuple[str, ...]
    rows: int
    seconds: float
    rows_per_second: float
    first_answer_seconds: float | None
    first_answer_after_post_seconds: float | None
    answers: dict[str, AnswerResult]
    exact: bool
    stage_seconds: dict[str, float]
    out: str
    folder: str | None

    @property
    def good(self) -> bool:
        return self.exact


Disturbance = Callable[[Federation, Board], Awaitable[None]]
"""Causes failures while the connections flow."""


async def run_intrusion(
    options: Options,
    board: Board,
    disturb: Disturbance | None = None,
    *,
    links: Launcher | None = None,
    told: Mapping[str, Fold[Row]] | None = None,
    conclude: Callable[[Federation], Awaitable[None]] | None = None,
) -> Result:
    """Run the scenario from nothing to the comparison, and stop everything.

    Args:
        disturb: runs beside the posting and receiving; the answers wait for it.
        links: decides how the peers are started.
        told: for each answer, the fold that takes the subscriber's changes, tentative answers
            included.
        conclude: runs when all was received, before the peers are stopped.

    Raises:
        InvalidInputError: a trace cannot be read, or an option is out of range.
        MedusaError: a peer or a call failed; a note has the ends of the peers' logs.
    """
    if options.peers < MIN_PEERS:
        raise InvalidInputError(f"--peers {options.peers}: at least {MIN_PEERS}")
    async with open_federation(keep=options.keep, links=links) as federation:
        federation.config, federation.configs = options.config, options.configs
        result = await _run(federation, options, board, disturb, told)
        if conclude is not None:
            await conclude(federation)
        return result


async def _run(
    federation: Federation,
    options: Options,
    board: Board,
    disturb: Disturbance | None,
    told: Mapping[str, Fold[Row]] | None,
) -> Result:
    participants = [participant_name(index) for index in range(options.peers)]
    with board.stage("traces") as stage:
        traces = await trio.to_thread.run_sync(partial(_traces, federation.folder, options, board))
        by_poster = _placed(traces, participants[:-1])
        rows = sum(trace.rows for trace in traces)
        kind = "traces" if options.traces else "generated traces"
        stage.detail = f"{rows:,} connections in {len(traces)} {kind}"
    with board.stage("start"), federation.reports.listening(partial(board.say, "start")):
        await federation.found(participants[0])
        board.say("start", f"{participants[0]} founded the federation")
    async with AsyncExitStack() as clients:
        with board.stage("admit"), federation.reports.listening(partial(board.say, "admit")):
            opened = await admit(federation, participants[1:], options.siblings(), clients, board)
        with board.stage("define"):
            await _define(participants[-1], opened, list(by_poster), board, options)
        answers = await flow(
            opened,
            by_poster,
            Names(participants[-1]).answers,
            speed=_speed(traces, options),
            board=board,
            disturb=None if disturb is None else partial(disturb, federation, board),
            hurry=options.stretch_s is not None and options.speed is None,
            told=told,
        )
    with board.stage("compare"):
        wanted = await trio.to_thread.run_sync(_expected, traces)
        write_answers(options.out, answers)
        compared = {name: compare(answers[name], wanted[name]) for name in COLUMNS}
        exact = all(result.exact for result in compared.values())
        board.say("compare", "exactly equal" if exact else "DIFFERENT")
    return _result(board, federation, options, compared)


def _traces(folder: Path, options: Options, board: Board) -> list[Trace]:
    """The given traces, or generated ones: one for each peer that posts."""
    paths = list(options.traces)
    if not paths:
        board.say("traces", f"generating traffic with seed {options.seed}")
        for index, table in enumerate(generate(options.seed, options.peers - 1)):
            paths.append(folder / f"{participant_name(index)}.parquet")
            write_trace(paths[-1], [table])
    return [
        open_trace(path, lambda rows, path=path: board.say("traces", f"{path.name}: {rows:,} rows"))  # type: ignore[misc]
        for path in paths
    ]


def _speed(traces: Sequence[Trace], options: Options) -> float | None:
    if options.speed is not None or options.stretch_s is None:
        return options.speed
    span = max(trace.last for trace in traces) - min(trace.first for trace in traces)
    return max(span, 1.0) / options.stretch_s


def _placed(traces: Sequence[Trace], posters: Sequence[str]) -> dict[str, list[Trace]]:
    """Assign traces: participant i modulo their number posts trace i."""
    placed: dict[str, list[Trace]] = {}
    for index, trace in enumerate(traces):
        placed.setdefault(posters[index % len(posters)], []).append(trace)
    return placed


async def _define(
    owner: str,
    clients: dict[str, AsyncMedusaClient],
    posters: Sequence[str],
    board: Board,
    options: Options,
) -> None:
    """Publish each poster's stream, and the query over all of them at the last participant."""
    sources = []
    for participant in posters:
        board.say("define", f"{participant} publishes its stream")
        client = clients[participant]
        stream = structs.replace(source_stream(participant), k_safety=options.k_safety)
        await client.create_schema(conn_schema(source_schema(participant)))
        await client.create_stream(stream)
        sources.append(stream.name)
    board.say("define", f"{owner} starts the query")
    names = Names(owner)
    document = intrusion_document(names, sources)
    mode = None if options.mode is Mode.NONE else options.mode
    asked = AvailabilityRequest(mode, bound_s=options.bound_s or None)
    await clients[owner].create_query_xml(document, asked)
    await clients[owner].set_query_status(names.query, QueryStatus.RUNNING)
    board.say("define", f"{len(sources)} streams and 1 query over them")


def _expected(traces: Sequence[Trace]) -> Answers:
    return expected(batch for trace in traces for batch in trace.batches())


def compare(received: Sequence[Row], wanted: Sequence[Row]) -> AnswerResult:
    """Row by row, repeated rows included."""
    missing, extra = Counter(wanted) - Counter(received), Counter(received) - Counter(wanted)
    return AnswerResult(
        rows=len(received),
        expected=len(wanted),
        exact=not missing and not extra,
        strongest=max(received, key=lambda row: (row[2], row), default=None),
        missing=tuple(sorted(missing)[:DIFFERENCES_SHOWN]),
        extra=tuple(sorted(extra)[:DIFFERENCES_SHOWN]),
    )


def _result(
    board: Board, federation: Federation, options: Options, compared: dict[str, AnswerResult]
) -> Result:
    posting, answers = board.stages["post"], board.stages["answers"]
    seconds = answers.ended - posting.began
    first = board.first_answer
    return Result(
        scenario="intrusion",
        generated=not options.traces,
        peers=tuple(dict.fromkeys(peer.participant for peer in federation.peers)),
        rows=board.total,
        seconds=round(seconds, 3),
        rows_per_second=round(board.total / seconds, 1) if seconds else 0.0,
        first_answer_seconds=None if first is None else round(first, 3),
        first_answer_after_post_seconds=None if first is None else round(first - posting.began, 3),
        answers=compared,
        exact=all(answer.exact for answer in compared.values()),
        stage_seconds={
            name: round(stage.ended - stage.began, 3) for name, stage in board.stages.items()
        },
        out=str(options.out),
        folder=str(federation.folder) if options.keep else None,
    )
