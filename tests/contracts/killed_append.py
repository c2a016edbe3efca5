"""A process that appends a receipt to a ledger, and kills itself at a statement or on return."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from contracts_ledgers import next_receipt, opened
from contracts_settling import deal_of


def main(path: Path, statement: str) -> None:
    def die(sql: str) -> None:
        if sql.startswith(statement):
            os.kill(os.getpid(), signal.SIGKILL)

    with opened(path) as ledger:
        entry = next_receipt(ledger, deal_of())
        ledger._connection.set_trace_callback(die)
        ledger.append(entry)
        ledger._connection.set_trace_callback(None)
    print("appended", flush=True)
    if statement == "return":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
