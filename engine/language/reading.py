"""A text in whichever language it is."""

from __future__ import annotations

from medusa.engine.language.document import Draft


def read_draft(text: str, base: str | None = None) -> Draft:
    """Read XML, in either dialect, or SQL.

    Args:
        base: `medusa://participant/`, the start of names without a participant; None: all have one.

    Raises:
        InvalidInputError: it is neither; names the place and the reason.
    """
    if text.lstrip().startswith("<"):
        from medusa.engine.language.xml.documents import XmlDraft

        return XmlDraft(text, base)
    from medusa.engine.language.sql.script import (
        Script,  # sqlglot is imported with the first script
    )

    return Script(text, base)
