"""Every command of the documentation, as printed, in order, in a folder with the files of
`examples/`.

A block of Markdown that begins with ```sh is run, and so is a program, which begins with ```python.
A comment that stands alone directly below a command is a line that it prints; three dots in it
stand for anything.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from medusa.testnet import examples

REPOSITORY: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
FEDERATION: Final = (
    "README.md",
    "docs/tutorial.md",
    "docs/operating.md",
    "docs/posting.md",
    "docs/reading.md",
    "docs/reference/queries.md",
    "docs/reference/streams.md",
    "docs/reference/windows.md",
    "docs/reference/joins.md",
    "docs/reference/history.md",
    "docs/reference/availability.md",
    "docs/python.md",
    "docs/contracts.md",
    "docs/federation.md",
    "docs/cluster.md",
    "docs/testnet.md",
    "CONTRIBUTING.md",
)
"""Pages about one federation in the order in which a reader follows them: each continues where the
one before ended."""

FILES: Final = (
    "docs/try.md",
    "docs/reference/functions.md",
    "docs/intrusion.md",
    "docs/workloads.md",
)
"""Pages whose commands need no peer: they read the files of `examples/`."""

BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Commands or a program, with their page and line, and the lines that they must print."""

    page: str
    line: int
    language: str
    text: str

    @property
    def command(self) -> str:
        """The block as a command for the shell."""
        if self.language == "sh":
            return self.text
        goes_on = "for epoch in" in self.text and "break" not in self.text
        runner = "interrupted_program" if goes_on else "program"
        return f"{runner} <<'PROGRAM'\n{self.text}PROGRAM"

    @property
    def prints(self) -> list[str]:
        if self.language != "sh":
            return []
        lines = self.text.splitlines()
        return [
            line.removeprefix("# ")
            for before, line in itertools.pairwise(lines)
            if line.startswith("# ") and before and not before.startswith("#")
        ]


def blocks(page: str) -> list[Block]:
    text = (REPOSITORY / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in BLOCK.finditer(text)
    ]


def script(every: list[Block]) -> str:
    parts = [f". {HERE / 'docs_commands.sh'}"]
    for block in every:
        parts += [f"echo '=== {block.page}:{block.line}'", block.command]
    return "\n".join(parts)


CONNS: Final = "medusa://mit.edu/conns"


def pattern(printed: str) -> str:
    return ".*".join(re.escape(part) for part in re.split(r"…|\.\.\.", printed))


def test_the_examples_data_is_the_generators(tmp_path: Path) -> None:
    examples.write(tmp_path / "conns.csv")
    shipped = REPOSITORY / "examples/conns.csv"
    assert (tmp_path / "conns.csv").read_bytes() == shipped.read_bytes()


def test_every_page_with_commands_is_run() -> None:
    pages = [
        str(page.relative_to(REPOSITORY))
        for page in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"))
    ]
    assert [page for page in pages if blocks(page) and page not in FEDERATION + FILES] == []


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_every_command_about_a_federation_works_as_printed(tmp_path: Path) -> None:
    end = Block("the end", 0, "sh", f"medusa stream show {CONNS} --json\n")
    printed = run([block for page in FEDERATION for block in blocks(page)] + [end], tmp_path)
    conns = json.loads(printed[end].splitlines()[0])
    assert conns["status"]["late"] == 0, "rows that a page posts are late after those before it"


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_every_command_about_files_works_as_printed(tmp_path: Path) -> None:
    begin = Block("the beginning", 0, "sh", "cd examples\n")
    run([begin] + [block for page in FILES for block in blocks(page)], tmp_path)


def run(every: list[Block], folder: Path) -> dict[Block, str]:
    """Run the blocks one after the other, check what they print, and return it."""
    home = folder / "home"
    home.mkdir()
    shutil.copytree(REPOSITORY / "examples", folder / "examples")
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MEDUSA_PYTHON": sys.executable,
        "MEDUSA_TESTS": str(HERE),
        "MEDUSA_REPOSITORY": str(REPOSITORY),
    }
    environment.pop("MEDUSA_HOME", None)
    printed = folder / "printed"
    with printed.open("w") as file:
        done = subprocess.run(
            ["bash", "-c", script(every)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    text = printed.read_text()
    assert done.returncode == 0, text[-8000:]
    outputs = {}
    for block in every:
        at = f"=== {block.page}:{block.line}\n"
        output = outputs[block] = text.partition(at)[2].partition("\n=== ")[0]
        for line in block.prints:
            assert re.search(pattern(line), output), f"{at}does not print: {line}\n{output}"
    return outputs
