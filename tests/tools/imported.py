"""What a program has imported."""

from __future__ import annotations

import subprocess
import sys

COMMAND = """
import sys
from {module} import main
sys.argv = [{command!r}, *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print("imported:", *sys.modules)
"""


def imported(program: str, *arguments: str) -> set[str]:
    """Return the packages that a program has imported by the time of its report."""
    printed = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True
    ).stdout
    return {name.partition(".")[0] for name in printed.partition("imported:")[2].split()}
