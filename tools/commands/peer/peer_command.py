"""`medusa-peer`: make a peer, let participants in, run the daemon."""

from __future__ import annotations

import sys
from functools import partial
from typing import NoReturn

import click

from medusa.overlay.log import LEVELS
from medusa.tools.commands import command_line
from medusa.tools.commands.command_line import home_option, json_option, say, warn
from medusa.tools.commands.peer.backup_command import backup, restore
from medusa.tools.commands.peer.certificate_command import renew, sign
from medusa.tools.commands.peer.contract_command import contract
from medusa.tools.commands.peer.federation_command import COMMANDS
from medusa.tools.commands.peer.inspect_command import inspect
from medusa.tools.commands.peer.token_command import token as token_group


def main() -> NoReturn:
    command_line.run(peer)


@click.group("medusa-peer", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="medusa-federation")
def peer() -> None:
    """Make, admit and run peers of a Medusa federation."""


@peer.command()
@click.option("--participant", metavar="NAME", help="Who owns the peer, as in mit.edu.")
@click.option("--found", metavar="FEDERATION", help="Start a federation of this name.")
@click.option(
    "--admission",
    metavar="POLICY",
    help="Who admits others to it: founder (the default), any, or as in '2 of mit.edu,utah.edu'.",
)
@click.option(
    "--root",
    metavar="HOME",
    help="Make another peer of the participant whose root key lives in HOME.",
)
@home_option
@json_option
def init(
    *,
    participant: str | None,
    found: str | None,
    admission: str | None,
    root: str | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Make a home: keys, certificates, client token and medusa.toml."""
    from medusa.overlay.admission_policy import FOUNDER, AdmissionPolicy
    from medusa.tools.home import founding
    from medusa.tools.home.folder import Home

    if (participant is None) == (root is None):
        raise click.UsageError("give --participant NAME, or --root HOME for another of its peers")
    if admission is not None and found is None:
        raise click.UsageError("--admission is for a federation that you --found")
    place = Home.locate(home)
    if root is not None:
        if found is not None:
            raise click.UsageError("--found is for a participant's first peer, --root for others")
        made = founding.make_sibling(place, Home.locate(root))
    else:
        assert participant is not None
        made = founding.make_peer(place, participant, found, admission or FOUNDER)
        policy = AdmissionPolicy.parse(admission or FOUNDER, participant)
        if first := founding.first_admissions(policy):
            warn(first)
    say(
        as_json,
        {
            "home": str(place.folder),
            "participant": made.participant,
            "peer": made.peer,
            "federation": made.federation,
            "root_certificate": str(place.root_certificate),
        },
        founding.next_steps(place, made),
    )


@peer.command("run")
@click.option("--listen", metavar="ADDR:PORT", help="For other peers (default: medusa.toml's).")
@click.option(
    "--log-level",
    type=click.Choice(tuple(LEVELS)),
    help="The least that logs/medusa.log has (default: medusa.toml's, else info).",
)
@click.option(
    "--log-format",
    type=click.Choice(("console", "json")),
    help="Of its lines: for people, or an object a line (default: medusa.toml's, else console).",
)
@home_option
@json_option
def run_daemon(
    listen: str | None,
    log_level: str | None,
    log_format: str | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Run the peer until SIGTERM or Ctrl-C. Its log is logs/medusa.log in its home.

    On SIGHUP, which `medusa-peer reload` sends, it reads medusa.toml again, and notes the changes
    that count at once and those that wait for a restart.
    """
    import trio

    from medusa.tools.home.addresses import format_address, parse_address
    from medusa.tools.home.folder import Home, Running

    place = Home.locate(home)
    place.require()
    address = None if listen is None else parse_address(listen)

    def ready(running: Running) -> None:
        overlay, client = format_address(running.overlay), format_address(running.client)
        xmlrpc = "" if running.xmlrpc is None else format_address(running.xmlrpc)
        say(
            as_json,
            {
                "pid": running.pid,
                "participant": running.participant,
                "peer": running.peer,
                "overlay": overlay,
                "client": client,
                "xmlrpc": xmlrpc or None,
                "log": str(place.log_file),
            },
            f"peer {running.peer[:8]} of {running.participant} is up: "
            f"peers reach it at {overlay}, clients at {client}"
            f"{xmlrpc and f', by XML-RPC at {xmlrpc}'}; its log is {place.log_file}",
        )
        sys.stdout.flush()

    from medusa.engine.streams.memory import keep_flat

    keep_flat()  # set before anything imports pyarrow

    from medusa.tools.daemon.peer import run_peer
    from medusa.tools.home.config import load_config

    load = partial(load_config, place, listen=address, log_level=log_level, log_format=log_format)
    trio.run(run_peer, place, load, ready, warn)


@peer.command()
@home_option
@json_option
def reload(home: str | None, as_json: bool) -> None:
    """Have the running peer read medusa.toml again, as SIGHUP does.

    Settings that the file marks as live count at once; the log and `medusa monitor` name those that
    wait for a restart.
    """
    import os
    import signal

    from medusa.tools.home.config import load_config
    from medusa.tools.home.folder import Home

    place = Home.locate(home)
    pid = place.running().pid
    load_config(place)  # so that the user sees a mistake here, not only in the log
    os.kill(pid, signal.SIGHUP)
    say(as_json, {"pid": pid}, f"the peer in {place.folder} (pid {pid}) reads {place.config} again")


peer.add_command(contract)
for _command in (*COMMANDS, renew, sign):
    peer.add_command(_command)
peer.add_command(token_group)
peer.add_command(backup)
peer.add_command(restore)
peer.add_command(inspect)

if __name__ == "__main__":
    main()
