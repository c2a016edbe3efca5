"""The daemon of `medusa-peer run` on links that can be cut, for
`medusa.testnet.cutting.switchboard`.

python -m medusa.testnet.cutting.peer --switchboard SOCKET run --home DIR --listen 127.77.0.1:0
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from medusa.tools.commands import command_line
from medusa.tools.commands.command_line import home_option
from medusa.tools.home.addresses import Address, parse_address
from medusa.tools.home.folder import Home


def main() -> NoReturn:
    command_line.run(peer)


@click.group("medusa.testnet.cutting.peer")
@click.option("--switchboard", type=click.Path(path_type=Path), required=True)
@click.pass_context
def peer(context: click.Context, switchboard: Path) -> None:
    """Run a peer of a testnet."""
    context.obj = switchboard


@peer.command("run")
@click.option("--listen", metavar="ADDR:PORT", required=True, help="The IP must be its own.")
@home_option
@click.pass_obj
def run_daemon(switchboard: Path, listen: str, home: str | None) -> None:
    """Run the peer until SIGTERM or Ctrl-C."""
    import trio

    from medusa.engine.streams.memory import keep_flat

    keep_flat()  # set before anything imports pyarrow
    trio.run(_run, switchboard, Home.locate(home), parse_address(listen))


async def _run(switchboard: Path, home: Home, listen: Address) -> None:
    from medusa.testnet.cutting.switchboard import obeying
    from medusa.tools.daemon.peer import run_peer
    from medusa.tools.home.config import load_config

    async with obeying(switchboard, listen[0]):
        await run_peer(
            home, partial(load_config, home, listen=listen), lambda running: None, command_line.warn
        )


if __name__ == "__main__":
    main()
