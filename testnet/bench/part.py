"""`python -m medusa.testnet.bench.part NAME`: one part of the bench, a line of JSON for each
figure."""

from __future__ import annotations

import importlib
import sys
import traceback

import msgspec


def main(name: str) -> int:
    """Measure a part; returns the exit code. If it fails, its last line is the error."""
    lines, sys.stdout = sys.stdout, sys.stderr  # standard output is only for the figures
    try:
        for entry in importlib.import_module(f"medusa.testnet.bench.{name}").measure():
            print(msgspec.json.encode(entry).decode(), file=lines, flush=True)
    except Exception as error:  # noqa: BLE001 - any error is reported
        traceback.print_exc()
        failed = {"name": name, "failed": f"{type(error).__name__}: {error}"}
        print(msgspec.json.encode(failed).decode(), file=lines, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
