"""The `medusa-testnet` command."""

from __future__ import annotations

import click

from medusa.testnet.bpm.command import bpm
from medusa.testnet.detection.command import detect
from medusa.testnet.ha.command import ha
from medusa.testnet.intrusion.command import intrusion
from medusa.testnet.linear_road.command import linear_road
from medusa.testnet.load.command import load
from medusa.testnet.market.command import market
from medusa.testnet.nexmark.command import nexmark
from medusa.testnet.partition.command import partition
from medusa.testnet.shared_intrusion.command import intrusion_shared
from medusa.testnet.simulation.command import simulate
from medusa.testnet.tracking.command import tracking


@click.group("medusa-testnet", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="medusa-federation")
def main() -> None:
    """Start a federation on this machine, watch what it does, check it, and stop it."""


for command in (
    bpm,
    detect,
    ha,
    intrusion,
    intrusion_shared,
    linear_road,
    load,
    market,
    nexmark,
    partition,
    simulate,
    tracking,
):
    main.add_command(command)
