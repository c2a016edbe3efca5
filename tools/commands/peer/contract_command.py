"""`medusa-peer contract`: propose, accept, list, revoke, balance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

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

if TYPE_CHECKING:
    from medusa.contracts.terms import Terms
    from medusa.tools.commands.peer.contract_calls import Office, Outcome

Function = TypeVar("Function", bound=Callable[..., object])

_LOAD_OPTIONS: Final = (
    "min_price",
    "max_price",
    "price",
    "tasks",
    "task_load",
    "capacity",
    "runs",
    "they_run",
    "no_sublet",
    "migration_cost",
    "replicas",
)
_CONTENT_OPTIONS: Final = ("sender", "per_message", "per_period", "period")
_SUGGEST_OPTIONS: Final = ("suggested_peer", "alternative")


def contract_ids(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes an argument by the ids of contracts in the home, as lists show them."""
    from medusa.contracts.contract import SHORT_ID
    from medusa.overlay.errors import MedusaError
    from medusa.tools.commands.peer.contract_calls import open_office

    with suppress(MedusaError, OSError):
        known = open_office(context.params.get("home")).book.all()
        return sorted(id_ for each in known if (id_ := each.id[:SHORT_ID]).startswith(incomplete))
    return []


@click.group()
def contract() -> None:
    """Contracts with other participants: who runs what for whom at what price.

    Amounts are decimal numbers of the parties' money; load is in units of 1 % of a core. MENU is
    LOAD[:KINDS[:STREAMS]], as in 40 or 40:filter,map:medusa://mit.edu/*
    """


def _out_option(function: Function) -> Function:
    return click.option(
        "--out", metavar="FILE", help="Write the documents to FILE too, for the other party."
    )(function)


@contract.command()
@click.option("--to", "counterparty", metavar="NAME", required=True, help="The other party.")
@click.option("--min-price", metavar="M", help="Least price of a unit and second.")
@click.option("--max-price", metavar="M", help="Highest price of a unit and second.")
@click.option("--price", metavar="M", help="Instead: cost of a unit at capacity; with --tasks.")
@click.option("--tasks", type=int, metavar="K", help="Full peers that load is to flow through.")
@click.option("--task-load", type=float, metavar="U", help="Units of a task (default: 1).")
@click.option("--capacity", type=float, metavar="U", help="Units of a peer (default: 80).")
@click.option("--runs", metavar="MENU", help="What we run for them (default: nothing).")
@click.option("--they-run", metavar="MENU", help="What they run for us (default: nothing).")
@click.option("--no-sublet", is_flag=True, help="Tasks must not be passed on to third parties.")
@click.option("--migration-cost", metavar="M", help="What a move must be worth.")
@click.option(
    "--replicas",
    type=int,
    metavar="N",
    help="Peers to run each task (for active standby, to come).",
)
@click.option("--availability", metavar="TIME", help="Longest standstill, as in 30s.")
@click.option("--content", metavar="STREAM", help="A content contract: pay for this stream.")
@click.option("--sender", metavar="NAME", help="Who sends it (default: whose name it bears).")
@click.option("--per-message", metavar="M", help="Price of a tuple of it.")
@click.option("--per-period", metavar="M", help="Price of each --period of it.")
@click.option("--period", metavar="TIME", help="As in 1h.")
@click.option("--suggest", metavar="STREAM", help="Suggest another source of this stream.")
@click.option("--peer", "suggested_peer", metavar="ID", help="A peer to read it from.")
@click.option("--alternative", metavar="STREAM", help="A stream to read instead.")
@click.option("--valid-for", default="30d", show_default=True, metavar="TIME")
@click.option("--from", "begin", metavar="DATE", help="When it begins (default: now).")
@_out_option
@root_option
@home_option
@json_option
def propose(
    *,
    counterparty: str,
    valid_for: str,
    begin: str | None,
    out: str | None,
    root: str | None,
    home: str | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - click's options of the three kinds, by name
) -> None:
    """Propose a contract to participant NAME."""
    from medusa.tools.client.times import parse_time
    from medusa.tools.commands.peer import contract_calls
    from medusa.tools.commands.peer.contract_terms import parse_duration

    office = contract_calls.open_office(home)
    terms = _terms(options, office.participant, counterparty)
    outcome = contract_calls.make_proposal(
        office,
        office.root(root),
        counterparty,
        terms,
        valid_from=None if begin is None else parse_time(begin) / 1e6,
        valid_for=parse_duration(valid_for),
    )
    _report(office, [outcome], out, as_json)


@contract.command()
@click.argument("what", metavar="ID|FILE", shell_complete=contract_ids)
@_out_option
@root_option
@home_option
@json_option
def accept(what: str, out: str | None, root: str | None, home: str | None, as_json: bool) -> None:
    """Sign the proposal with that ID, or the one in FILE (- for standard input).

    Other documents in FILE, as the other party's acceptance of our proposal, are taken in.
    """
    from medusa.contracts.contract import State
    from medusa.tools.commands.peer import contract_calls

    office = contract_calls.open_office(home)
    if _is_id(what):
        signer = office.root(root)
        outcomes = [contract_calls.accept_proposal(office, signer, office.book.find(what))]
    else:
        outcomes = [
            contract_calls.accept_proposal(office, office.root(root), outcome.contract)
            if outcome.state is State.THEIR_PROPOSAL
            else outcome
            for outcome in contract_calls.take_in(office, what)
        ]
    _report(office, outcomes, out, as_json)


@contract.command("list")
@click.argument("id_", metavar="[ID]", required=False, shell_complete=contract_ids)
@click.option("--all", "everything", is_flag=True, help="Expired and revoked ones too.")
@home_option
@json_option
def list_contracts(id_: str | None, everything: bool, home: str | None, as_json: bool) -> None:
    """List the contracts, or show all that the one with that ID says."""
    from medusa.tools.commands import plain_tables
    from medusa.tools.commands.peer import contract_calls, contract_screen

    office = contract_calls.open_office(home)
    for problem in office.book.problems:
        warn(problem)
    if id_ is not None:
        chosen = office.book.find(id_)
        if as_json:
            say_json(contract_screen.as_json(office, chosen))
        else:
            plain_tables.show(contract_screen.contract_details(office, chosen))
        return
    contracts = [
        each
        for each in office.book.all()
        if everything or not office.book.state(each, office.now).ended
    ]
    if as_json:
        say_json([contract_screen.as_json(office, each) for each in contracts])
    elif contracts:
        plain_tables.show(contract_screen.contract_table(office, contracts))
    else:
        click.echo("no contracts" if everything else "no contracts; --all shows ended ones")


@contract.command()
@click.argument("id_", metavar="ID", shell_complete=contract_ids)
@_out_option
@root_option
@yes_option
@home_option
@json_option
def revoke(
    *,
    id_: str,
    out: str | None,
    root: str | None,
    yes: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """End contract ID, withdraw our proposal or decline theirs. It cannot be taken back.

    The beginning of an id is enough where no other one begins so.
    """
    from medusa.contracts.contract import SHORT_ID, State
    from medusa.tools.commands.peer import consequences, contract_calls
    from medusa.tools.commands.peer.contract_terms import in_short

    office = contract_calls.open_office(home)
    signer = office.root(root)
    chosen = office.book.find(id_)
    state = office.book.state(chosen, office.now)
    if not yes:
        what = (
            f"this revokes contract {chosen.id[:SHORT_ID]} with "
            f"{chosen.counterparty(office.participant)} ({state}: "
            f"{in_short(chosen.proposal.terms)}), for good:"
        )
        runs = state is State.IN_FORCE
        confirm(what, consequences.of_contract(office.home, chosen) if runs else [], yes=yes)
    outcome = contract_calls.revoke_contract(office, signer, chosen)
    _report(office, [outcome], out, as_json)


@contract.command()
@click.argument("id_", metavar="[ID]", required=False, shell_complete=contract_ids)
@home_option
@json_option
@click.pass_context
def balance(context: click.Context, id_: str | None, home: str | None, as_json: bool) -> None:
    """Show what this peer has earned and spent by receipts that both sides signed."""
    from medusa.tools.commands import plain_tables
    from medusa.tools.commands.peer import contract_calls, contract_screen

    office = contract_calls.open_office(home)
    chosen = "" if id_ is None else office.book.find(id_).id
    found = contract_calls.balances(office, chosen)
    if as_json:
        say_json(contract_screen.balances_json(found, chosen))
    elif found.contracts:
        plain_tables.show(contract_screen.balance_table(office, found))
    else:
        click.echo("nothing was settled yet")
    if found.fault:
        warn(f"the ledger cannot be believed: {found.fault}")
        context.exit(1)


def _report(office: Office, outcomes: list[Outcome], out: str | None, as_json: bool) -> None:
    from pathlib import Path

    from medusa.tools.commands import plain_tables
    from medusa.tools.commands.peer import contract_calls, contract_screen

    if out is not None:
        if len(outcomes) != 1:
            raise click.UsageError("--out is for one contract; write it with accept ID --out")
        contract_calls.save_papers(Path(out), outcomes[0].contract)
    if as_json:
        values = [contract_screen.outcome_json(office, outcome) for outcome in outcomes]
        say_json(values[0] if len(values) == 1 else values)
        return
    for outcome in outcomes:
        plain_tables.show(contract_screen.contract_details(office, outcome.contract))
        if outcome.signed:
            say(False, None, contract_screen.in_words(outcome, office))
    if out is not None:
        click.echo(f"written to {out}")


def _is_id(text: str) -> bool:
    """Whether the text is hexadecimal digits, so an id; a file of such a name is ./named."""
    return set(text) <= set("0123456789abcdef")


def _terms(options: dict[str, Any], participant: str, counterparty: str) -> Terms:
    """The terms in the options.

    Raises:
        click.UsageError: options of different kinds of contract, or too few of one.
        InvalidInputError: a value is malformed.
    """
    given = {name for name, value in options.items() if value not in {None, False}}
    kinds = {
        "--content": ("content" in given, _CONTENT_OPTIONS),
        "--suggest": ("suggest" in given, _SUGGEST_OPTIONS),
    }
    chosen = [name for name, (is_given, _) in kinds.items() if is_given]
    if len(chosen) > 1:
        raise click.UsageError("--content and --suggest are different contracts: give one")
    foreign = set(_LOAD_OPTIONS) if chosen else set()
    for name, (_, others) in kinds.items():
        foreign |= set() if name in chosen else set(others)
    if chosen == ["--suggest"]:
        foreign.add("availability")
    if wrong := sorted(given & foreign):
        kind = chosen[0] if chosen else "a contract about load"
        raise click.UsageError(f"{_flag(wrong[0])} does not go with {kind}")
    if "content" in given:
        return _content_terms(options, participant, counterparty)
    if "suggest" in given:
        return _suggested_terms(options)
    return _load_terms(options)


def _load_terms(options: dict[str, Any]) -> Terms:
    from medusa.contracts.terms import LoadTerms, Menu
    from medusa.tools.commands.peer.contract_terms import parse_duration, parse_menu, parse_money

    if options["runs"] is None and options["they_run"] is None:
        raise click.UsageError("say who runs what: --runs MENU (we for them), --they-run MENU")
    low, high = _prices(options)
    return LoadTerms(
        low,
        high,
        parse_menu(options["runs"]) if options["runs"] is not None else Menu(),
        parse_menu(options["they_run"]) if options["they_run"] is not None else Menu(),
        not options["no_sublet"],
        parse_money(options["migration_cost"] or "0"),
        parse_duration(options["availability"] or "0s"),
        options["replicas"] or 0,
    )


def _prices(options: dict[str, Any]) -> tuple[int, int]:
    from medusa.tools.commands.peer.contract_terms import computed_range, parse_money

    given = [options["min_price"] is not None, options["max_price"] is not None]
    computed = [options["price"] is not None, options["tasks"] is not None]
    if all(given) and not any(computed):
        return parse_money(options["min_price"]), parse_money(options["max_price"])
    if all(computed) and not any(given):
        return computed_range(
            parse_money(options["price"]),
            options["tasks"],
            1.0 if options["task_load"] is None else options["task_load"],
            80.0 if options["capacity"] is None else options["capacity"],
        )
    raise click.UsageError("give --min-price and --max-price, or --price and --tasks")


def _content_terms(options: dict[str, Any], participant: str, counterparty: str) -> Terms:
    from medusa.contracts.terms import ContentTerms
    from medusa.overlay.names import ObjectName
    from medusa.tools.commands.peer.contract_terms import parse_duration, parse_money

    sender = options["sender"] or ObjectName.parse(options["content"]).participant
    if sender not in {participant, counterparty}:
        raise click.UsageError(f"say who sends it: --sender {participant} or {counterparty}")
    return ContentTerms(
        options["content"],
        sender,
        parse_money(options["per_message"] or "0"),
        parse_money(options["per_period"] or "0"),
        parse_duration(options["period"] or "0s"),
        parse_duration(options["availability"] or "0s"),
    )


def _suggested_terms(options: dict[str, Any]) -> Terms:
    from medusa.contracts.terms import SuggestedTerms

    return SuggestedTerms(
        options["suggest"], options["suggested_peer"] or "", options["alternative"] or ""
    )


def _flag(name: str) -> str:
    return "--" + {"suggested_peer": "peer"}.get(name, name).replace("_", "-")
