"""The functions of the language on the screen, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches

from medusa.engine.language.functions_in_words import (
    FunctionInWords,
    functions_in_words,
    shown,
)
from medusa.overlay.errors import NotFoundError
from medusa.tools.commands.plain_tables import NamesTable, details_table, show


def every() -> list[dict[str, object]]:
    """All functions, in the form for JSON."""
    return [asdict(each) for each in functions_in_words()]


def one(name: str) -> dict[str, object]:
    """A function, in the form for JSON. Raises: NotFoundError: no function has the name."""
    return asdict(_of(name))


def names() -> list[str]:
    """All names that a call may have."""
    return sorted(name for each in functions_in_words() for name in (each.name, *each.other_names))


def _of(name: str) -> FunctionInWords:
    found = {each.name: each for each in functions_in_words()}
    found |= {other: each for each in found.values() for other in each.other_names}
    if name.lower() not in found:
        alike = get_close_matches(name.lower()[:80], found)
        mend = f"; alike are {', '.join(alike)}" if alike else "; `medusa function list` has all"
        raise NotFoundError(f"there is no function {name[:80]!a}{mend}")
    return found[name.lower()]


def print_list() -> None:
    """Print the functions, by subject."""
    table = NamesTable("function", "of", "gives", gives_way=("of",), wraps=("gives",), whole=_WHOLE)
    for each in functions_in_words():
        table.add(each.call, each.subject.lower(), each.gives)
    show(table)


_WHOLE = "medusa function show FUNCTION"


def print_one(name: str) -> None:
    """Print a function. Raises: NotFoundError: no function has the name."""
    found = _of(name)
    rows = [("function", found.call), ("gives", found.gives), ("takes", found.takes)]
    rows += [("constant", found.constant)] if found.constant else []
    rows += [("result", found.result)] if found.result else []
    rows.append(("may be null", found.nulls))
    rows += [("also", ", ".join(found.other_names))] if found.other_names else []
    for each in found.examples:
        of = "" if not each.values else f"   x: {', '.join(map(shown, each.values))}"
        rows.append(("example", f"{each.text} = {shown(each.result)}{of}"))
        if each.differs:
            rows.append(("elsewhere", each.differs))
    show(details_table(rows))
