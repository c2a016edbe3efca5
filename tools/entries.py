"""What a peer says of an object, decoded."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from engine.messages import ObjectDescription
from overlay.errors import DecodeError, InvalidInputError, NotFoundError

T = TypeVar("T")


def entry_of(description: ObjectDescription, kind: str, type_: type[T]) -> T:
    """The entry of that kind (its label in the catalog) under the name that was looked up.

    Raises:
        NotFoundError: nothing has that name. InvalidInputError: what has is of another kind.
        DecodeError: the peer's answer makes no sense.
    """
    try:
        text = description.entries[kind]
    except KeyError:
        kinds = ", ".join(sorted(description.entries)) or "nothing"
        if not description.entries:
            raise NotFoundError(f"no {kind} {description.name}") from None
        raise InvalidInputError(f"{description.name} is no {kind} but: {kinds}") from None
    try:
        return msgspec.json.decode(text, type=type_)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"{description.name}: the peer's description: {error}") from None
