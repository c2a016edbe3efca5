"""`make protocol`: writes the page into the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from medusa.testnet.protocol.chapters import read_methods, write

PAGE: Final = Path("docs/protocol.md")

if __name__ == "__main__":
    PAGE.write_text(write(trio.run(read_methods)))
