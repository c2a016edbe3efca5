"""`make changelog`: shows the items of this folder; with a version, moves them to CHANGELOG.md."""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path
from typing import Final

ITEM: Final = re.compile(r"\* \S.*(\n  \S.*){0,4}\n")
"""One item of a list, of at most five lines."""

VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


def items(folder: Path) -> dict[Path, str]:
    """The files of the folder with their items, by name.

    Raises:
        SystemExit: a file is no item.
    """
    found = {path: path.read_text() for path in sorted(folder.glob("*.md"))}
    found.pop(folder / "README.md", None)
    for path, text in found.items():
        if not ITEM.fullmatch(text):
            raise SystemExit(
                f"{path}: one item of a list, of at most five lines (changes/README.md)"
            )
    return found


def with_items(changelog: str, version: str, day: str, added: str) -> str:
    """The changelog with these items: a new section on top, or more of the version's own.

    Raises:
        SystemExit: that is no version.
    """
    if not VERSION.fullmatch(version):
        raise SystemExit(f"VERSION={version}: a version is three numbers, such as 0.2.0")
    sections = re.split(r"(?m)^(?=## )", changelog)
    for place, section in enumerate(sections):
        if re.match(rf"## {re.escape(version)}\b", section):
            sections[place] = f"{section.rstrip()}\n\n{added}\n"
            return "".join(sections).rstrip() + "\n"
    return "".join([sections[0], f"## {version} ({day})\n\n{added}\n", *sections[1:]])


def main(root: Path, version: str) -> None:
    found = items(root / "changes")
    added = "".join(found.values())
    if not version:
        sys.stdout.write(added or "nothing has changed since the newest version\n")
        return
    if not found:
        raise SystemExit("changes/: there are no items to move")
    changelog = root / "CHANGELOG.md"
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    changelog.write_text(with_items(changelog.read_text(), version, day, added))
    for path in found:
        path.unlink()


if __name__ == "__main__":
    main(Path(__file__).parents[1], "".join(sys.argv[1:]))
