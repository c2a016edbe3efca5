"""`medusa query modify`: reads a modification from options or a document, and prints the answer."""

from __future__ import annotations

from collections.abc import Sequence

from engine.language.modification import BoxChange, Modification, Modified, read_modification
from engine.objects.schema import BEGINNING
from overlay.errors import InvalidInputError
from tools.client.at_prompt import ask
from tools.client.times import parse_time, show_time
from tools.commands.command_line import read_text


def modify(home: str | None, query: str, wish: Modification, *, alone: bool) -> Modified:
    return ask(home, lambda client: client.modify_query(query, wish.changes, wish.at, alone=alone))


def in_words(modified: Modified) -> str:
    if modified.since == BEGINNING:
        return f"{modified.query}: modified; counts from the beginning"
    counts = f"{show_time(modified.since)} ({modified.since})"
    return f"{modified.query}: modified; counts after {counts}"


def from_document(file: str, at: str | None) -> Modification:
    """The modification in a document.

    Args:
        file: XML, - for standard input.
        at: overrides the document's.

    Raises:
        InvalidInputError: names file, line and reason.
    """
    text = read_text(file)
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
