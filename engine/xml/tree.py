"""Parse untrusted XML into a small tree with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from xml.sax import SAXException, SAXParseException  # the parser itself is defusedxml's
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError

MAX_TEXT: Final = 2**20
"""Characters of a document: a message carries no more (and a query of 256 boxes takes a tenth)."""

MAX_DEPTH: Final = 8
"""Elements within each other; the dialects need four."""

_BOREALIS_DTD: Final = re.compile(
    r"""\s*(?:<\?xml[^<>]{0,200}\?>\s*)?(?:<!--(?:(?!--).)*-->\s*)*"""
    r"""(<!DOCTYPE\s+(?:borealis|deploy)\s+SYSTEM\s+(?:"[^"<>&%]{1,1000}"|'[^'<>&%]{1,1000}')\s*>)""",
    re.DOTALL,
)
"""The line with which Borealis' own files begin. It is removed before the text is parsed, so that
no parser ever sees it; a document type with declarations of its own is refused as any other."""


@dataclass
class Node:
    """One element."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Node] = field(default_factory=list)

    def checked(self, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
        """The element's attributes, checked against these lists.

        Raises:
            InvalidInputError: one is missing or unknown.
        """
        for name in required:
            if name not in self.attributes:
                raise self.error(f'attribute {name}="..." is missing')
        for name in self.attributes:
            if name not in (*required, *optional):
                known = alternatives(name, (*required, *optional))
                raise self.error(f"unknown attribute {name[:64]!a}; {known}")
        return self.attributes

    def childless(self) -> None:
        if self.children:
            raise self.children[0].error(f"not expected within <{self.tag[:64]}>")

    def error(self, reason: str) -> InvalidInputError:
        return InvalidInputError(f"line {self.line}: <{self.tag[:64]}>: {reason}")

    @contextmanager
    def about(self) -> Iterator[None]:
        """Add this element's line to errors of the block that name no line."""
        try:
            yield
        except InvalidInputError as error:
            if str(error).startswith("line "):
                raise
            raise self.error(str(error)) from None


def parse_xml(text: str) -> Node:
    """Parse a document and give its root element.

    Raises:
        InvalidInputError: too long, not well-formed, with a DTD, entities or text between elements;
            names line and reason.
    """
    from defusedxml import DefusedXmlException  # imported late: most commands read no XML
    from defusedxml.sax import make_parser

    if len(text) > MAX_TEXT:
        raise InvalidInputError(
            f"line 1: the document has {len(text)} characters, at most {MAX_TEXT} are allowed"
        )
    text = _without_dtd(text)
    parser = make_parser()
    builder = _Builder(parser)
    parser.forbid_dtd = True
    parser.setContentHandler(builder)
    try:
        parser.feed(text)
        parser.close()
    except SAXParseException as error:
        reason = f"not well-formed XML: {error.getMessage()}{_mend(text, error)}"
        raise InvalidInputError(f"line {error.getLineNumber()}: {reason}") from None
    except (DefusedXmlException, SAXException):
        reason = "document types and entities are not allowed"
        raise InvalidInputError(f"line {parser.getLineNumber()}: {reason}") from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise InvalidInputError(f"line {line}: a character that is no text (surrogate)") from None
    if builder.root is None:
        raise InvalidInputError("line 1: the document is empty")
    return builder.root


def _without_dtd(text: str) -> str:
    """The text with blanks in place of Borealis' DTD, so that lines and columns stay."""
    found = _BOREALIS_DTD.match(text)
    if found is None:
        return text
    blank = re.sub(r"[^\n]", " ", found[1])
    return f"{text[: found.start(1)]}{blank}{text[found.end(1) :]}"


def _mend(text: str, error: SAXParseException) -> str:
    """The correction, where a value has a bare `&` or `<`."""
    lines = text.split("\n")
    number, column = error.getLineNumber() or 1, error.getColumnNumber() or 0
    line = lines[number - 1] if number <= len(lines) else ""
    near, invalid = line[max(0, column - 1) : column + 1], "invalid token" in error.getMessage()
    if "entity" in error.getMessage() or (invalid and "&" in near):
        return ": within a value, `&` is written &amp;"
    return ": within a value, `<` is written &lt;" if invalid and "<" in near else ""


class _Builder(ContentHandler):
    def __init__(self, place: Locator) -> None:
        super().__init__()
        self.root: Node | None = None
        self._open: list[Node] = []
        self._place = place

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        node = Node(name, dict(attrs.items()), self._line())
        if len(self._open) >= MAX_DEPTH:
            raise node.error(f"more than {MAX_DEPTH} elements within each other")
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node
        self._open.append(node)

    def endElement(self, name: str) -> None:
        self._open.pop()

    def characters(self, content: str) -> None:
        if content.strip():
            shown = content.strip()[:40]
            raise InvalidInputError(
                f"line {self._line()}: text {shown!a} between elements; values go in attributes"
            )

    def processingInstruction(self, target: str, data: str) -> None:
        raise InvalidInputError(f"line {self._line()}: processing instructions are not allowed")

    def _line(self) -> int:
        return self._place.getLineNumber() or 1
