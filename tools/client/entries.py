"""Decodes a peer's description of an object in the catalog."""

from __future__ import annotations

from typing import TypeVar

from medusa.engine.api.messages import ObjectDescription
from medusa.overlay.encoding import decode_json
from medusa.overlay.errors import (
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.names import ObjectName
from medusa.overlay.rpc import MAX_STRUCT_BYTES

T = TypeVar("T")


def entry_of(description: ObjectDescription, kind: str, type_: type[T]) -> T:
    """The entry of that kind (its label in the catalog) under the name that was looked up.

    Raises:
        NotFoundError: nothing has that name.
        InvalidInputError: the object of that name is of another kind.
        NotAuthorisedError: we may not read the object. UnavailableError: it is not known whether
            there is an object of that kind.
        DecodeError: the peer's answer is malformed.
    """
    try:
        text = description.entries[kind]
    except KeyError:
        if kind in description.private:
            raise NotAuthorisedError(hidden(description.name)) from None
        if kind in description.unavailable:
            raise UnavailableError(description.unavailable[kind]) from None
        kinds = ", ".join(sorted(description.entries)) or "nothing"
        if not description.entries:
            raise NotFoundError(f"no {kind} {description.name}") from None
        raise InvalidInputError(f"{description.name} is no {kind} but: {kinds}") from None
    return decode_entry(description.name, text, type_)


def hidden(name: str) -> str:
    """The text of the error for an object that we may not read."""
    owner = ObjectName.parse(name).participant
    return (
        f"{name} is of {owner}, which does not let you read it or post to it: {owner} can name "
        f"you (`medusa stream alter {name} --readers` or `--writers`), or agree to a content "
        "contract; if it is made of other streams, their owners must let you read those, and "
        f"{owner} knows them"
    )


def decode_entry(name: str, text: str, type_: type[T]) -> T:
    """Decode an entry in JSON from a peer's answer.

    Raises:
        DecodeError: it is malformed.
    """
    what = f"{name}: the peer's description"
    return decode_json(text.encode(), type_, limit=MAX_STRUCT_BYTES, what=what)
