"""The intrusion query while its federation is split, and the subscriber's view of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Final

import msgspec
import trio
from msgspec import Struct, structs

from medusa.engine.streams.revisions.corrections import Corrections
from medusa.overlay.errors import DeadlineError
from medusa.testnet.connections.query import COLUMNS, Row
from medusa.testnet.cutting.links import Links, open_links
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.flow import rows_of
from medusa.testnet.intrusion.run import Options, Result, run_intrusion
from medusa.testnet.kit.answers import Fold
from medusa.testnet.kit.cast import agree, home
from medusa.testnet.kit.patience import until, while_moving
from medusa.testnet.kit.peers import CONFIG, Federation, Peer, participant_name, run_command
from medusa.tools.client.async_client import open_medusa

FIRST_S: Final = 60.0
"""Seconds over which posting is stretched until the first answers, for which the split waits."""
BEHIND_S: Final = 30.0
"""Seconds over which posting is stretched after the split. The rest is then posted at once."""

LOOK_S: Final = 0.5

WINDOW_AND_GROUP: Final = itemgetter(0, 1)
"""The key of an answer within a window."""

CAPACITY_CORES: Final = 0.1
"""Capacity of the query's owner, if load is traded: less than its tasks need."""
PATIENCE_S: Final = 3.0
"""Seconds after which a task whose worker was cut off is taken home."""

TRADING: Final = f"[contracts]\nsettle_s = 3.0\n\n[engine]\npatience_s = {PATIENCE_S}\n"


@dataclass(frozen=True)
class Split:
    """The parameters of the split.

    Attributes:
        seconds: duration. bound_s: X of the query.
        netns: cut cables between network namespaces, not sockets.
        trade: the query's owner is overloaded, and has a contract with each of the others.
    """

    seconds: float
    bound_s: float = 2.0
    netns: bool = False
    trade: bool = False


class SplitResult(Result, frozen=True, kw_only=True):
    """The result of a run with a split.

    Attributes:
        exact: answers, after all corrections, equal the batch run's, and there are no faults.
        tentative: tentative answers. revised: tuples in DELETIONs and INSERTIONs.
        moves, moves_while_split: tasks that moved.
        receipts: the number of receipts that both sides signed. faults: events that should not have
            happened.
        history: actions and observations, with the seconds of the run.
    """

    split_seconds: float
    bound_ms: float
    netns: bool
    tentative: int
    revised: int
    moves: int
    moves_while_split: int
    receipts: int
    faults: tuple[str, ...]
    history: tuple[str, ...]


class _Balance(Struct, frozen=True):
    contract: str
    earned: int
    spent: int
    receipts: int
    disputes: int


class _Balances(Struct, frozen=True):
    contracts: tuple[_Balance, ...] = ()


@dataclass
class Splitter:
    """Cuts off the participants between the first, who subscribes, and the last, who owns the
    query, and heals the split.

    Attributes:
        told: for each answer, the fold of the subscriber's changes. faults, log: see `SplitResult`.
    """

    split: Split
    links: Links
    told: Mapping[str, Fold[Row]]
    faults: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    moves: int = 0
    moves_while_split: int = 0
    receipts: int = 0
    _partners: tuple[str, ...] = ()

    async def __call__(self, federation: Federation, board: Board) -> None:
        """
        Raises:
            DeadlineError: the contracts, or the heal, had no effect.
        """
        peers = federation.peers
        near, far = [peers[0], peers[-1]], peers[1:-1]
        if self.split.trade:
            await self._agree(peers)
        await until(lambda: board.answered_since(0.0) or board.all_posted, LOOK_S)
        async with open_medusa(peers[-1].home.folder) as owner:

            async def moved() -> list[float]:
                market = await owner.market_status()
                return [] if market is None else [move.at for move in market.moves]

            if self.split.trade:
                async with while_moving("until the first task has moved"):
                    while not await moved():  # noqa: ASYNC110 - another process decides
                        await trio.sleep(LOOK_S)
            before = await moved()
            await self.links.split([near, far])
            self._note(board, f"split: {', '.join(peer.participant for peer in far)} cut off")
            await trio.sleep(self.split.seconds)
            during = await moved()
            given = sum(fold.given for fold in self.told.values())
            self._note(board, f"{given} tentative answers so far")
            await self.links.heal()
            healed = board.seconds()
            self._note(board, "healed")
            await until(lambda: board.answered_since(healed) or board.all_posted, LOOK_S)
            self._note(board, "answers come")
            self.moves, self.moves_while_split = len(during), len(set(during) - set(before))

    async def _agree(self, peers: list[Peer]) -> None:
        owner = peers[-1]
        for peer in peers[:-1]:
            await agree(
                owner,
                peer,
                *("contract", "propose", "--to", peer.participant, "--valid-for", "1d"),
                *("--min-price", "0.02", "--max-price", "0.2", "--they-run", "200"),
                *("--availability", f"{PATIENCE_S:g}s", "--json"),
            )

    async def conclude(self, federation: Federation) -> None:
        """Check that both sides of every contract get the same receipts."""
        if not self.split.trade:
            return
        owner, *partners = reversed(federation.peers)
        differ = ["none yet"]
        try:
            what = "until both sides have the same receipts"
            async with while_moving(what, lambda: "; ".join(differ)):
                while differ or not self.receipts:
                    differ, self.receipts = await _differences(owner, partners)
                    await trio.sleep(LOOK_S)
        except DeadlineError as error:
            self.faults.append(str(error))

    def _note(self, board: Board, text: str) -> None:
        self.log.append(f"{board.now:8.2f} {text}")


async def run_intrusion_split(options: Options, split: Split, board: Board) -> SplitResult:
    """`run_intrusion` with a split of its federation, and a subscriber that gets tentative answers
    and their corrections.

    Raises:
        as `run_intrusion`; UnavailableError: this machine has no network namespaces for us.
    """
    if options.stretch_s is None:
        options = replace(options, stretch_s=FIRST_S + split.seconds + BEHIND_S)
    owner = participant_name(options.peers - 1)
    configs = {owner: f"{TRADING}capacity_cores = {CAPACITY_CORES}\n"} if split.trade else {}
    options = replace(
        options,
        bound_s=split.bound_s,
        config=f"{CONFIG}\n{TRADING}" if split.trade else CONFIG,
        configs={name: f"{CONFIG}\n{text}" for name, text in configs.items()},
    )
    told: dict[str, Fold[Row]] = {
        name: Fold(Corrections.REVISIONS, partial(rows_of, answer=name), WINDOW_AND_GROUP)
        for name in COLUMNS
    }
    async with open_links(netns=split.netns) as links:
        splitter = Splitter(split, links, told)
        try:
            result = await run_intrusion(
                options, board, splitter, links=links, told=told, conclude=splitter.conclude
            )
        except Exception as error:
            error.add_note("\n".join(("--- split", *splitter.log)))
            raise
    faults = (*splitter.faults, *board.history.faults())
    plain = {**structs.asdict(result), "exact": result.exact and not faults}
    return SplitResult(
        **plain,
        split_seconds=split.seconds,
        bound_ms=1e3 * split.bound_s,
        netns=split.netns,
        tentative=sum(fold.given for fold in told.values()),
        revised=sum(fold.revised for fold in told.values()),
        moves=splitter.moves,
        moves_while_split=splitter.moves_while_split,
        receipts=splitter.receipts,
        faults=faults,
        history=tuple(splitter.log),
    )


async def _differences(owner: Peer, partners: list[Peer]) -> tuple[list[str], int]:
    """The differences between the two sides of each contract; and the number of receipts."""
    ours = await _balances(owner)
    found: list[str] = []
    for peer in partners:
        for contract, theirs in (await _balances(peer)).items():
            mine = ours.get(contract)
            if mine is None or (mine.spent, mine.receipts) != (theirs.earned, theirs.receipts):
                found.append(f"{contract[:8]} with {peer.participant}: {mine} and {theirs}")
            elif mine.disputes or theirs.disputes:
                found.append(f"{contract[:8]} with {peer.participant} is disputed")
    return found, sum(balance.receipts for balance in ours.values())


async def _balances(peer: Peer) -> dict[str, _Balance]:
    said = await run_command("contract", "balance", "--json", *home(peer), log=peer.log)
    decoded = msgspec.json.decode(said, type=_Balances)
    return {balance.contract: balance for balance in decoded.contracts}
