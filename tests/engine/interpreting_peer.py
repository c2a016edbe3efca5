"""`medusa-peer` whose tasks the reference interpreter computes: it starts no JVM, which takes ten
times the CPU time of a peer. It may be armed, as `crashing_peer`."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType

import crashing_peer

from overlay.events import Events


def main() -> None:
    # In place of the module that imports PySpark.
    name = "engine.spark.executor"
    sys.modules[name] = ModuleType(name)
    sys.modules[name].open_executor = open_executor  # type: ignore[attr-defined]
    crashing_peer.main()


def open_executor(
    _spark: object, logs: Path, events: Events
) -> AbstractAsyncContextManager[object]:
    from testnet.simulation.interpreter import InterpreterConfig, open_interpreter

    return open_interpreter(InterpreterConfig(), logs, events)


if __name__ == "__main__":
    main()
