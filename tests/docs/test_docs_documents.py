"""Every XML document of the documentation is one that a peer understands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from medusa.engine.language.modification import read_modification
from medusa.engine.reading import read_document
from medusa.tools.client.times import parse_time

REPOSITORY: Final = Path(__file__).parents[2]
EXAMPLES: Final = REPOSITORY / "examples"
BLOCK: Final = re.compile(r"^```xml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS: Final = [
    found[1]
    for page in (REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md")))
    for found in BLOCK.finditer(page.read_text())
]


def whole(text: str) -> str:
    """Complete the part of a document that a page shows: an element, or the beginning of a
    query."""
    if text.startswith("<query"):
        busy = (EXAMPLES / "busy.xml").read_text()
        return re.sub(r"<query [^>]*>", text.strip(), busy)
    roots = ("<medusa", "<borealis", "<?xml")
    return text if text.startswith(roots) else f"<medusa>{text}</medusa>"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_peer_reads_each_document_of_the_documentation(document: str) -> None:
    if "<modify" in document:
        assert read_modification(document, parse_time).changes
    else:
        read = read_document(whole(document), "medusa://mit.edu")
        assert read.streams or read.queries or read.views


def test_the_examples_are_what_the_pages_show() -> None:
    for name in ("busy.xml", "shorter.xml"):
        assert (EXAMPLES / name).read_text() in DOCUMENTS
