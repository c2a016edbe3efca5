from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType

from engine.objects.definitions import Idle, StreamDefinition, check_stream
from overlay.errors import InvalidInputError


class Alteration(Struct, frozen=True, omit_defaults=True):
    """New values for some attributes of a `StreamDefinition`, as there; UNSET: unchanged."""

    readers: tuple[str, ...] | UnsetType = UNSET
    writers: tuple[str, ...] | UnsetType = UNSET
    declassify: tuple[str, ...] | UnsetType = UNSET
    slack_us: int | UnsetType = UNSET
    history_us: int | UnsetType = UNSET
    idle: Idle | UnsetType = UNSET
    max_ahead_us: int | UnsetType | None = UNSET

    @property
    def changes(self) -> dict[str, object]:
        """The values by attribute."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in fields if value is not UNSET}

    def in_words(self) -> str:
        """The changes, for people."""
        return ", ".join(
            f"{name.removesuffix('_us')} {value_in_words(name, value)}"
            for name, value in self.changes.items()
        )

    def then(self, later: Alteration) -> Alteration:
        """This alteration, followed by a later one."""
        return msgspec.structs.replace(self, **later.changes)


def value_in_words(name: str, value: object) -> str:
    """The value of a stream's attribute, for people."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nobody"
    if name.endswith("_us") and isinstance(value, int):
        return f"{value / 1e6:g} s"
    return "none" if value is None else str(value)


OF_OUTPUTS = frozenset({"readers", "history_us"})
"""Attributes of a query's output that can change: it takes no posts; its inputs have its time."""


def altered(stream: StreamDefinition, alteration: Alteration) -> StreamDefinition:
    """The definition of the next edition; the same one where nothing changes.

    Raises:
        InvalidInputError: an invalid definition, or an attribute that the stream does not have.
    """
    if stream.view is not None:
        raise InvalidInputError(
            f"{stream.name} is a view of {stream.view.stream}: it has what that one has"
        )
    others = sorted(alteration.changes.keys() - OF_OUTPUTS) if stream.query else []
    if others:
        raise InvalidInputError(
            f"{stream.name} is produced by {stream.query}: it has no "
            f"{others[0].removesuffix('_us')}; its readers and its history can be altered"
        )
    found = msgspec.structs.replace(stream, **alteration.changes)
    if found == stream:
        return stream
    check_stream(found)
    return msgspec.structs.replace(found, edition=stream.edition + 1)
