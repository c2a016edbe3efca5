"""The parts of a release: the version, its notes, the items of changes/, the decisions."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from medusa.overlay.greeting import PROTOCOL

REPOSITORY: Final = Path(__file__).parents[2]
DECISIONS: Final = REPOSITORY / "docs/adr"
STATUS: Final = re.compile(r"(accepted|superseded by ADR \d+)(; .*)?")
SECTION: Final = re.compile(r"^## (\d+\.\d+\.\d+)\b", re.MULTILINE)
ITEM: Final = "* `medusa` sings.\n  In two voices.\n"


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text()


def test_the_newest_notes_are_of_the_version_that_is_installed() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert SECTION.findall(text_of("CHANGELOG.md"))[0] == project["version"]
    assert version(project["name"]) == project["version"]


def test_the_lock_of_the_protocol_has_the_number_of_the_greeting() -> None:
    assert f"\nprotocol {PROTOCOL}\n" in text_of("docs/protocol.lock")


def test_the_table_of_decisions_is_what_the_pages_say() -> None:
    pages = []
    for number, path in enumerate(sorted(DECISIONS.glob("0*.md")), 1):
        heading, _, status, *_ = path.read_text().splitlines()
        assert path.name.startswith(f"{number:04}-")
        title = heading.removeprefix(f"# {number}. ")
        assert title != heading, path
        status = status.removeprefix("Status: ")
        assert STATUS.fullmatch(status), path
        pages.append(f"| [{number}]({path.name}) | {title} | {status} |")
    table = [row for row in text_of("docs/adr/README.md").splitlines() if row.startswith("| [")]
    assert table == pages


def test_a_decision_is_superseded_by_an_existing_decision() -> None:
    numbers = {int(path.name[:4]) for path in DECISIONS.glob("0*.md")}
    later = re.findall(r"superseded by ADR (\d+)", text_of("docs/adr/README.md"))
    assert {int(number) for number in later} <= numbers


def fold(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "changes/fold.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A repository with the changelog, and two new items."""
    (tmp_path / "changes").mkdir()
    for name in ("changes/fold.py", "changes/README.md", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "changes/b.md").write_text(ITEM)
    (tmp_path / "changes/a.md").write_text("* Before it.\n")
    return tmp_path


def test_the_items_of_the_repository_are_items() -> None:
    assert fold(REPOSITORY).returncode == 0


def test_items_are_shown_and_stay_until_a_version_takes_them(changed: Path) -> None:
    shown = fold(changed)
    assert (shown.returncode, shown.stdout) == (0, "* Before it.\n" + ITEM)
    before = (changed / "CHANGELOG.md").read_text()
    assert fold(changed, "9.8.7").returncode == 0
    after = (changed / "CHANGELOG.md").read_text()
    assert SECTION.findall(after) == ["9.8.7", *SECTION.findall(before)]
    assert "* Before it.\n" + ITEM in after.partition("## 9.8.7")[2].partition("\n## ")[0]
    assert [path.name for path in (changed / "changes").glob("*.md")] == ["README.md"]
    assert fold(changed).stdout == "nothing has changed since the newest version\n"


def test_a_version_that_is_there_gets_more_items(changed: Path) -> None:
    assert fold(changed, "9.8.7").returncode == 0
    (changed / "changes/c.md").write_text("* After it.\n")
    assert fold(changed, "9.8.7").returncode == 0
    after = (changed / "CHANGELOG.md").read_text()
    assert SECTION.findall(after).count("9.8.7") == 1
    assert "* After it.\n" in after.partition("## 9.8.7")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "text", ["", "no item\n", "* one\n* two\n", "* one", "* one\n" + "  more\n" * 5]
)
def test_invalid_items_are_named(changed: Path, text: str) -> None:
    (changed / "changes/b.md").write_text(text)
    refused = fold(changed, "9.8.7")
    assert refused.returncode == 1
    assert "b.md: one item of a list" in refused.stderr
    assert (changed / "changes/a.md").exists()


def test_an_invalid_version_is_refused_and_nothing_is_moved(changed: Path) -> None:
    refused = fold(changed, "v2")
    assert (refused.returncode, "VERSION=v2" in refused.stderr) == (1, True)
    assert (changed / "changes/a.md").exists()
