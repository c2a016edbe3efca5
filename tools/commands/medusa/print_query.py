"""`medusa query print`: a query of the catalog, or a document, as SQL, XML or Python."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from medusa.engine.language.document import Document
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.at_prompt import ask
from medusa.tools.client.entries import entry_of
from medusa.tools.commands.command_line import read_text
from medusa.tools.commands.in_text import in_file
from medusa.tools.commands.medusa.reading_document import complete_document, inputs_of_document

if TYPE_CHECKING:
    from medusa.tools.client.calls import ClientCalls


class Language(StrEnum):
    """The languages of networks."""

    SQL = "sql"
    XML = "xml"
    PYTHON = "python"


def print_query(home: str | None, name: str, language: Language) -> str:
    """A query that exists, as it was created or modified last.

    Raises:
        NotFoundError: no query has that name, or one of its inputs no longer exists.
        InvalidInputError: it has no form in the language.
    """

    async def look(client: ClientCalls) -> str:
        entry = entry_of(await client.lookup_object(name, "query"), "query", QueryEntry)
        query = msgspec.structs.replace(entry.query, panes=())
        return await _printed(client, Document(queries=(query,)), language)

    return ask(home, look)


def print_document(home: str | None, file: str, language: Language) -> str:
    """All definitions of a document.

    Args:
        file: XML or SQL; - for standard input.

    Raises:
        InvalidInputError: names the file and the reason.
    """
    text = read_text(file)

    async def look(client: ClientCalls) -> str:
        return await _printed(client, await complete_document(client, text), language)

    try:
        return ask(home, look)
    except InvalidInputError as error:
        raise in_file(error, file, text) from None


async def _printed(client: ClientCalls, document: Document, language: Language) -> str:
    if language is not Language.SQL:
        return as_text(document, language, {}, frozenset())
    return as_text(document, language, *await inputs_of_document(client, document))


def as_text(
    document: Document, language: Language, inputs: dict[str, Schema], tables: frozenset[str]
) -> str:
    """The document in a language.

    Args:
        inputs: for SQL: the schemas of the streams that it reads and does not define.
        tables: the tables among these streams.

    Raises:
        InvalidInputError: it has no form in the language.
    """
    nothing_else = Document(queries=document.queries, explain=document.explain)
    alone = document == nothing_else and len(document.queries) == 1
    match language:
        case Language.SQL:
            from medusa.engine.language.sql.printing import document_as_sql  # sqlglot comes with it

            return document_as_sql(document, inputs, tables)
        case Language.XML:
            from medusa.engine.language.xml.writing import document_as_xml, query_as_xml

            return query_as_xml(document.queries[0]) if alone else document_as_xml(document)
        case Language.PYTHON:
            from medusa.engine.language.python.printing import document_as_python, query_as_python

            return query_as_python(document.queries[0]) if alone else document_as_python(document)
