"""`medusa query explain`: the plan of a query of the catalog, or of a document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table
from rich.text import Text

from medusa.engine.language.check import MAX_BOXES, check_query
from medusa.engine.language.document import Document
from medusa.engine.language.folding import with_panes
from medusa.engine.objects.definitions import (
    QueryEntry,
    StreamDefinition,
    StreamEntry,
    check_not_late,
)
from medusa.engine.objects.query import Query, streams_read, streams_written
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.records.status import Snapshot
from medusa.engine.streams.revisions.columns import revisions_entry
from medusa.engine.tasks.explaining import ExplainedCall, ExplainedTask, Explanation, explain
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.plain import plain
from medusa.tools.client.at_prompt import ask
from medusa.tools.client.entries import entry_of
from medusa.tools.client.times import show_duration, show_time
from medusa.tools.commands.command_line import read_text, warn
from medusa.tools.commands.in_text import in_file
from medusa.tools.commands.medusa.reading_document import complete_document, entry_of_stream
from medusa.tools.commands.plain_tables import details_table

if TYPE_CHECKING:
    from medusa.tools.client.calls import ClientCalls


def is_document(what: str) -> bool:
    """Whether the argument is a file (or standard input), not the name of a query."""
    return what == "-" or what.endswith((".xml", ".sql")) or Path(what).is_file()


def explain_query(home: str | None, name: str) -> list[Explanation]:
    """The plan of a query that exists.

    Raises:
        NotFoundError: there is none of that name, or one of its inputs is gone.
    """

    async def look(client: ClientCalls) -> list[Explanation]:
        entry = entry_of(await client.lookup_object(name, "query"), "query", QueryEntry)
        inputs = await _inputs(client, entry.query, {})
        made = streams_written(entry.query)
        kept = tuple(stream for stream in entry.outputs if stream in made)
        network = Network(entry.query, inputs, kept, readers=entry.readers)
        return [_placed(explain(network, entry.since), await client.status())]

    return ask(home, look)


def _placed(explanation: Explanation, seen: Snapshot) -> Explanation:
    """The plan with the peers that compute the tasks now."""
    running = {
        task.name: (task.worker or peer.peer, task.state)
        for peer in seen.peers
        for task in peer.tasks
        if task.query == explanation.query and not task.owner
    }
    tasks = []
    for each in explanation.tasks:
        place, state = running.get(each.stream, ("", ""))
        tasks.append(msgspec.structs.replace(each, place=place, state=state))
    return msgspec.structs.replace(explanation, tasks=tuple(tasks))


def explain_document(home: str | None, file: str) -> list[Explanation]:
    """The plans of a document's queries, as the asked peer's participant would create them.

    Args:
        file: XML or SQL; - for standard input.

    Raises:
        InvalidInputError: names the file and the reason.
    """
    text = read_text(file)

    async def look(client: ClientCalls) -> list[Explanation]:
        document = await complete_document(client, text)
        if not document.queries:
            raise InvalidInputError("there is no query in it")
        for remark in document.remarks:
            warn(remark)
        known = _declared(document)
        found = []
        for query in document.queries:
            network = await _network(client, query, known)
            found.append(explain(network))
            known |= _outputs(network)
        return found

    try:
        return ask(home, look)
    except InvalidInputError as error:
        raise in_file(error, file, text) from None


def _declared(document: Document) -> dict[str, StreamEntry]:
    schemas = {schema.name: schema for schema in document.schemas}
    known = (stream for stream in document.streams if stream.schema in schemas)
    return {stream.name: StreamEntry(stream, schemas[stream.schema]) for stream in known}


async def _network(client: ClientCalls, query: Query, known: dict[str, StreamEntry]) -> Network:
    for name in streams_written(query):
        check_not_late(name)
    inputs = await _inputs(client, query, known)
    return Network(with_panes(query, MAX_BOXES), inputs)


def _outputs(network: Network) -> dict[str, StreamEntry]:
    """The entries of a query's streams, for later queries that read them."""
    query = network.query
    schemas = check_query(query, {name: e.schema for name, e in network.inputs.items()})
    return {
        name: StreamEntry(StreamDefinition(name, name, query=query.name), schemas[name])
        for name in streams_written(query)
    }


async def _inputs(
    client: ClientCalls, query: Query, known: dict[str, StreamEntry]
) -> dict[str, StreamEntry]:
    """The streams of others that a query reads, and their revisions."""
    found: dict[str, StreamEntry] = {}
    for name in sorted(streams_read(query) - streams_written(query)):
        entry = known.get(name)
        if entry is None:
            try:
                entry = await entry_of_stream(client, name)
            except NotFoundError:
                raise NotFoundError(f"{query.name} reads {name}, which does not exist") from None
        found[name] = entry
        if entry.is_revised:
            beside = revisions_entry(entry)
            found[beside.stream.name] = beside
    return found


def explanation_table(explanation: Explanation) -> Table:
    """The table of the tasks, then that of the windows."""
    explanation = plain(explanation)
    rows: list[tuple[str, str | Text]] = [("query", explanation.query)]
    if explanation.since > BEGINNING:
        after = f"{show_time(explanation.since)} ({explanation.since})"
        rows.append(("counts after", f"{after}; before, as it was before it was modified"))
    for task in explanation.tasks:
        rows += [
            ("", ""),
            ("task", task.stream),
            ("reads", Text("\n".join(task.reads))),
            ("computes", Text("\n".join(task.steps) or "their union")),
            ("keeps", Text("\n".join(kept(task)))),
            ("class", task.box_class),
        ]
        rows += [("key", ", ".join(task.key))] if task.key else []
        rows += [("computed", placed(task))] if task.place else []
        rows += [("calls", _call(each)) for each in task.calls]
    if explanation.windows:
        rows.append(("", ""))
    rows += [("window", f"{each.box}: {each.why}") for each in explanation.windows]
    return details_table(rows)


def kept(task: ExplainedTask) -> list[str]:
    """The tuples that a task keeps, in words for people."""
    told = f"{show_duration(task.keeps_s)} of what it reads" if task.keeps_s else ""
    tables = [f"the newest tuple of each key of {name}" for name in task.tables]
    own = ["the table that it makes"] if task.recalls else []
    return [each for each in (told, *tables, *own) if each] or ["nothing of what it reads"]


def placed(task: ExplainedTask) -> str:
    """The peer that computes a task, in words for people."""
    return f"at peer {task.place[:8]}, {task.state}"


def _call(call: ExplainedCall) -> str:
    sure = "deterministic" if call.deterministic else "arbitrary"
    return f"{call.function} of {call.source}, {sure}; runs at {call.runs}"
