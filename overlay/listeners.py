"""Functions that one part of a peer passes to another: listeners to changes, and decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Listeners(Generic[P]):
    """The functions that are called at one kind of news: any number, in the order they were added.

    The owner of the news has one `Listeners[[PeerId, Health]]` for each kind, and calls `notify`. A
    listener runs within that call: it must not block.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[P, object]] = []

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Callable[P, object]) -> None:
        """Call `listener` at all news from now on, for as long as the owner lives."""
        self._listeners.append(listener)

    @contextmanager
    def listening(self, listener: Callable[P, object]) -> Iterator[None]:
        """Call `listener` at all news within the block, and at none after it."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all listeners; an error of one goes to the caller, and the later ones are not
        called."""
        for listener in tuple(self._listeners):
            listener(*args, **kwargs)


class Decision(Generic[P, R]):
    """A question that one other part of the peer answers; until that part is there, a default.

    The owner of the question has one `Decision(default)` for each, and calls it like a function. A
    second part cannot take it over.
    """

    def __init__(self, default: Callable[P, R]) -> None:
        self._default = default
        self._decide = default

    def made_by(self, decide: Callable[P, R]) -> None:
        """Let `decide` answer from now on.

        Raises:
            RuntimeError: another function answers already.
        """
        if self._decide is not self._default:
            raise RuntimeError(f"{self._decide!r} decides this already, not {decide!r}")
        self._decide = decide

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._decide(*args, **kwargs)
