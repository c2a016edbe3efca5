"""The key of a participant's root; the home with that key signs for the participant."""

from __future__ import annotations

from typing import Final

from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.identity import Identity, Root
from medusa.tools.home.folder import Home

SAY_WHERE: Final = "say where it is with --root HOME"
"""The mend, for commands that have the option --root."""


def load_root(
    home: Home,
    *,
    of: Identity | None = None,
    mend: str = "use the home where `medusa-peer init --participant` ran",
) -> Root:
    """Load the participant's root, key included.

    Args:
        of: a peer, of whose participant this must be the root. mend: the mend in the error if the
            key is not in that home.

    Raises:
        NotFoundError: there is no such home, or it does not have the key.
        InvalidInputError: it is not the root of that peer.
    """
    if not home.folder.is_dir():
        raise NotFoundError(f"{home.folder}: no such folder: {mend}")
    if not home.root_key.exists() and not home.config.exists():
        raise NotFoundError(f"{home.folder}: this folder holds no root.key: {mend}")
    if not home.root_key.exists():
        raise NotFoundError(
            f"{home.root_key}: the participant's root key is not in this home: {mend}"
        )
    root = Root.load(home.folder)
    if of is not None and root.certificate != of.root_certificate:
        raise InvalidInputError(
            f"{home.folder} holds the root of {root.participant}, which is not that of this peer "
            f"of {of.participant}"
        )
    return root
