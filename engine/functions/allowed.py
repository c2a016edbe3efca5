"""The functions that an operator allows: `[functions]` of medusa.toml.

    [functions]
    distance = "geo.py:distance"        # a file in the folder `functions` of the peer's home
    score = "entry:score"               # an installed one: an entry point of `medusa.functions`

    [functions.label]
    source = "/srv/models/label.py:label"
    arguments = ["double", "string"]        # else from its annotations
    result = "string"
    deterministic = true
    time_s = 5.0
    memory_bytes = 1073741824

The code is read, never run, to find its types. It runs in processes of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from msgspec import structs

from medusa.engine.expressions.user_functions import check_names, without_unused
from medusa.engine.functions.code import digest, read_code
from medusa.engine.objects.functions import UserFunction, check_function
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import FieldType
from medusa.overlay.errors import InvalidInputError

ENTRY: Final = "entry"
"""The prefix of the source of an installed function."""

GROUP: Final = "medusa.functions"
"""The group of such a function's entry point."""

TIME_S: Final = 10.0
"""The default of `time_s`: a call is some microseconds; a call over a network some milliseconds."""

MAX_TIME_S: Final = 600.0
"""The longest `time_s`: consumers of the query wait for as long."""

MEMORY_BYTES: Final = 512 * 2**20
"""The default of `memory_bytes`: a page of tuples and a small model."""

MIN_MEMORY_BYTES: Final = 2**24

_TYPES: Final = {
    "bool": FieldType.BOOL,
    "int": FieldType.LONG,
    "float": FieldType.DOUBLE,
    "str": FieldType.STRING,
    "datetime": FieldType.TIMESTAMP,
}
"""The types of arguments and results, by Python's types."""

_PYTHON: Final = ", ".join(_TYPES)


class Form(StrEnum):
    """The form of a function's arguments and of its result."""

    VALUE = "value"
    """The arguments of one tuple; its result."""
    ARROW = "arrow"
    """A `pyarrow.Array` for each argument; one of the results."""
    PANDAS = "pandas"
    """The function takes a `pandas.Series` for each argument, and returns one with the results."""


@dataclass(frozen=True)
class FunctionSettings:
    """The settings of one function.

    Attributes:
        source: FILE.py:NAME or entry:NAME; a relative FILE is in the folder of functions.
        arguments, result: its types, if its annotations do not say them.
        deterministic: equal arguments give equal results, at any time and at any peer.
        time_s: the longest that a call may take, seconds; of a function over columns, a call is
            one over some thousand tuples.
        memory_bytes: the memory that its process may take, beyond what Python and Arrow need.
    """

    source: str
    arguments: tuple[FieldType, ...] | None = None
    result: FieldType | None = None
    deterministic: bool = False
    time_s: float = TIME_S
    memory_bytes: int = MEMORY_BYTES

    def __post_init__(self) -> None:
        if not 0 < self.time_s <= MAX_TIME_S:
            raise InvalidInputError(f"time_s is more than 0 and at most {MAX_TIME_S:g} seconds")
        if self.memory_bytes < MIN_MEMORY_BYTES:
            raise InvalidInputError(f"memory_bytes is at least {MIN_MEMORY_BYTES}")


@dataclass(frozen=True)
class Code:
    """Where a function's code is.

    Attributes:
        path: the file. module: the installed module that the file is; "": none. name: the
        function's name in that file.
    """

    path: Path
    module: str
    name: str


@dataclass(frozen=True, repr=False)
class AllowedFunction:
    """A function that may run at this peer.

    Attributes:
        function: as queries name it, with its fingerprint.
        nulls: for each argument, whether it takes a null one; else its result is null then.
        time_s, memory_bytes: see `FunctionSettings`.
    """

    function: UserFunction
    code: Code
    form: Form
    nulls: tuple[bool, ...]
    time_s: float
    memory_bytes: int

    def __repr__(self) -> str:
        """Write the code as a peer's log shows it."""
        return f"<{self.function.signature} of {self.function.source}>"


@dataclass(frozen=True)
class FunctionsConfig:
    """The functions of users that queries may call at this peer.

    Attributes:
        allowed: the allowed functions, by name.
    """

    allowed: Mapping[str, AllowedFunction] = field(default_factory=dict)


NO_FUNCTIONS: Final = FunctionsConfig()


def allowed_function(name: str, settings: FunctionSettings, folder: Path) -> AllowedFunction:
    """A function of an operator's list.

    Args:
        folder: the folder in which files with relative names are.

    Raises:
        InvalidInputError: there is no such code, or its types are not known.
    """
    code, version = _find(settings.source, folder)
    text = read_code(code.path)
    parsed = _parsed(text, code)
    arguments, result = settings.arguments, settings.result
    arguments = parsed.arguments if arguments is None else arguments
    result = parsed.result if result is None else result
    if arguments is None or result is None:
        raise InvalidInputError(
            f"{settings.source}: its annotations do not say its types ({_PYTHON}): annotate it, or "
            "set arguments and result"
        )
    if len(arguments) != parsed.count:
        raise InvalidInputError(
            f"{settings.source}: it takes {parsed.count} arguments, not {len(arguments)}"
        )
    function = UserFunction(
        name, arguments, result, settings.source, settings.deterministic, digest(text, version)
    )
    check_function(function)
    check_names([function])
    return AllowedFunction(
        function, code, parsed.form, parsed.nulls, settings.time_s, settings.memory_bytes
    )


def version_of(entry: EntryPoint) -> str:
    """The name and version of the package of an entry point."""
    return "" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def entry_point(name: str) -> EntryPoint:
    """An installed function. Raises: InvalidInputError: there is none of that name, or several."""
    found = list(entry_points(group=GROUP, name=name))
    if len(found) != 1:
        known = ", ".join(sorted({each.name for each in entry_points(group=GROUP)})) or "none"
        raise InvalidInputError(
            f"{ENTRY}:{name[:64]}: {len(found) or 'no'} entry points of that name in the group "
            f"{GROUP!r}; installed are {known}"
        )
    return found[0]


def _find(source: str, folder: Path) -> tuple[Code, str]:
    """Find the file of the code, and its package's version."""
    place, colon, name = source.rpartition(":")
    if colon and place == ENTRY:
        entry = entry_point(name)
        spec = _spec(entry)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            raise InvalidInputError(f"{source}: {entry.module} is no file of Python")
        return Code(Path(spec.origin), entry.module, entry.attr), version_of(entry)
    if not colon or not place.endswith(".py") or not name.isidentifier():
        raise InvalidInputError(f"{source[:80]!a} is neither FILE.py:NAME nor {ENTRY}:NAME")
    return Code((folder / place).resolve(), "", name), ""


def _spec(entry: EntryPoint) -> ModuleSpec | None:
    try:
        return find_spec(entry.module)
    except (ImportError, ValueError, AttributeError):
        return None


@dataclass(frozen=True)
class _Parsed:
    """The signature in the text of a function; None: the text does not say it."""

    arguments: tuple[FieldType, ...] | None
    result: FieldType | None
    count: int
    form: Form
    nulls: tuple[bool, ...]


def _parsed(text: bytes, code: Code) -> _Parsed:
    where = f"{code.path}:{code.name}"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInputError(f"{code.path}: it is no Python: {error}") from None
    found = [
        each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == code.name
    ]
    if not found:
        raise InvalidInputError(f"{where}: there is no such function in the file")
    node = found[-1]
    given = node.args
    if given.vararg or given.kwarg or given.kwonlyargs:
        raise InvalidInputError(f"{where}: it takes positional arguments, and no others")
    annotations = [each.annotation for each in (*given.posonlyargs, *given.args)]
    kinds = {_kind(each) for each in (*annotations, node.returns)}
    form = next((each for each in (Form.ARROW, Form.PANDAS) if each in kinds), Form.VALUE)
    types = [_TYPES.get(_plain(each)[0]) for each in annotations]
    known = tuple(each for each in types if each is not None)
    return _Parsed(
        known if len(known) == len(types) and form is Form.VALUE else None,
        _TYPES.get(_plain(node.returns)[0]) if form is Form.VALUE else None,
        len(annotations),
        form,
        tuple(form is not Form.VALUE or _plain(each)[1] for each in annotations),
    )


def _kind(annotation: ast.expr | None) -> Form:
    name = _plain(annotation)[0]
    return {"Array": Form.ARROW, "Series": Form.PANDAS}.get(name, Form.VALUE)


def _plain(annotation: ast.expr | None) -> tuple[str, bool]:
    """The last name of an annotation, and whether it allows None."""
    match annotation:
        case ast.Constant(value=str() as text):
            try:
                return _plain(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError, RecursionError):
                return "", False
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _plain(left)[0], True
        case ast.BinOp(left=ast.Constant(value=None), op=ast.BitOr(), right=right):
            return _plain(right)[0], True
        case ast.Subscript(value=value, slice=inner) if _plain(value)[0] == "Optional":
            return _plain(inner)[0], True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name, False
        case _:
            return "", False


class Functions:
    """The functions that may run at this peer."""

    def __init__(self, allowed: Mapping[str, AllowedFunction]) -> None:
        self._allowed = dict(allowed)

    def allow(self, allowed: Mapping[str, AllowedFunction]) -> None:
        """Allow these from now on, and no others."""
        self._allowed = dict(allowed)

    def completed(self, query: Query) -> Query:
        """The query with the definitions of the functions that it calls: of those that it declares,
        and of those that only this peer knows.

        Raises:
            InvalidInputError: this peer does not allow a declared function, or has other code under
                its name.
        """
        known = {each.name for each in query.functions}
        others = [each.function for name, each in self._allowed.items() if name not in known]
        all_ = without_unused(structs.replace(query, functions=(*query.functions, *others)))
        declared = tuple(self.pinned(each) for each in all_.functions)
        return structs.replace(query, functions=declared)

    def modified(self, query: Query) -> Query:
        """The modified query with the definitions of its functions. Its boxes may call functions
        that the query called before, with their former code, and other functions that this peer
        allows."""
        if not self._allowed:
            return query
        known = {each.name for each in query.functions}
        used = self.completed(structs.replace(query, functions=())).functions
        more = tuple(each for each in used if each.name not in known)
        return structs.replace(query, functions=(*query.functions, *more))

    def pinned(self, function: UserFunction) -> UserFunction:
        """A function that a document names, with the fingerprint of the code here.

        Raises:
            InvalidInputError: the function is not allowed here, or its code is different.
        """
        here = self._named(function.name).function
        differ = (here.arguments, here.result) != (function.arguments, function.result)
        if differ:
            raise InvalidInputError(
                f"function {function.name} is {here.signature} here, not {function.signature}"
            )
        if here.source != function.source:
            raise InvalidInputError(
                f"function {function.name} is {here.source!a} here, not {function.source!a}"
            )
        if function.deterministic and not here.deterministic:
            raise InvalidInputError(
                f"function {function.name} is not declared deterministic here: leave DETERMINISTIC "
                "out, or have the operator set it in [functions] of medusa.toml"
            )
        return UserFunction(
            function.name,
            function.arguments,
            function.result,
            function.source,
            function.deterministic,
            here.fingerprint,
        )

    def find(self, function: UserFunction) -> AllowedFunction:
        """The code of a function of a query.

        Raises:
            InvalidInputError: the function is not allowed here, or its code is different.
        """
        here = self._named(function.name)
        if self.pinned(function).fingerprint != function.fingerprint:
            raise InvalidInputError(
                f"function {function.name}: {function.source} has the fingerprint "
                f"{here.function.fingerprint[:12]} here, and the query was made with "
                f"{function.fingerprint[:12]}: put that code back, or allow the new code under "
                "another name and modify the query"
            )
        return here

    def _named(self, name: str) -> AllowedFunction:
        found = self._allowed.get(name)
        if found is None:
            known = ", ".join(sorted(self._allowed)) or "none"
            raise InvalidInputError(
                f"function {name[:64]} is not allowed at this peer (there are {known}): its "
                "operator adds it to [functions] of medusa.toml"
            )
        return found
