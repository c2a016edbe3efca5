"""`medusa-peer invite|join|members|policy|revoke`: membership of the federation."""

from __future__ import annotations

import sys
from typing import Final

import click

from medusa.tools.commands.command_line import (
    confirm,
    home_option,
    json_option,
    root_option,
    say,
    say_json,
    warn,
    yes_option,
)


@click.command()
@click.argument("name")
@click.option(
    "--root",
    "certificate",
    metavar="CERT",
    help="Its root certificate (default: the one that another sponsor has signed).",
)
@click.option(
    "--address",
    "addresses",
    metavar="HOST:PORT",
    multiple=True,
    help="Where to join by (default: where this peer listens).",
)
@click.option(
    "--expires",
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="How long the invitation lasts.",
)
@click.option("--withdraw", is_flag=True, help="Take the invitation of NAME back.")
@click.option(
    "--our-root", metavar="HOME", help="The home with our root key, which signs (default: this)."
)
@yes_option
@home_option
@json_option
def invite(
    *,
    name: str,
    certificate: str | None,
    addresses: tuple[str, ...],
    expires: str,
    withdraw: bool,
    our_root: str | None,
    yes: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Admit participant NAME; prints the token that it joins with.

    If several sponsors must sign, each of them gives this command; the last one gets the token.
    """
    from pathlib import Path

    from medusa.overlay.clock import shown
    from medusa.tools.commands.peer import admission
    from medusa.tools.commands.peer.contract_terms import parse_duration
    from medusa.tools.home.addresses import parse_address
    from medusa.tools.home.folder import Home

    place, signer = Home.locate(home), None if our_root is None else Home.locate(our_root)
    if withdraw:
        admission.withdraw(place, name, signer)
        say(as_json, {"withdrawn": name}, f"the invitation of {name} is withdrawn")
        return

    def agreed() -> None:
        if certificate is None:
            root = admission.begun_root(place, name)
            confirm(
                f"this signs the admission of {name} with the root {root}: compare that with what "
                f"{name} says",
                yes=yes,
            )

    made = admission.invite(
        place,
        name,
        None if certificate is None else Path(certificate),
        tuple(parse_address(address) for address in addresses),
        parse_duration(expires),
        root_home=signer,
        agreed=agreed,
    )
    if made.member_since is not None:
        warn(
            f"{name} was admitted on {shown(made.member_since)} and is a member: this is its token "
            "again"
        )
    waits = (
        f"signed by {', '.join(made.signed)}; {made.who} must sign: let another one run\n"
        f"    medusa-peer invite {name}\n"
        f"and compare the root, {made.root}"
    )
    value = {"participant": name, "root": made.root, "token": made.token, "signed": made.signed}
    say(as_json, value, made.token or waits)


@click.command()
@click.argument("token")
@home_option
@json_option
def join(token: str, home: str | None, as_json: bool) -> None:
    """Enter the federation of an invitation TOKEN (- reads it from standard input).

    The command calls the members that the invitation names: if they refuse this peer, it prints the
    reason.
    """
    from medusa.tools.commands.peer import joining
    from medusa.tools.home.folder import Home

    text = sys.stdin.read() if token == "-" else token  # noqa: S105 - a name for stdin
    place = Home.locate(home)
    silence = joining.knock(place, text)
    joined = joining.join(place, text)
    if silence:
        warn(silence)
    say(
        as_json,
        {"federation": joined.federation, "name": joined.name, "sponsors": list(joined.addresses)},
        f"joined federation {joined.name}; start the peer: medusa-peer run --home {place.folder}",
    )


@click.command()
@home_option
@json_option
def members(home: str | None, as_json: bool) -> None:
    """Show the members of the federation, invited and former ones, and the policy of admission."""
    from medusa.tools.commands.peer import admission
    from medusa.tools.home.folder import Home

    place = Home.locate(home)
    roll = admission.members(place)
    if as_json:
        say_json(roll)
    else:
        from medusa.tools.commands.peer import members_screen

        members_screen.show(roll)
    for warning in admission.warnings(place):
        warn(warning)


@click.command()
@click.argument("text", metavar="POLICY")
@root_option
@yes_option
@home_option
@json_option
def policy(text: str, root: str | None, yes: bool, home: str | None, as_json: bool) -> None:
    """Change the policy of admission: founder, any, or as in '2 of mit.edu,utah.edu'.

    The participants that admit others now may change it; if any member admits, the founder may. If
    several must sign, each of them gives the same command. `members` shows the policy in force;
    giving that one again ends the changes that wait for signatures.
    """
    from medusa.tools.commands.peer import admission
    from medusa.tools.home.folder import Home

    place = Home.locate(home)

    def agreed() -> None:
        before, wanted = admission.members(place), admission.written_policy(place, text)
        change = f"this changes who admits participants to {before.name} "
        change += f"from {before.policy!r} to {wanted!r}; all members stay"
        if wanted == before.policy:
            change = f"this says the policy of {before.name}, {wanted!r}, again; all members stay"
        others = [each.policy for each in before.changes if each.policy != wanted]
        ends = [f"the change to {each!r}, which waits for others, ends" for each in others]
        confirm(change, ends, yes=yes)

    roll = admission.change_policy(place, text, None if root is None else Home.locate(root), agreed)
    said = f"the admission policy is {roll.policy}: {roll.admits} may admit"
    waiting = ", ".join(
        f"{each.policy} (signed by {', '.join(each.signed_by)})" for each in roll.changes
    )
    say(
        as_json,
        {"policy": roll.policy, "changes": [each.policy for each in roll.changes]},
        said + (f"; signed, and waiting for others: {waiting}" if waiting else ""),
    )


@click.command()
@click.argument("name")
@click.option("--peer", "peer_id", metavar="ID", help="Revoke one peer of it only.")
@root_option
@yes_option
@home_option
@json_option
def revoke(  # noqa: PLR0917 - click passes by keyword
    name: str,
    peer_id: str | None,
    root: str | None,
    yes: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Revoke participant NAME, or one of its peers. It cannot be taken back."""
    from medusa.tools.commands.peer import admission, consequences, contract_calls
    from medusa.tools.home.folder import Home

    office = contract_calls.open_office(home)
    who = admission.member_named(office.home, name)
    what = f"peer {peer_id} of {name}" if peer_id else name

    def agreed() -> None:
        if yes:
            return
        ends = consequences.of_membership(office.home, office.book, name, peer_id or "", office.now)
        if peer_id is None:
            ends += consequences.of_sponsor(office.membership, name)
        confirm(f"this revokes {what} ({who}), for good:", ends, yes=False)

    signer = None if root is None else Home.locate(root)
    left = admission.revoke(office.home, name, peer_id, signer, agreed)
    say(
        as_json,
        {"revoked": name, "peer": peer_id, "ended": not left},
        f"{name} stays a member: {left}" if left else f"revoked {what}",
    )


@click.command()
@click.option("--participant", "whole", is_flag=True, help="With all peers of our participant.")
@root_option
@yes_option
@home_option
@json_option
def leave(whole: bool, root: str | None, yes: bool, home: str | None, as_json: bool) -> None:
    """Have this peer leave the federation for good: tell the others, and stop it.

    Its data stays in its home. The name of a participant that leaves stays taken: no participant,
    itself included, can use it again.
    """
    from medusa.tools.commands.peer import consequences, contract_calls, leaving
    from medusa.tools.home.folder import Home

    office = contract_calls.open_office(home)

    def agreed() -> None:
        if yes:
            return
        ends = consequences.of_leaving(office.home, office.book, office.now, whole=whole)
        if whole:
            ends += consequences.of_sponsor(office.membership, office.participant)
        who = f"{office.participant} with all its peers" if whole else "this peer"
        confirm(f"{who} leaves federation {office.membership.name}, for good:", ends, yes=False)

    signer = office.home if root is None else Home.locate(root)
    left = leaving.leave(office.home, signer, agreed, whole=whole)
    who = left.participant if whole else f"peer {left.peer[:8]} of {left.participant}"
    told = ", ".join(left.told) or "nobody: no other peer was connected"
    say(
        as_json,
        {"participant": left.participant, "peer": None if whole else left.peer, "told": left.told},
        f"{who} has left, and its peer has stopped; told: {told}",
    )


COMMANDS: Final = (invite, join, members, policy, revoke, leave)
