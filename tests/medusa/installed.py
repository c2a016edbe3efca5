"""Empty environments with what the wheel installs, made without a network: distributions of this
environment are linked into them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from shutil import copytree, ignore_patterns

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LEFT_OUT = ignore_patterns(".*", "build", "dist", "out", "*.egg-info", "__pycache__", "bench.json")
BUILD = "import sys; from setuptools import build_meta as b; print(b.build_{kind}(sys.argv[1]))"


def build_sdist(folder: Path) -> Path:
    """Build the sdist of this checkout in a copy of it, and return it."""
    copytree(ROOT, folder / "checkout", symlinks=True, ignore=LEFT_OUT)
    return _build("sdist", folder / "checkout", folder)


def build_wheel(sdist: Path, folder: Path) -> Path:
    """Build the wheel from the sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return _build("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


def make_environment(folder: Path, wheel: Path, *extras: str) -> Path:
    """Install the wheel with these extras into an empty environment; return its `bin`."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    (ours,) = distributions(name="medusa-federation", path=[str(packages)])
    for name in sorted(_closure(ours, ("", *extras))):
        found = distribution(name)
        for top in {path.parts[0] for path in found.files or () if path.parts[0] != ".."}:
            if top != "__pycache__":
                (packages / top).symlink_to(Path(str(found.locate_file(top))))
    return folder / "bin"


def _build(kind: str, project: Path, into: Path) -> Path:
    program = [sys.executable, "-c", BUILD.format(kind=kind), str(into)]
    done = subprocess.run(program, cwd=project, check=True, capture_output=True, text=True)
    return into / done.stdout.split()[-1]


def _closure(of: Distribution, extras: Iterable[str]) -> set[str]:
    """Return the names of the distributions that pip would install along with this one."""
    names: set[str] = set()
    todo = [(of, extra) for extra in extras]
    seen = set()
    while todo:
        found, extra = todo.pop()
        for each in map(Requirement, found.requires or ()):
            if each.marker is not None and not each.marker.evaluate({"extra": extra}):
                continue
            inner = of if each.name == of.name else distribution(each.name)
            names |= {each.name} - {of.name}
            more = {(each.name, which) for which in ("", *each.extras)} - seen
            seen |= more
            todo += [(inner, which) for _, which in more]
    return names
