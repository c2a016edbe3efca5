"""A script names a stream that does not exist: every command that reads a script points at the
name."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_peers import Cluster
from tools_prompt import Prompt

pytestmark = pytest.mark.usefixtures("interpreted")

ABSENT_STREAM = "CREATE STREAM made AS\n  SELECT a FROM nowhere\n"
ABSENT_SCHEMA = (
    "CREATE STREAM there\n  USING nothing;\nCREATE STREAM made AS SELECT a FROM there;\n"
)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            ABSENT_STREAM,
            "there is no stream medusa://mit.edu/nowhere, at line 2, column 17\n"
            "      SELECT a FROM nowhere\n"
            "                    ^\n",
        ),
        (
            ABSENT_SCHEMA,
            "there is no schema medusa://mit.edu/nothing, at line 2, column 9\n"
            "      USING nothing;\n"
            "            ^\n",
        ),
    ],
)
async def test_a_name_of_nothing_is_shown_in_its_line(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], script: str, told: str
) -> None:
    mit = await cluster.settle("mit.edu")
    prompt = Prompt(mit.home.folder, capfd)
    client = await cluster.client(mit)
    await client.create_query_xml("CREATE STREAM s (a INT); CREATE STREAM made AS SELECT a FROM s;")
    file = tmp_path / "script.sql"
    file.write_text(script)
    for command in (
        ("query", "create"),
        ("query", "explain"),
        ("query", "print"),
        ("query", "modify", mit.name("made")),
    ):
        found = await prompt.outcome(*command, str(file))
        assert found == (1, "", f"medusa: {file}: {told}"), command
