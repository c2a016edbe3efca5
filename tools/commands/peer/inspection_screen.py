"""The home of a stopped peer as text for people: a table for each kind of object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from medusa.engine.objects.schema import BEGINNING
from medusa.overlay.errors import printable
from medusa.tools.client.times import show_clock, show_time
from medusa.tools.commands.peer.contract_terms import show_money
from medusa.tools.commands.peer.inspection import Inspection, StreamLine
from medusa.tools.commands.plain_tables import details_table, lines_table
from medusa.tools.monitor.tables import SHORT_ID, add_row, size


def tables(seen: Inspection) -> Iterator[Table]:
    """A summary of the home, then a table for each kind."""
    yield _home(seen)
    if seen.streams:
        yield _streams(seen)
    if seen.queries:
        yield _queries(seen)
    if any(query.placements for query in seen.queries):
        yield _placements(seen)
    if seen.assignments:
        yield _assignments(seen)
    if seen.ballots:
        yield _ballots(seen)
    if seen.leases:
        yield _leases(seen)
    if seen.ledger is not None and seen.ledger.contracts:
        yield _ledger(seen)


def _home(seen: Inspection) -> Table:
    rows = [
        ("home", seen.home),
        ("participant", seen.participant or "not known"),
        ("peer", seen.peer or "not known"),
        ("federation", seen.federation or "none"),
        ("incarnation", str(seen.incarnation or "none")),
    ]
    if seen.restored:
        rows.append(("restored", "the next start asks other peers for newer tuples"))
    if seen.frozen:
        rows.append(("frozen", f"{', '.join(seen.frozen)}: a backup was cut off"))
    if seen.abstains:
        rows.append(("has no vote on", ", ".join(seen.abstains)))
    for kind, names in seen.catalog.published.items():
        rows.append((f"publishes {kind}", ", ".join(names)))
    records = [f"{count:,} {kind}" for kind, count in seen.catalog.records.items()]
    rows.append(("catalog records", ", ".join(records) or "none"))
    if seen.ledger is not None:
        fault = f"; cannot be believed: {seen.ledger.fault}" if seen.ledger.fault else ""
        rows.append(("ledger", f"{seen.ledger.entries:,} entries{fault}"))
    return details_table(rows)


def _streams(seen: Inspection) -> Table:
    table = lines_table("stream", "role", "log", "from", "boundary", "files", "rows", "bytes")
    table.add_column("journal", overflow="fold")
    for stream in seen.streams:
        name = f"{stream.name} ({stream.variant})" if stream.variant else stream.name
        for number, log in enumerate(stream.logs):
            first = number == 0
            lost = f" (lost: {len(log.lost)})" if log.lost else ""
            add_row(
                table,
                name if first else "",
                stream.role if first else "",
                log.name,
                show_time(log.start),
                show_time(log.boundary),
                f"{log.files:,}{lost}",
                f"{log.rows:,}",
                size(log.bytes),
                _journals(stream) if first else "",
            )
    return table


def _journals(stream: StreamLine) -> Text:
    return _lines(
        f"{each.name}: {each.entries:,} entries, {size(each.bytes)}"
        + (f", {each.torn:,} bytes torn" if each.torn else "")
        for each in stream.journals
    )


def _lines(texts: Iterable[str]) -> Text:
    return Text("\n".join(map(printable, texts)))


def _queries(seen: Inspection) -> Table:
    table = lines_table("query", "status", "term", "primary", "secondary", "makes")
    for query in seen.queries:
        add_row(
            table,
            query.name,
            query.status,
            str(query.term),
            _peer(query.primary, seen),
            _peer(query.secondary, seen),
            _lines(query.outputs),
        )
    return table


def _placements(seen: Inspection) -> Table:
    table = lines_table("task", "term", "worker", "since")
    for query in seen.queries:
        for each in query.placements:
            worker = _peer(each.worker or seen.peer, seen)
            since = "the beginning" if each.since == BEGINNING else show_time(each.since)
            add_row(table, each.task, str(each.term), worker, since)
    return table


def _assignments(seen: Inspection) -> Table:
    table = lines_table("runs for others", "term", "owner", "contract", "since")
    for each in seen.assignments:
        since = "prepares" if each.since is None else show_time(each.since)
        contract = each.contract[:SHORT_ID]
        add_row(table, each.task, str(each.term), _peer(each.owner, seen), contract, since)
    return table


def _ballots(seen: Inspection) -> Table:
    table = lines_table("votes on", "promised", "voted for", "term", "leader", "replicas", "voters")
    for each in seen.ballots:
        add_row(
            table,
            f"{each.stream} (deleted)" if each.deleted else each.stream,
            str(each.promised),
            _peer(each.voted, seen),
            str(each.term),
            _peer(each.leader, seen),
            ", ".join(_peer(peer, seen) for peer in each.replicas),
            ", ".join(_peer(peer, seen) for peer in each.voters),
        )
    return table


def _leases(seen: Inspection) -> Table:
    table = lines_table("leased stream", "subscriber", "boundary", "expires")
    for each in seen.leases:
        expires = show_clock(each.expires, day=True)
        add_row(table, each.stream, each.subscriber, show_time(each.boundary), expires)
    return table


def _ledger(seen: Inspection) -> Table:
    assert seen.ledger is not None
    table = lines_table("contract", "earned", "spent", "receipts", "disputes")
    for each in seen.ledger.contracts:
        add_row(
            table,
            each.contract[:SHORT_ID],
            show_money(each.earned),
            show_money(each.spent),
            str(each.receipts),
            str(each.disputes),
        )
    return table


def _peer(peer: str, seen: Inspection) -> str:
    return "this peer" if peer and peer == seen.peer else peer[:SHORT_ID]
