"""`medusa query modify`: reads a modification from options or a document, and prints the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from medusa.engine.language.modification import (
    BoxChange,
    Modification,
    Modified,
    ParameterChange,
    changes_to,
    differences,
    read_modification,
)
from medusa.engine.language.sql.clauses import clause_of
from medusa.engine.objects.definitions import QueryEntry, StreamDefinition
from medusa.engine.objects.schema import BEGINNING
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.at_prompt import ask
from medusa.tools.client.entries import entry_of
from medusa.tools.client.times import parse_time, show_time
from medusa.tools.commands.in_text import in_file
from medusa.tools.commands.medusa.alter_stream import ATTRIBUTES
from medusa.tools.commands.medusa.reading_document import complete_document, entry_of_stream

if TYPE_CHECKING:
    from medusa.tools.client.calls import ClientCalls


def modify(home: str | None, query: str, wish: Modification, *, alone: bool) -> Modified:
    return ask(home, lambda client: client.modify_query(query, wish.changes, wish.at, alone=alone))


def in_words(modified: Modified, changes: Sequence[ParameterChange] | None = None) -> str:
    """The outcome in words. changes: those of an edited script; None: the user named them one by
    one."""
    if changes is not None:
        if not changes:
            return f"{modified.query}: it is what the script says; nothing changes"
        told = [each.in_words() for each in changes]
        return "\n".join([*told, in_words(modified)])
    if modified.since == BEGINNING:
        return f"{modified.query}: modified; counts from the beginning"
    counts = f"{show_time(modified.since)} ({modified.since})"
    return f"{modified.query}: modified; counts after {counts}"


def modify_to(
    home: str | None, query: str, file: str, text: str, at: str | None, *, alone: bool
) -> tuple[Modified, tuple[ParameterChange, ...]]:
    """Modify a query so that it is that of an edited script; returns the changed parameters.

    Args:
        file: its name. text: SQL, or XML, that defines the query.

    Raises:
        InvalidInputError: the script is wrong, or differs by more than a modification; the message
            names the file.
    """
    boundary = None if at is None else parse_time(at)

    async def change(client: ClientCalls) -> tuple[Modified, tuple[ParameterChange, ...]]:
        entry = entry_of(await client.lookup_object(query, "query"), "query", QueryEntry)
        document = await complete_document(client, text)
        made = {each.name: each for each in document.queries}
        edited = made.get(entry.query.name)
        if edited is None:
            known = ", ".join(made)[:200] or "no query"
            raise InvalidInputError(f"it defines {known}, not {entry.query.name}")
        await _check_streams(client, document.streams)
        named = () if text.lstrip().startswith("<") else (clause_of,)
        differing = differences(entry.query, edited, *named)
        if not differing:
            return Modified(entry.query.name, entry.since), ()
        changes = changes_to(edited, differing)
        return await client.modify_query(query, changes, boundary, alone=alone), differing

    try:
        return ask(home, change)
    except InvalidInputError as error:
        raise in_file(error, file, text) from None


async def _check_streams(client: ClientCalls, streams: Sequence[StreamDefinition]) -> None:
    """
    Raises:
        InvalidInputError: the script defines a source stream otherwise than it is: a modification
            changes boxes only. NotFoundError: there is no such stream.
    """
    for stream in streams:
        there, unsaid = (
            await entry_of_stream(client, stream.name),
            StreamDefinition(stream.name, ""),
        )
        differing = [
            name
            for name, (attribute, _) in ATTRIBUTES.items()
            if getattr(stream, attribute)
            not in (getattr(there.stream, attribute), getattr(unsaid, attribute))
        ]
        if differing and not there.stream.query:
            options = " ".join(f"--{name.replace('_', '-')} ..." for name in differing)
            raise InvalidInputError(
                f"{stream.name} has another {', '.join(differing)} than the script says: `medusa "
                f"stream alter {stream.name} {options}` changes that, and nothing is modified"
            )


def is_script(text: str) -> bool:
    """Whether a text defines queries, in SQL or XML; a document of <modify> elements does not."""
    begins = text.lstrip()[:1]
    return begins not in {"", "<"} or ("<query" in text and "<modify" not in text)


def as_data(modified: Modified, changes: Sequence[ParameterChange]) -> dict[str, object]:
    """The answer for programs."""
    return {
        "query": modified.query,
        "since": modified.since,
        "changes": msgspec.to_builtins(changes),
    }


def from_document(file: str, text: str, at: str | None) -> Modification:
    """The modification in a document.

    Args:
        file: the name of the file. text: XML.
        at: overrides the document's.

    Raises:
        InvalidInputError: names file, line and reason.
    """
    try:
        wish = read_modification(text, parse_time)
    except InvalidInputError as error:
        raise type(error)(f"{file}: {error}") from None
    return wish if at is None else Modification(wish.changes, parse_time(at))


def from_prompt(box: str, settings: Sequence[str], at: str | None) -> Modification:
    """The modification in the command's options.

    Args:
        settings: name=value.

    Raises:
        InvalidInputError: a setting is malformed.
    """
    parameters = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise InvalidInputError(
                f"--set {setting[:80]!a}: expected NAME=VALUE, like expression.0='number > 7'"
            )
        parameters.append((name.strip(), value))
    change = BoxChange(box, tuple(parameters))
    return Modification((change,), None if at is None else parse_time(at))
