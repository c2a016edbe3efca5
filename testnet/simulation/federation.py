"""The initial federation of a simulation: homes on disk, as the commands make them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from medusa.tools.commands.peer.admission import invite
from medusa.tools.commands.peer.joining import join
from medusa.tools.home.config import SECTIONS, Config, load_config, read_section, write_bootstrap
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer, make_sibling

OVERLAY_PORT: Final = 7654
CLIENT_PORT: Final = 7655

JOIN_BY: Final = 3
"""Peers that an invitation names: if one of them is down, the others can answer."""

Settings = Mapping[str, Mapping[str, object]]
"""Contents of medusa.toml, by section and key."""


@dataclass(frozen=True)
class Federation:
    """The federation to build before a simulation starts.

    Attributes:
        participants: number of peers of each; the first one founds. Peers are called "mit.edu/0",
            "mit.edu/1", ...
        settings: the settings of all peers: {"engine": {"epoch_s": 0.5}}; overlay.preset is "local"
            by default, and the simulation gives the addresses.
        peer_settings: further settings of single peers, by the peer's name.
    """

    participants: Mapping[str, int]
    settings: Settings = field(default_factory=dict)
    peer_settings: Mapping[str, Settings] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all peers, in order."""
        return tuple(
            f"{participant}/{number}"
            for participant, peers in self.participants.items()
            for number in range(peers)
        )

    @property
    def hosts(self) -> dict[str, str]:
        """The IP of each peer."""
        return {
            name: f"10.0.{number // 250}.{number % 250 + 1}"
            for number, name in enumerate(self.names)
        }


def build(federation: Federation, folder: Path) -> dict[str, Path]:
    """Make every home in `folder`, by the peer's name: founder, siblings, and invited
    participants."""
    made: dict[str, Path] = {}
    firsts: dict[str, Home] = {}
    by = tuple((ip, OVERLAY_PORT) for ip in federation.hosts.values())[:JOIN_BY]
    for name in federation.names:
        participant = name.rpartition("/")[0]
        home = Home(folder / name.replace("/", "-") / "0")
        home.folder.parent.mkdir()
        if participant in firsts:
            make_sibling(home, firsts[participant])
        elif not firsts:
            make_peer(home, participant, "simulation")
        else:
            make_peer(home, participant, None)
            founder = next(iter(firsts.values()))
            invited = invite(founder, participant, home.root_certificate, by)
            assert invited.token is not None
            join(home, invited.token)
        others = [address for address in by if address[0] != federation.hosts[name]]
        write_bootstrap(home, tuple(others))
        firsts.setdefault(participant, home)
        made[name] = home.folder
    return made


def config_of(federation: Federation, name: str, home: Home) -> Config:
    """The settings of a peer.

    Raises:
        InvalidInputError: an unknown key or a wrong value.
    """
    config = load_config(home)
    ip = federation.hosts[name]
    for section in SECTIONS:
        table = {
            **federation.settings.get(section, {}),
            **federation.peer_settings.get(name, {}).get(section, {}),
        }
        ours: dict[str, object] = {}
        if section == "overlay":
            ours = {"listen": (ip, OVERLAY_PORT)}
            table = {"preset": "local", **table}
        elif section == "client":
            ours = {"listen": (ip, CLIENT_PORT)}
        before = getattr(config, section)
        defaults = {each.name: getattr(before, each.name) for each in dataclasses.fields(before)}
        changed = read_section(type(before), table, f"{name}: {section}", {**defaults, **ours})
        config = dataclasses.replace(config, **{section: changed})
    return config
