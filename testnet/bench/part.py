"""`python -m testnet.bench.part NAME`: one part of the bench, a line of JSON for each figure."""

from __future__ import annotations

import importlib
import sys
import traceback

import msgspec


def main(name: str) -> int:
    """Measure it; gives the exit code. If it fails, the error is its last figure."""
    lines, sys.stdout = sys.stdout, sys.stderr  # nothing else may come between them
    try:
        for entry in importlib.import_module(f"testnet.bench.{name}").measure():
            print(msgspec.json.encode(entry).decode(), file=lines, flush=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        traceback.print_exc()
        failed = {"name": name, "failed": f"{type(error).__name__}: {error}"}
        print(msgspec.json.encode(failed).decode(), file=lines, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
