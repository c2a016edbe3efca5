"""Programs like the first paper's snippets run as processes against a peer."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from engine_interpreted import interpret
from engine_peers import Cluster, until
from tools_xmlrpc import OpenStock, address_of, settled, url

EXAMPLES = Path(__file__).parents[2] / "examples" / "xmlrpc"
LOCATOR = "medusa://nms.lcs.mit.edu/locator"


@pytest.mark.process
async def test_the_appendix(
    stock: OpenStock, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interpret(monkeypatch)
    mit = await settled(cluster, "nms.lcs.mit.edu")
    arguments = [url(mit).rstrip("/"), str(mit.home.root_certificate)]

    async def printed(name: str) -> str:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        done = await trio.run_process(command, capture_stdout=True, cwd=tmp_path)
        return done.stdout.decode()

    assert await printed("define.py") == f"['{LOCATOR}/people']\n"
    assert await printed("query.py") == f"['{LOCATOR}/FindMrX', '{LOCATOR}/MrX']\n"
    command = [sys.executable, str(EXAMPLES / "subscribe.py"), *arguments]
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
        listener = await nursery.start(run)
        client = stock(mit)

        async def runs() -> bool:
            entry = (await client.lookup_object(f"{LOCATOR}/FindMrX"))["entries"]["query"]
            return bool(entry["status"] == "RUNNING")

        await until(runs)
        people = [
            {"person_name": "Ada", "person_id": 1},
            {"person_name": "Mr. X", "person_id": 2},
            {"person_name": "Bob", "person_id": 3},
        ]
        await client.post_event(f"{LOCATOR}/people", people, {"end": True})
        told = b""
        while not told.endswith(b"\n"):
            told += await listener.stdout.receive_some()
        assert told == b"Mr. X 2\n"
        listener.terminate()
    assert address_of(mit)[1] != 0


def test_the_examples_need_the_standard_library_alone() -> None:
    found = sorted(EXAMPLES.glob("*.py"))
    assert [path.name for path in found] == ["define.py", "query.py", "subscribe.py"]
    for path in found:
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                assert name.partition(".")[0] in sys.stdlib_module_names, (path.name, name)
