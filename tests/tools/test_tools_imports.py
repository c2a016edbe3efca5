"""A command, and a peer, starts without the packages that only some of their work needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from imported import COMMAND, imported

RUN = """
import os, signal, sys
from medusa.tools.commands.peer import peer_command

def ready(as_json, result, text):
    print("imported:", *sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)

peer_command.say = ready
sys.argv = ["medusa-peer", "run", "--listen", "127.0.0.1:0", "--home", sys.argv[1]]
peer_command.main()
"""


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("medusa", "medusa.tools.commands.medusa.medusa_command"),
        ("medusa-peer", "medusa.tools.commands.peer.peer_command"),
    ],
)
def test_help_imports_nothing_large(command: str, module: str) -> None:
    large = {"pyspark", "py4j", "pyarrow", "numpy", "pandas", "matplotlib", "rich", "kademlia"}
    found = imported(COMMAND.format(module=module, command=command), "--help")
    assert "click" in found
    assert found & (large | {"duckdb", "sqlglot", "trio", "cryptography"}) == set()


@pytest.mark.parametrize(
    "command",
    [
        ("stream", "list"),
        ("stream", "list", "--json"),
        ("status",),
        ("query", "start", "medusa://mit.edu/q"),
        ("lookup", "medusa://mit.edu/s"),
    ],
)
def test_a_command_that_sees_no_tuples_imports_no_arrow(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    program = COMMAND.format(module="medusa.tools.commands.medusa.medusa_command", command="medusa")
    found = imported(program, *command, "--home", str(tmp_path))
    assert "trio" in found, "it has called its peer"
    large = {"pyspark", "sqlglot", "duckdb", "pandas", "kademlia"}
    assert found & (large | {"pyarrow", "numpy", "defusedxml", "rich"}) == set()


@pytest.mark.process
def test_a_peer_that_has_run_no_query_has_no_pyspark_and_no_sqlglot(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    founding = ["init", "--participant", "mit.edu", "--found", "t", "--home", home]
    peer = Path(sys.executable).with_name("medusa-peer")
    subprocess.run([peer, *founding], check=True, capture_output=True)
    found = imported(RUN, home)
    assert "pyarrow" in found
    large = {"pyspark", "py4j", "pandas", "matplotlib", "duckdb", "rich", "sqlglot"}
    assert found & large == set()


def test_a_client_imports_no_parser_of_expressions() -> None:
    program = 'from medusa import MedusaClient; import sys; print("imported:", *sys.modules)'
    found = imported(program)
    assert "pyarrow" in found
    assert found & {"pyspark", "sqlglot", "kademlia", "pandas", "rich"} == set()
