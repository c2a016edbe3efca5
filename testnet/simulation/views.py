"""The internal states of peers that run in this process, which clients do not see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from medusa.contracts.ledger import LEDGER_FILE, read_balances
from medusa.contracts.ledger_file import connect_for_reading
from medusa.contracts.receipts import (
    COUNTERSIGN_DOMAIN,
    RECEIPT_DOMAIN,
    Receipt,
    Settled,
    decode_entry,
    digest_of,
    read_receipt,
)
from medusa.engine.engine import Engine
from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.catalog_records import PRODUCER
from medusa.engine.objects.query import QueryStatus
from medusa.engine.objects.schema import BEGINNING
from medusa.overlay import statements
from medusa.overlay.certificates import peer_id_of
from medusa.overlay.errors import MedusaError, UntrustedError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import ObjectName
from medusa.overlay.signing import verify
from medusa.testnet.simulation.history import (
    AccountView,
    Books,
    Covered,
    PeerView,
    PrimaryView,
    Reached,
    WorkView,
)
from medusa.testnet.simulation.peer_checks import named
from medusa.tools.daemon.peer import Peer
from medusa.tools.home.folder import Home


def books_of(home: Home, peer: str, federation: str) -> Books:
    """The content of a peer's (hex) ledger, and its error."""
    path = home.folder / LEDGER_FILE
    if not path.exists():
        return Books()
    try:
        balances = read_balances(path, parse_peer_id(peer), federation)
        accounts, unsigned = _accounts(path)
    except MedusaError as error:
        return Books(fault=str(error))
    return Books(balances.contracts, accounts, balances.fault or unsigned)


def _accounts(path: Path) -> tuple[tuple[AccountView, ...], str]:
    """The receipts by account, and the first that is not signed by both."""
    with connect_for_reading(path) as connection:
        keys = dict(connection.execute("SELECT peer, key FROM keys").fetchall())
        entries = connection.execute("SELECT data FROM entries ORDER BY position").fetchall()
    found: dict[tuple[str, str, str], AccountView] = {}
    fault = ""
    for (data,) in entries:
        entry = decode_entry(data)
        if not isinstance(entry, Settled):
            continue
        receipt = read_receipt(entry.payload)
        fault = fault or _unsigned(entry, receipt, keys)
        account = receipt.contract, receipt.payer.hex(), receipt.payee.hex()
        before = found.get(account, AccountView(*account))
        found[account] = AccountView(
            *account,
            receipts=before.receipts + 1,
            tuples=before.tuples + receipt.rows,
            amount=before.amount + receipt.amount,
            head=digest_of(entry.payload).hex(),
        )
    return tuple(found[account] for account in sorted(found)), fault


def _unsigned(entry: Settled, receipt: Receipt, keys: Mapping[bytes, bytes]) -> str:
    """The party that has not signed the receipt; "": both have."""
    signed = (
        (receipt.payee, RECEIPT_DOMAIN, entry.payee_signature),
        (receipt.payer, COUNTERSIGN_DOMAIN, entry.payer_signature),
    )
    for peer, domain, signature in signed:
        key = Ed25519PublicKey.from_public_bytes(keys[peer])
        try:
            verify(key, domain, entry.payload, signature)
        except (UntrustedError, InvalidSignature):
            return f"receipt {receipt.number} is not signed by {peer.hex()[:8]}"
        if peer_id_of(key) != peer:
            return f"receipt {receipt.number}: the key kept of {peer.hex()[:8]} is another's"
    return ""


def view_of(name: str, life: int, peer: Peer, now: float) -> PeerView:
    """A peer's present beliefs about itself and the others. now: seconds since the start."""
    engine = peer.engine
    overlay = engine.overlay
    others = [record.peer_id for record in overlay.peers.all()]
    return PeerView(
        now,
        name,
        overlay.identity.peer_id.hex(),
        overlay.identity.participant,
        life=life,
        statements=tuple(
            sorted(statements.digest_of(s).hex() for s in overlay.membership.statements())
        ),
        members=tuple(sorted(overlay.membership.participants())),
        primaries=_primaries(engine),
        works=tuple(
            WorkView(each.task.name, each.stored.assignment.term_number, each.stored.owner)
            for each in engine.assignments.all()
            if each.stored.since is not None
        ),
        gives=tuple(
            WorkView(task.name, task.current.term.number, task.current.term.holder.hex())
            for task in engine.queries.tasks()
            if task.current.term.holder
        ),
        health={other.hex(): overlay.gossip.health(other).value for other in others},
        incarnation=overlay.gossip.incarnation,
    )


def _primaries(engine: Engine) -> tuple[PrimaryView, ...]:
    queries = (
        PrimaryView(name, running.stored.term.number)
        for name, running in sorted(engine.queries._queries.items())
        if running.stored.entry.status is QueryStatus.RUNNING
    )
    voters = {state.name: engine.leaders.get(state.name) for state in engine.store.all()}
    leaders = (
        PrimaryView(name, voter.election.ballot.number)
        for name, voter in sorted(voters.items())
        if voter is not None and voter.is_leader
    )
    return (*queries, *leaders)


async def producers_of(peer: Peer, streams: Iterable[str]) -> Mapping[str, str]:
    """The producer of each stream, as the peer's catalog names it: "peer term worker"; or the
    reason why it is not known."""
    found: dict[str, str] = {}
    for stream in streams:
        try:
            told = await peer.engine.catalog.lookup_all(PRODUCER, ObjectName.parse(stream))
        except MedusaError as error:
            found[stream] = f"{error.code}: {error}"
            continue
        newest = max(told, key=lambda each: (each.value.term_number, each.publisher), default=None)
        found[stream] = (
            "nobody"
            if newest is None
            else named(newest.publisher.hex(), newest.value.term_number, newest.value.worker)
        )
    return found


def covered(
    peers: Mapping[str, Peer], lives: Mapping[str, int], look: int, now: float
) -> Iterator[Covered]:
    """The queries with a passive standby and precise recovery that has caught up: from now on,
    consumers may have only those results that the secondary has. lives: the number of the present
    start of each peer, by name."""
    worked = {each.task.name for peer in peers.values() for each in peer.engine.assignments.all()}
    for (name, primary), (other, secondary) in permutations(peers.items(), 2):
        engine = primary.engine
        for running in engine.queries.replicated():
            term, wanted = running.stored.term, running.stored.availability
            asked = (wanted.mode, wanted.recovery) == (Mode.PASSIVE_STANDBY, Recovery.PRECISE)
            standby = secondary.engine.standbys.get(running.name)
            kept = engine.primaries.secondary_state(running.name)
            if not (asked and kept.caught_up and standby is not None):
                continue
            if (standby.term, term.secondary) != (term, secondary.engine.overlay.identity.peer_id):
                continue
            if sum(running.name in _replicated(peer) for peer in peers.values()) > 1:
                continue  # a superseded primary that does not know it yet waits for no secondary
            # a worker sends its results to consumers itself, and waits for no secondary
            here = [task for task in running.tasks if task.name not in worked]
            works = [task.current.term.number for task in here]
            yield Covered(
                now,
                look,
                running.name,
                f"{term.number} {name} {lives[name]} {other} {lives[other]} {kept.goal} {works}",
                {task.name: task.boundary for task in here},
                {task.name: standby.boundaries[task.name] for task in here},
            )


def reached(peer: Peer, name: str, life: int, look: int, now: float) -> Iterator[Reached]:
    """The running tasks of a peer that have a bound."""
    engine = peer.engine
    placed = [(task.name, task.fork) for task in engine.queries.tasks() if task.running]
    assigned = [  # a task that the peer takes over meanwhile is in both lists
        (f"{each.user} for {each.stored.owner[:8]}", each.copy.fork)
        for each in engine.assignments.all()
        if each.copy is not None and each.copy.ready and each.work.going_on
    ]
    for task, fork in (*placed, *assigned):
        if fork is not None and fork.given > BEGINNING:
            yield Reached(now, look, name, life, task, fork.bound_s, fork.came, fork.given)


def _replicated(peer: Peer) -> set[str]:
    return {running.name for running in peer.engine.queries.replicated()}


def _id(peer: Peer) -> str:
    return peer.engine.overlay.identity.peer_id.hex()
