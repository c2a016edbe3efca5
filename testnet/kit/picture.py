"""The pictures of scenarios: checking their paths, making figures, saving."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

import click
import trio

from medusa.overlay.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")

DPI: Final = 110
BLUE: Final = "#1f5fa8"
RED: Final = "#b3261e"
AMBER: Final = "#d98324"
GREY: Final = "#8a8a8a"
SUFFIXES: Final = (".png", ".svg", ".pdf")


class PictureFile(click.Path):
    """A path to which a picture can be written, checked before a long run and not after it."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        path = Path(str(value))
        super().convert(path, param, ctx)
        if path.suffix.lower() not in SUFFIXES:
            self.fail(f"{path}: a picture is a .png, .svg or .pdf file", param, ctx)
        if not path.absolute().parent.is_dir():
            self.fail(f"{path.parent}: no such folder; create it, or name another", param, ctx)
        if find_spec("matplotlib") is None:
            self.fail(
                f"pictures need matplotlib: {sys.executable} -m pip install 'matplotlib>=3.8,<4'",
                param,
                ctx,
            )
        return path


picture_option: Final = click.option(
    "--plot",
    metavar="FILE",
    type=PictureFile(),
    help="Draw what happened into FILE: .png, .svg or .pdf.",
)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, inches. It needs no window system and no global state."""
    # imported here: the drawing library is loaded only when needed
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written: {error.strerror}") from error


async def draw(
    path: Path | None, write: Callable[Concatenate[Path, P], None], *args: P.args, **more: P.kwargs
) -> str | None:
    """Have a picture written in a thread, if a file is given for it; returns the file's name.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    if path is None:
        return None
    await trio.to_thread.run_sync(partial(write, path, *args, **more))
    return str(path)
