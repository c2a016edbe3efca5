"""medusa.toml: settings are applied, and misspelt ones are refused by name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from medusa.overlay.errors import DamagedError, InvalidInputError
from medusa.tools.home.config import TEMPLATE, load_config, read_bootstrap, write_bootstrap
from medusa.tools.home.folder import Home


def _home(folder: Path, text: str) -> Home:
    home = Home(folder)
    home.config.write_text(text)
    return home


def test_an_empty_or_missing_file_gives_the_defaults(tmp_path: Path) -> None:
    missing = load_config(Home(tmp_path))
    assert missing == load_config(_home(tmp_path, ""))
    assert missing.overlay.listen == ("0.0.0.0", 7654)
    assert missing.client.listen == ("127.0.0.1", 0)


def test_a_leader_is_missed_sooner_where_peers_are_near(tmp_path: Path) -> None:
    def silence_s(text: str) -> float:
        return load_config(_home(tmp_path, text)).engine.leader_silence_s

    assert [silence_s(f'overlay.preset = "{name}"') for name in ("local", "lan", "wan")] == [
        1.0,
        3.0,
        10.0,
    ]
    assert silence_s('overlay.preset = "local"\n[engine]\nleader_silence_s = 7.5') == 7.5


def test_the_template_names_real_keys_with_their_defaults(tmp_path: Path) -> None:
    template = TEMPLATE.read_text()
    assert load_config(_home(tmp_path, template)) == load_config(Home(tmp_path / "none"))
    uncommented = re.sub(r"^# (?=\S+ = )", "", template, flags=re.MULTILINE)
    assert len(tomllib.loads(uncommented)["engine"]) > 3
    config = load_config(_home(tmp_path, uncommented))
    defaults = load_config(Home(tmp_path / "none"))
    assert config.dht == defaults.dht
    assert config.client == defaults.client
    assert config.overlay.listen == defaults.overlay.listen
    assert config.overlay.preset == defaults.overlay.preset
    assert config.engine.epoch_rows == defaults.engine.epoch_rows
    assert config.engine.disk_bytes == defaults.engine.disk_bytes
    assert config.spark.options == {"spark.executor.memory": "2g"}


def test_sections_reach_their_packages(tmp_path: Path) -> None:
    home = _home(
        tmp_path,
        """
        [overlay]
        listen = "[::1]:1234"
        advertise = "peer.mit.edu:1"
        bootstrap = ["10.0.0.1:2", "10.0.0.2:3"]
        preset = "wan"
        [engine]
        epoch_s = 2
        fsync = true
        [spark]
        profile = "throughput"
        [spark.options]
        spark.ui.enabled = false
        "spark.sql.shuffle.partitions" = 4
        """,
    )
    config = load_config(home, listen=("127.0.0.1", 0))
    assert config.overlay.listen == ("127.0.0.1", 0)
    assert config.overlay.advertise == ("peer.mit.edu", 1)
    assert config.overlay.bootstrap == (("10.0.0.1", 2), ("10.0.0.2", 3))
    assert config.overlay.preset.value == "wan"
    assert config.engine.epoch_s == 2.0
    assert config.engine.fsync
    assert config.spark.options == {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[overlay]\nlisen = '1:2'", r"overlay\.lisen: unknown key \(known: advertise, bootstrap"),
        ("[engin]", r"unknown section \[engin\]"),
        ("engine = 3", r"engine must be a section"),
        ("[overlay]\nlisten = 'nowhere'", r"overlay\.listen: .*expected HOST:PORT"),
        ("[overlay]\nlisten = 7654", r"overlay\.listen: "),
        ("[overlay]\nbootstrap = ['a']", r"overlay\.bootstrap: "),
        ("[overlay]\npreset = 'moon'", r"overlay\.preset: "),
        ("[engine]\nepoch_s = 'fast'", r"engine\.epoch_s: Expected `float`"),
        ("[engine]\nepoch_s = -1", r"engine\.epoch_s must be positive"),
        ("[engine]\nfsync = 1", r"engine\.fsync: Expected `bool`"),
        ("[spark.options]\nspark.x = [1]", r"spark\.options: spark\.x: expected a text"),
        ("[engine]\nx = = 1", r"medusa\.toml: .*line 2"),
    ],
)
def test_errors_name_their_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        load_config(_home(tmp_path, text))


def test_the_invitation_gives_the_bootstrap(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write_bootstrap(home, (("10.0.0.1", 2), ("::1", 3)))
    assert load_config(home).overlay.bootstrap == (("10.0.0.1", 2), ("::1", 3))
    home.bootstrap.write_text("{}")
    with pytest.raises(DamagedError, match="HOST:PORT"):
        read_bootstrap(home)
