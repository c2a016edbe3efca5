"""`make protocol`: writes the page and its lock into the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from medusa.testnet.protocol.chapters import read_methods, write
from medusa.testnet.protocol.lock import write_lock

PAGE: Final = Path("docs/generated/protocol.md")
LOCK: Final = Path("docs/protocol.lock")

if __name__ == "__main__":
    methods = trio.run(read_methods)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(write(methods))
    LOCK.write_text(write_lock(methods))
