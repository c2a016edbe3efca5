"""`medusa-peer` whose tasks the reference interpreter computes: it starts no JVM, which takes ten
times the CPU time of a peer. It may be armed, and has other intervals, as `crashing_peer`."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Final

import crashing_peer

from medusa.overlay.events import Events

ROW_S: Final = "MEDUSA_TEST_ROW_S"
"""An environment variable: the CPU seconds that each row is reported to have taken."""


def main() -> None:
    # This module takes the place of the module that imports PySpark.
    name = "medusa.engine.spark.executor"
    sys.modules[name] = ModuleType(name)
    sys.modules[name].open_executor = open_executor  # type: ignore[attr-defined]
    crashing_peer.main()


def open_executor(
    _spark: object, _warm_up: Path, logs: Path, events: Events
) -> AbstractAsyncContextManager[object]:
    from medusa.engine.reference.executor import Costs, open_reference

    config = Costs(cpu_row_s=float(os.environ.get(ROW_S, "0")))
    return open_reference(config, logs, events)


if __name__ == "__main__":
    main()
