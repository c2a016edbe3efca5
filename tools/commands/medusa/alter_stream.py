"""`medusa stream alter`: reads the changes from the options, and sends them to the peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from medusa.engine.language.xml.medusa import max_ahead, members
from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import Idle
from medusa.engine.operators.shared.parameters import seconds_to_us
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.at_prompt import ask
from medusa.tools.client.calls import ClientCalls
from medusa.tools.commands.command_line import warn


def _idle(text: str) -> Idle:
    if text not in set(Idle):
        raise InvalidInputError(f"{text[:40]!a} is not {' or '.join(Idle)}")
    return Idle(text)


ATTRIBUTES: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "readers": ("readers", members),
    "writers": ("writers", members),
    "declassify": ("declassify", members),
    "slack": ("slack_us", seconds_to_us),
    "lateness": ("lateness_us", seconds_to_us),
    "history": ("history_us", seconds_to_us),
    "idle": ("idle", _idle),
    "idle_timeout": ("idle_timeout_us", seconds_to_us),
    "max_ahead": ("max_ahead_us", max_ahead),
}
"""For each attribute's name in XML: the attribute of the definition, and the parser of its text."""


def read(given: Mapping[str, str]) -> Alteration:
    """Parse the changes.

    Args:
        given: texts by name, as they stand in XML.

    Raises:
        InvalidInputError: a change cannot be read, or there is no change.
    """
    if not given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in ATTRIBUTES)
        raise InvalidInputError(f"nothing is to be altered: give one of {options}")
    changes: dict[str, Any] = {}
    for name, text in given.items():
        attribute, read_text = ATTRIBUTES[name]
        try:
            changes[attribute] = read_text(text)
        except InvalidInputError as error:
            raise InvalidInputError(f"--{name.replace('_', '-')}: {error}") from None
    return Alteration(**changes)


def alter(home: str | None, name: str, alteration: Alteration) -> None:
    async def change(client: ClientCalls) -> None:
        await client.alter_stream(name, alteration)
        for remark in client.remarks:
            warn(remark)

    ask(home, change)
