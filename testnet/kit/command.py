"""The frame of a scenario's command: its options, a run until a signal, errors in one line, and
exit codes.

`msgspec.convert` makes the scenario's `Options` from click's values, name by name.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import click
import msgspec
import trio
from rich.console import Console, RenderableType
from rich.text import Text

from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import MedusaError
from medusa.testnet.kit.stages import Stages, open_progress, open_screen

P = TypeVar("P")
T = TypeVar("T")


class Judged(Protocol):
    """The result of a scenario."""

    @property
    def good(self) -> bool:
        """Whether all checks of the scenario hold; if not, the command fails."""


R = TypeVar("R", bound=Judged)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

DIFFERENT: Final = 1
FAILED: Final = 2
INTERRUPTED: Final = 130
"""The exit codes of scenarios."""

ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A closed terminal counts: it must not leave peers running either."""


class NumberRange(click.FloatRange):
    """A range of floats that excludes NaN, which all comparisons let pass."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


def number(  # noqa: PLR0917 - most have all of them
    name: str,
    default: float | None,
    least: float,
    most: float | None = None,
    text: str | None = None,
    metavar: str | None = "N",
    *,
    shown: bool | str = True,
    above: bool = False,
) -> Decorator:
    """An option that is a number: an integer if its default is.

    Args:
        name: the option's name, with the parameter's name appended if that differs.
        text: its help. shown: whether the help names the default, or the text for it.
        above: it must be more than `least`.
    """
    kind: Any = click.IntRange if isinstance(default, int) else NumberRange
    return click.option(
        *name.split(),
        default=default,
        show_default=shown,
        metavar=metavar,
        type=kind(least, most, min_open=above),
        help=text,
    )


def choice(name: str, values: Sequence[str], text: str, default: str | None = None) -> Decorator:
    """An option that is one of these texts; the first by default."""
    default = values[0] if default is None else default
    kind = click.Choice(values)
    return click.option(*name.split(), default=default, show_default=True, type=kind, help=text)


json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Figures as JSON on standard output."
)
keep_option: Final = click.option(
    "--keep", is_flag=True, help="Leave the peers' homes and logs for a look."
)


@contextmanager
def ending_in_one_line() -> Iterator[None]:
    """Turn failures and interrupts of the block into a line and an exit code."""
    try:
        yield
    except MedusaError as error:
        click.echo(f"error: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            click.echo(note, err=True)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


@dataclass(frozen=True)
class Scenario(Generic[R]):
    """A scenario as a value: all that its screen, its JSON and its exit code come from.

    Attributes:
        board: its stages, and what else its live screen shows.
        run: plays it, and fills the board; its result says whether it is `good`, as it must be, and
            may say whether a part of it `failed`, because it could not be run.
        render: the result for people.
        opening: a line to begin with.
    """

    board: Stages
    run: Callable[[], Awaitable[R]]
    render: Callable[[R], RenderableType]
    opening: str = ""

    def play(self, *, as_json: bool) -> NoReturn:
        """Run it, show its result, and end the process with an exit code."""
        console = Console(stderr=as_json)
        if self.opening:
            console.print(self.opening, highlight=False)
        screen = open_screen(self.board, console)
        run_scenario(self.run, screen, console, as_json=as_json, render=self.render)


def run_scenario(
    scenario: Callable[[], Awaitable[R]],
    screen: AbstractAsyncContextManager[object],
    console: Console,
    *,
    as_json: bool,
    render: Callable[[R], RenderableType],
) -> NoReturn:
    """Run a scenario, show its result, and end the process with an exit code.

    Args:
        screen: shown meanwhile.
        render: the result for people.
    """

    async def run() -> R | None:
        async with screen:
            return await unless_told_to_stop(scenario)

    with ending_in_one_line(), one_error():
        result = trio.run(run)
    if result is None:
        click.echo("interrupted: every peer was stopped", err=True)
        sys.exit(INTERRUPTED)
    if as_json:
        print_json(result)
    else:
        console.print(render(result))
    if getattr(result, "failed", False):
        sys.exit(FAILED)
    sys.exit(0 if result.good else DIFFERENT)


def run_each(
    runs: Sequence[tuple[str, Callable[[Callable[[P], None]], T]]],
    console: Console,
    render_progress: Callable[[str, P], Text],
    draw: Callable[[list[T]], None] | None,
) -> list[T]:
    """Run simulations one after the other; returns their results.

    Args:
        runs: the runs, each with its name; a run gets a function, and calls it with its progress.
            draw: makes a picture of the results.
    """
    results: list[T] = []
    with ending_in_one_line():
        with open_progress(console, render_progress) as progress:
            for name, run in runs:
                results.append(run(partial(progress, name)))
        if draw is not None:
            draw(results)
    return results


def print_results(results: Sequence[object]) -> None:
    """Print results as JSON: one by itself, several as a list."""
    print_json(results[0] if len(results) == 1 else results)


def print_json(result: object) -> None:
    """Print a result as JSON on standard output, for scripts."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")


async def unless_told_to_stop(task: Callable[[], Awaitable[T]]) -> T | None:
    """The task's result, or None if a signal ended it; its cleanup is done then."""
    result: T | None = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            with trio.open_signal_receiver(*ENDING_SIGNALS) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        result = await task()
        nursery.cancel_scope.cancel()
    return result
