"""`make docs`: writes the generated pages, the tables of functions, and the lock of the limits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from medusa.testnet.pages import functions, limits, scopes

LOCK: Final = Path("docs/security/limits.lock")
FOLDER: Final = Path("docs/generated")
FUNCTIONS: Final = Path("docs/reference/functions.md")

if __name__ == "__main__":
    found = limits.chosen(limits.read_lock(LOCK.read_text()), limits.places(Path()))
    FOLDER.mkdir(exist_ok=True)
    LOCK.write_text(limits.lock(found))
    (FOLDER / "limits.md").write_text(limits.page(found))
    (FOLDER / "scopes.md").write_text(scopes.page())
    FUNCTIONS.write_text(functions.page(FUNCTIONS.read_text()))
