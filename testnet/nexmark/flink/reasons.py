"""The errors of Java, as Python gets them, in one line. The standard library alone is imported."""

from __future__ import annotations

from typing import Final

_CALL: Final = "An error occurred while calling"
"""The beginning of an error that py4j does not know; Java's own text is in the next line."""

_CAUSE: Final = "Caused by: "


def reason(error: Exception) -> str:
    """Java's innermost cause, without its stack."""
    said = _said(error)
    causes = [line.removeprefix(_CAUSE) for line in said if line.startswith(_CAUSE)]
    return [*said[:1], *causes][-1] if said else repr(error)


def is_timeout(error: Exception) -> bool:
    """Whether the wait itself timed out; a job that fails with a timeout does not count."""
    return "java.util.concurrent.TimeoutException" in (_said(error) or [""])[0]


def _said(error: Exception) -> list[str]:
    """The lines that do not name a place in a program."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    return [line for line in lines if line and not line.startswith(("at ", "... ", _CALL))]
