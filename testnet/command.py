"""The `medusa-testnet` command."""

from __future__ import annotations

import click

from testnet.bpm.command import bpm
from testnet.detection.command import detect
from testnet.ha.command import ha
from testnet.intrusion.command import intrusion
from testnet.linear_road.command import linear_road
from testnet.load.command import load
from testnet.market.command import market
from testnet.nexmark.command import nexmark
from testnet.partition.command import partition
from testnet.shared_intrusion.command import intrusion_shared
from testnet.simulation.command import simulate
from testnet.tracking.command import tracking


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
