"""`medusa stream alter`: its options, and its request to the peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from engine_peers import Cluster
from tools_prompt import Prompt

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import Idle
from medusa.overlay.errors import InvalidInputError
from medusa.tools.commands.medusa import alter_stream
from medusa.tools.commands.medusa.alter_stream import read
from medusa.tools.commands.medusa.medusa_command import medusa


def test_every_option_as_it_stands_in_xml() -> None:
    given = {
        "readers": "utah.edu, mit.edu",
        "writers": "",
        "declassify": "utah.edu",
        "slack": "0.5",
        "history": "60",
        "idle": "clock",
        "max_ahead": "none",
    }
    assert read(given) == Alteration(
        readers=("utah.edu", "mit.edu"),
        writers=(),
        declassify=("utah.edu",),
        slack_us=500_000,
        history_us=60_000_000,
        idle=Idle.CLOCK,
        max_ahead_us=None,
    )
    assert read({"max_ahead": "7200"}) == Alteration(max_ahead_us=7_200_000_000)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing is to be altered: give one of --readers, .*--max-ahead"),
        ({"slack": "5 s"}, "--slack: '5 s' is not a number of seconds"),
        ({"max_ahead": "never"}, "--max-ahead: 'never' is not a number of seconds"),
        ({"idle": "often"}, "--idle: 'often' is not explicit or clock"),
    ],
)
def test_errors_of_unreadable_files_name_the_option(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read(given)


def test_the_command_sends_its_options_to_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    class Client:
        remarks = ()

        async def alter_stream(self, stream: str, alteration: Alteration) -> None:
            asked.extend((stream, alteration))

    def ask(_home: str | None, question: Callable[[Client], Awaitable[None]]) -> None:
        with pytest.raises(StopIteration):
            question(Client()).__await__().send(None)

    monkeypatch.setattr(alter_stream, "ask", ask)
    name = "medusa://mit.edu/s"
    done = CliRunner().invoke(
        medusa, ["stream", "alter", name, "--readers", "utah.edu", "--slack", "2"]
    )
    assert done.exit_code == 0, done.output
    assert done.output == f"{name}: readers utah.edu, slack 2 s\n"
    assert asked == [name, Alteration(readers=("utah.edu",), slack_us=2_000_000)]


async def test_a_participant_that_is_no_member_is_remarked_upon(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "evil.xml"
    document.write_text(
        """<medusa>
          <schema name="medusa://mit.edu/conn" time="ts"><field name="ts" type="double"/></schema>
          <stream name="medusa://mit.edu/conns" schema="medusa://mit.edu/conn" writers="uta.edu"
            lateness="0" history="3600"/>
          <query name="medusa://mit.edu/q">
            <box name="b" type="filter">
              <input port="1" stream="medusa://mit.edu/conns"/>
              <output port="1" stream="medusa://mit.edu/out"/>
              <param name="expression.0" value="ts > 1"/>
            </box>
            <output stream="medusa://mit.edu/out" readers="bown.edu"/>
          </query>
        </medusa>"""
    )
    mit = await cluster.settle("mit.edu")
    await cluster.settle("utah.edu")
    at_mit, conns = Prompt(mit.home.folder, capfd), "medusa://mit.edu/conns"
    code, _, err = await at_mit.outcome("query", "create", str(document))
    assert code == 0
    members = "no member of federation cluster; its members are mit.edu, utah.edu"
    assert err.splitlines() == [
        f"medusa: {conns}: writers names uta.edu, {members}",
        f"medusa: medusa://mit.edu/out: readers names bown.edu, {members}",
    ]
    code, _, err = await at_mit.outcome(
        *("stream", "alter", conns, "--readers", "utah.edu,contract,bown.edu")
    )
    assert (code, err) == (0, f"medusa: {conns}: readers names bown.edu, {members}\n")
    await at_mit("stream", "alter", conns, "--readers", "utah.edu", "--slack", "2")
    await at_mit("stream", "alter", "medusa://mit.edu/out", "--readers", "*")
