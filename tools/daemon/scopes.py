"""The scopes that a client's token must have, for every call that clients may make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from medusa.contracts.delivery import DELIVER
from medusa.overlay.client_tokens import EVERY_SCOPE, Scope
from medusa.tools.home.messages import ADMIT, BALANCE, FREEZE, LEAVE, MARKET_STATUS

_READ: Final = frozenset({Scope.READ})
_POST: Final = frozenset({Scope.POST})
_DEFINE: Final = frozenset({Scope.DEFINE})
_OPERATE: Final = frozenset({Scope.OPERATE})

SCOPES: Final[Mapping[str, frozenset[Scope]]] = {
    # names, owners and schemas: clients that post, define or move need them too
    "lookup_object": EVERY_SCOPE,
    "list_objects": EVERY_SCOPE,
    # Tuples.
    "subscribe": _READ,
    "receive_events": _READ,
    "post_event": _POST,
    # objects
    "create_schema": _DEFINE,
    "create_stream": _DEFINE,
    "alter_stream": _DEFINE,
    "delete_stream": _DEFINE,
    "reopen_stream": _DEFINE,
    "delete_schema": _DEFINE,
    "create_query": _DEFINE,
    "create_document": _DEFINE,
    "modify_query": _DEFINE,
    "set_query_status": _DEFINE,
    "create_view": _DEFINE,
    "delete_view": _DEFINE,
    # operation
    "status": _READ | _DEFINE | _OPERATE,
    MARKET_STATUS: _READ | _OPERATE,
    BALANCE: _READ | _OPERATE,
    "move_task": _OPERATE,
    ADMIT: _OPERATE,
    LEAVE: _OPERATE,
    DELIVER: _OPERATE,
    FREEZE: _OPERATE,
}
"""By method: a token with any one of these scopes may call it."""
