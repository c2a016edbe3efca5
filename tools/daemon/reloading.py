"""Reads medusa.toml again on SIGHUP: live settings take effect, others wait for a restart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import trio

from medusa.engine.engine import Engine
from medusa.overlay.errors import MedusaError
from medusa.overlay.events import Events
from medusa.tools.home.config import Config

Take = Callable[[Config], None]
"""A function that puts new settings in force."""


def live_settings(engine: Engine) -> dict[str, Take]:
    """Settings that take a new value while the peer runs, by `section.key`. Add further ones here.
    Tokens, certificates and membership are no settings: they are read again by themselves."""
    store, mover = engine.store, engine.mover
    return {
        "engine.disk_bytes": lambda new: store.quota.allow(new.engine.disk_bytes),
        "engine.foreign_hold_s": lambda new: store.maintenance.be_patient(
            new.engine.foreign_hold_s
        ),
        "functions.allowed": lambda new: engine.functions.allow(new.functions.allowed),
        "engine.patience_s": lambda new: mover.home.be_patient(new.engine.patience_s),
    }


class Reloading:
    """Compares the settings in medusa.toml with those in force.

    Args:
        load: reads them. live: the functions that put a setting in force; the others wait for a
            restart.
    """

    def __init__(
        self, config: Config, load: Callable[[], Config], live: Mapping[str, Take], events: Events
    ) -> None:
        self._now = _values(config)
        self._load = load
        self._live = live
        self._events = events

    async def reload(self) -> None:
        """Read the settings, put the live ones in force, and note the changes and those that wait
        for a restart. An invalid file changes nothing."""
        try:
            config = await trio.to_thread.run_sync(self._load)
        except (MedusaError, OSError) as error:
            self._events.note("error", f"keeps the settings as they are: {error}")
            return
        changed = {name: new for name, new in _values(config).items() if new != self._now[name]}
        for name, new in changed.items():
            if name in self._live:
                self._live[name](config)
                self._events.note("info", f"set {name} to {new!r}, from {self._now[name]!r}")
                self._now[name] = new
        waiting = sorted(set(changed) - set(self._live))
        if waiting:
            self._events.note(
                "warning", f"waits for a restart: medusa.toml has changed {', '.join(waiting)}"
            )
        if not changed:
            self._events.note("info", "read medusa.toml again: no setting has changed")


def _values(config: Config) -> dict[str, Any]:
    """Every setting, by `section.key`."""

    def each() -> Iterator[tuple[str, Any]]:
        for section in dataclasses.fields(config):
            values = getattr(config, section.name)
            for key in dataclasses.fields(values):
                yield f"{section.name}.{key.name}", getattr(values, key.name)

    return dict(each())
