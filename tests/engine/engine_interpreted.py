"""Tasks computed by the reference interpreter where a whole cluster of peers runs in one process:
Spark allows one session a process. Everything around the job is real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from medusa.engine.reference.executor import Costs, open_reference
from medusa.overlay.events import Events


def interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every engine that is opened from now on compute with the interpreter."""

    def open_executor(_spark: object, _warm_up: Path, logs: Path, events: Events) -> Any:
        return open_reference(Costs(), logs, events)

    monkeypatch.setattr("medusa.engine.spark.executor.open_executor", open_executor)
