"""Pages and habits: the files that pages name exist, lines wrap, hooks run the checks of `make
check`, and locked versions are allowed ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    str(page.relative_to(REPOSITORY))
    for page in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"))
)
COLUMNS: Final = 100

MADE: Final = "docs/generated/"
"""The folder that `make docs` writes; it is not in git."""

PLACEHOLDER: Final = re.compile(r"/[A-Z]+/")
"""A pattern of a placeholder for a folder, as in `engine/operators/KIND/`."""

FOLDERS: Final = "medusa|overlay|dht|engine|contracts|tools|testnet|tests|docs|examples"
CODE: Final = re.compile(r"`([^`\n]+)`")
NAMED: Final = re.compile(rf"(?<![\w/.~…-])((?:{FOLDERS})/[\w./*-]*[\w*/])")
"""A pattern of a file or folder of the repository that a page names from the root."""

TARGET: Final = re.compile(r"`make ([a-z-]+)[^`]*`|^make ([a-z-]+)", re.MULTILINE)


def outside_code(page: str) -> Iterator[tuple[int, str]]:
    """The lines of a page with their numbers, without those of code blocks."""
    code = False
    for number, line in enumerate((REPOSITORY / page).read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


@pytest.mark.parametrize("page", PAGES)
def test_lines_wrap(page: str) -> None:
    """Lines wrap, except rows of tables."""
    long = [
        number
        for number, line in outside_code(page)
        if len(line) > COLUMNS and not line.lstrip().startswith("|")
    ]
    assert long == [], f"{page}: lines of more than {COLUMNS} columns"


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    """All pages but the changelog, which names files of its time."""
    spans = CODE.findall((REPOSITORY / page).read_text())
    named = {
        name
        for span in spans
        for name in NAMED.findall(span)
        if not name.startswith(MADE) and not PLACEHOLDER.search(name)
    }
    assert {name for name in named if not any(REPOSITORY.glob(name.rstrip("/")))} == set()


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = (line for _, line in outside_code(str(page)) if line.startswith("#"))
    return {
        re.sub(r"[^\w\s-]", "", heading.lstrip("# ").lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = "\n".join(line for _, line in outside_code(page))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        there = ((REPOSITORY / page).parent / path).resolve() if path else REPOSITORY / page
        assert there.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page}: {target}"


def test_no_module_imports_a_test_module() -> None:
    """Test modules share code by a library; all their names differ, as pytest needs it."""
    modules = sorted(REPOSITORY.glob("tests/**/*.py"))
    names = [path.stem for path in modules if path.stem != "conftest"]
    assert len(names) == len(set(names))
    pattern = re.compile(r"^\s*(?:from|import) (test_\w+)", re.MULTILINE)
    found = {
        f"{path.name}: {name}" for path in modules for name in pattern.findall(path.read_text())
    }
    assert found == set()


def test_the_map_has_every_folder() -> None:
    rows = re.findall(
        r"^\| `([\w/]+)` \|", (REPOSITORY / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    folders = {
        str(path.parent.relative_to(REPOSITORY))
        for package in ("engine", "tools")
        for path in REPOSITORY.glob(f"{package}/*/__init__.py")
    }
    assert folders <= set(rows)


def test_a_word_is_defined_once() -> None:
    text = (REPOSITORY / "docs/glossary.md").read_text()
    words = re.findall(r"^\| (?!word|---)([^|]+) \|", text, re.MULTILINE)
    assert len(words) == len(set(words)) > 40


@pytest.mark.parametrize("page", PAGES)
def test_every_target_of_make_that_a_page_names_is_there(page: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {one or other for one, other in TARGET.findall((REPOSITORY / page).read_text())}
    assert named <= targets


def test_hooks_run_what_make_check_runs() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    recipe = makefile.partition("\ncheck:")[2].partition("\n\n")[0]
    checks = re.findall(r"^\t@\$\(BIN\)/(.*)$", recipe, re.MULTILINE)
    hooks = (REPOSITORY / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"^ +entry: \.venv/bin/(.*)$", hooks, re.MULTILINE) == checks


def test_every_requirement_is_locked_to_a_version_that_it_allows() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [each for extra in ("peer", "testnet", "dev") for each in extras[extra]]
    wanted = [each for each in wanted if not each.startswith(project["name"])]
    lock = (REPOSITORY / "requirements-dev.lock").read_text()
    locked = [Requirement(line) for line in lock.splitlines() if line and line[0] not in "# "]
    for requirement in map(Requirement, [*project["dependencies"], *wanted]):
        versions = [
            specifier.version
            for each in locked
            if canonicalize_name(each.name) == canonicalize_name(requirement.name)
            for specifier in each.specifier
        ]
        assert versions, f"{requirement.name} is not locked"
        assert all(version in requirement.specifier for version in versions), requirement
