"""Medusa for Python programs: define, post and subscribe, through a peer of your own.

    from medusa import MedusaClient

    with MedusaClient() as medusa:
        medusa.post_event("medusa://mit.edu/conns", rows)

`MedusaClient` is for programs without an event loop, `open_medusa` for those on asyncio or trio.
`docs/python.md` has examples. Names that are not in `__all__` may change without notice.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medusa.public import *  # noqa: F403 -- one list of the names
    from medusa.public import __all__ as __all__
    from medusa.public import __version__ as __version__


def __getattr__(name: str) -> object:
    """Import the public names when a program first asks for one: the commands and the peer's parts
    are in this package too, and `medusa --help` needs none of them."""
    if name.startswith("__") and name not in {"__all__", "__version__"}:
        raise AttributeError(name)
    public = import_module("medusa.public")
    try:
        return getattr(public, name)
    except AttributeError:
        raise AttributeError(f"module 'medusa' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return list(import_module("medusa.public").__all__)
