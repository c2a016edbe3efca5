"""Reads a text in any language of queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from medusa.engine.language.document import Document, Draft
from medusa.engine.objects.schema import Schema


def read_draft(text: str, base: str | None = None) -> Draft:
    """Read XML, in either dialect, or SQL.

    Args:
        base: `medusa://participant/`, the prefix for names without a participant; None: every name
            must have one. Raises: InvalidInputError: the text is neither; the message names the
            place and the reason.
    """
    if text.lstrip().startswith("<"):
        return XmlDraft(text, base)
    from medusa.engine.language.sql.script import (
        Script,  # sqlglot is imported with the first script
    )

    return Script(text, base)


class XmlDraft:
    """An XML document; to read it needs no schemas that others defined."""

    reads: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()

    def __init__(self, text: str, base: str | None) -> None:
        self._document = read_document(text, base)

    def complete(
        self,
        streams: Mapping[str, Schema],
        schemas: Mapping[str, Schema],
        tables: Collection[str] = (),
    ) -> Document:
        """See `medusa.engine.language.document.Draft`."""
        return self._document


def read_document(text: str, base: str | None = None) -> Document:
    """The schemas, streams, queries and views of an XML document.

    Args:
        text: the document in either dialect; its root element tells which. base:
            `medusa://participant/`, the prefix for names without a scheme; None: every name must
            have one.

    Raises:
        InvalidInputError: names the line and the reason.
    """
    # imported with the first such text
    from medusa.engine.borealis.documents import read_borealis, read_deploy
    from medusa.engine.language.xml.documents import qualifier, read_medusa, refuse_repeated
    from medusa.engine.xml.tree import parse_xml

    root = parse_xml(text)
    qualify = qualifier(base)
    match root.tag:
        case "borealis":
            document = read_borealis(root, qualify)
        case "deploy":
            document = read_deploy(root)
        case _:
            document = read_medusa(root, qualify)
    refuse_repeated(root, document)
    return document
