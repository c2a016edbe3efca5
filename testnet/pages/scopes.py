"""The scope that a client's token must have, by call, as a page."""

from __future__ import annotations

from medusa.overlay.client_tokens import EVERY_SCOPE, Scope
from medusa.tools.daemon.scopes import SCOPES


def page() -> str:
    rows = (f"| `{method}` | {_words(scopes)} |\n" for method, scopes in SCOPES.items())
    head = "# Scopes\n\nMade from `tools/daemon/scopes.py` by `make docs`.\n\n"
    return f"{head}| call | a token with |\n|---|---|\n{''.join(rows)}"


def _words(scopes: frozenset[Scope]) -> str:
    if scopes == EVERY_SCOPE:
        return "any scope"
    *others, last = (scope.value for scope in Scope if scope in scopes)
    return f"{', '.join(others)} or {last}" if others else last
