"""`medusa-peer renew` and `sign`: renew the certificates of peers before they end."""

from __future__ import annotations

import click

from medusa.tools.commands.command_line import home_option, json_option, root_option, say


@click.command()
@root_option
@click.option("--request", "request_", metavar="FILE", help="Write a request to be signed there.")
@click.option("--install", metavar="FILE", help="Take the certificate that was signed there.")
@home_option
@json_option
def renew(
    root: str | None, request_: str | None, install: str | None, home: str | None, as_json: bool
) -> None:
    """Renew this peer's certificate, for a year from now; a running peer goes on with it.

    If the root's key is kept off line: --request FILE here, `medusa-peer sign FILE` there, and
    --install FILE here with the file that it wrote.
    """
    from pathlib import Path

    from medusa.overlay.clock import shown
    from medusa.overlay.files import write_atomically
    from medusa.tools.daemon import renewal
    from medusa.tools.home.folder import Home

    if sum(each is not None for each in (root, request_, install)) > 1:
        raise click.UsageError("--root, --request and --install are three ways: give one")
    place = Home.locate(home)
    if request_ is not None:
        write_atomically(Path(request_), renewal.request(place))
        say(
            as_json,
            {"request": request_},
            f"written to {request_}; where the root's key is: medusa-peer sign {request_}",
        )
        return
    if install is not None:
        identity = renewal.install(place, Path(install))
    else:
        identity = renewal.renew(place, place if root is None else Home.locate(root))
    say(
        as_json,
        {"peer": identity.peer_id.hex(), "until": identity.expires},
        f"the certificate of peer {identity.peer_id.hex()[:8]} of {identity.participant} lasts "
        f"until {shown(identity.expires)}",
    )


@click.command()
@click.argument("request_", metavar="FILE")
@root_option
@click.option("--out", metavar="FILE", help="Where to write it (default: FILE with .crt).")
@home_option
@json_option
def sign(request_: str, root: str | None, out: str | None, home: str | None, as_json: bool) -> None:
    """Sign the request in FILE, of a peer of the root's participant, with the root's key."""
    from pathlib import Path

    from medusa.overlay.files import write_atomically
    from medusa.tools.daemon import renewal
    from medusa.tools.home.folder import Home

    name, certificate = renewal.sign(Home.locate(root or home), Path(request_))
    target = Path(out) if out is not None else Path(request_).with_suffix(".crt")
    write_atomically(target, certificate)
    say(
        as_json,
        {"peer": name.peer_id.hex(), "certificate": str(target)},
        f"signed for peer {name.peer_id.hex()[:8]} of {name.participant}, written to {target}; "
        f"at its home: medusa-peer renew --install {target.name}",
    )
