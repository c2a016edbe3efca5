"""`medusa peer`: the peers of the federation, at a prompt."""

from __future__ import annotations

import click

from tools.command_line import home_option, json_option, say_json


@click.group()
def peer() -> None:
    """See the peers of the federation; `medusa-peer` is for your own."""


@peer.command("list")
@home_option
@json_option
def list_peers(home: str | None, as_json: bool) -> None:
    """List the peers that are known, and how they do."""
    from tools import listing
    from tools.listing_screen import peers_table
    from tools.plain_tables import show

    seen = listing.snapshot(home)
    if as_json:
        say_json(seen.peers)
    else:
        show(peers_table(seen))
