"""One error out of a tree of concurrent tasks: what a person should read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def first_failure() -> Iterator[None]:
    """Raise the first error of a group of tasks as itself: the others were its consequence."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
