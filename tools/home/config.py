"""Reads medusa.toml into one frozen dataclass per package; refuses unknown keys by name."""

from __future__ import annotations

import dataclasses
import ipaddress
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.files import load_json, mended_by, read_public, save_json
from medusa.tools.home.addresses import Address, format_address, parse_address
from medusa.tools.home.folder import Home

if TYPE_CHECKING:
    from medusa.contracts.config import ContractsConfig
    from medusa.dht.config import DhtConfig
    from medusa.engine.functions.allowed import FunctionsConfig
    from medusa.engine.spark.config import SparkConfig
    from medusa.engine.streams.config import EngineConfig
    from medusa.overlay.node.config import OverlayConfig
    from medusa.tools.home.log_file import LogConfig

T = TypeVar("T")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SECTIONS: Final = (
    "overlay",
    "dht",
    "engine",
    "contracts",
    "spark",
    "client",
    "xmlrpc",
    "log",
    "functions",
)

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""Bytes: settings take a page; a megabyte is a mistaken file."""

DEFAULT_LISTEN: Final[Address] = ("0.0.0.0", 7654)  # noqa: S104 - every connection is mutual TLS
DEFAULT_CLIENT_LISTEN: Final[Address] = ("127.0.0.1", 0)
"""Loopback; run.json has the port that was chosen."""

LEADER_SILENCE_S: Final[Mapping[str, float]] = {"local": 1.0, "lan": 3.0, "wan": 10.0}
"""The default of `engine.leader_silence_s`, by overlay.preset: some times the delay that a slow
peer or a lossy link causes there."""

KEEP_ALIVE_S: Final[Mapping[str, float]] = {"local": 0.1, "lan": 0.25, "wan": 1.0}
"""The default of `engine.keep_alive_s`, by overlay.preset: some round trips; Borealis's are 100 ms,
250 ms, and a second by default."""

TEMPLATE: Final = Path(__file__).with_name("medusa.toml")
"""The medusa.toml that `medusa-peer init` writes: every key with its default, commented out."""


@dataclass(frozen=True)
class ClientConfig:
    """The settings of the listener for clients.

    Attributes:
        listen: the address for this participant's clients.
    """

    listen: Address = DEFAULT_CLIENT_LISTEN


@dataclass(frozen=True)
class XmlRpcConfig:
    """The settings of the listener for clients that speak XML-RPC.

    Attributes:
        listen: its address; None: there is none.
        sinks: networks whose hosts a client may name as its sinks, beside its own host, and to
            which tuples may go in clear.
    """

    listen: Address | None = None
    sinks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.networks()

    def networks(self) -> tuple[Network, ...]:
        """The networks of `sinks`. Raises: ValueError."""
        return tuple(ipaddress.ip_network(text) for text in self.sinks)


@dataclass(frozen=True)
class Config:
    """All settings of one peer, a section per package."""

    overlay: OverlayConfig
    dht: DhtConfig
    engine: EngineConfig
    contracts: ContractsConfig
    spark: SparkConfig
    client: ClientConfig
    xmlrpc: XmlRpcConfig
    log: LogConfig
    functions: FunctionsConfig


def load_config(
    home: Home,
    *,
    listen: Address | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
) -> Config:
    """Read the settings in medusa.toml, with defaults for missing ones.

    Args:
        listen, log_level, log_format: override overlay.listen, log.level, log.format.

    Raises:
        InvalidInputError: names the file, the key and the mistake.
    """
    # imported here: a client reads no config, and these modules are slow to import.
    from medusa.contracts.config import ContractsConfig
    from medusa.dht.config import DhtConfig
    from medusa.engine.spark.config import SparkConfig
    from medusa.engine.streams.config import EngineConfig
    from medusa.tools.home.log_file import LogConfig

    document = _sections(home)

    def section(name: str, kind: type[T], **defaults: object) -> T:
        return read_section(kind, document.get(name, {}), f"{home.config}: {name}", defaults)

    overlay = load_overlay(home)
    if listen is not None:
        overlay = dataclasses.replace(overlay, listen=listen)
    log = section("log", LogConfig)
    return Config(
        overlay=overlay,
        dht=section("dht", DhtConfig),
        engine=section(
            "engine",
            EngineConfig,
            leader_silence_s=LEADER_SILENCE_S[overlay.preset],
            keep_alive_s=KEEP_ALIVE_S[overlay.preset],
        ),
        contracts=section("contracts", ContractsConfig),
        spark=section("spark", SparkConfig, secret_file=home.spark_secret),
        client=load_client(home),
        xmlrpc=section("xmlrpc", XmlRpcConfig),
        log=LogConfig(log_level or log.level, log_format or log.format),
        functions=read_functions(document.get("functions", {}), str(home.config), home.functions),
    )


def read_functions(table: object, where: str, folder: Path) -> FunctionsConfig:
    """The functions of a section `[functions]`.

    Args:
        where: the file, for errors. folder: the folder of the functions' files.

    Raises:
        InvalidInputError: names the function and the mistake.
    """
    from medusa.engine.functions.allowed import FunctionsConfig, FunctionSettings, allowed_function

    assert isinstance(table, dict)
    allowed = {}
    for name, value in table.items():
        about = f"{where}: functions.{name}"
        if not isinstance(value, (str, dict)):
            raise InvalidInputError(f"{about}: say FILE.py:NAME, or a section [functions.{name}]")
        settings = {"source": value} if isinstance(value, str) else value
        if "source" not in settings:
            raise InvalidInputError(f"{about}: source is missing: FILE.py:NAME or entry:NAME")
        read = read_section(FunctionSettings, settings, about)
        try:
            allowed[name] = allowed_function(name, read, folder)
        except InvalidInputError as error:
            raise InvalidInputError(f"{about}: {error}") from None
    return FunctionsConfig(allowed)


def load_overlay(home: Home) -> OverlayConfig:
    """The overlay's settings alone; see `load_config`."""
    from medusa.overlay.node.config import OverlayConfig

    defaults: dict[str, object] = {"listen": DEFAULT_LISTEN, "bootstrap": read_bootstrap(home)}
    table = _sections(home).get("overlay", {})
    return read_section(OverlayConfig, table, f"{home.config}: overlay", defaults)


def load_client(home: Home) -> ClientConfig:
    """The clients' settings alone; see `load_config`."""
    table = _sections(home).get("client", {})
    return read_section(ClientConfig, table, f"{home.config}: client")


def _sections(home: Home) -> dict[str, object]:
    document = read_document(home.config)
    for name, table in document.items():
        if name not in SECTIONS:
            raise InvalidInputError(f"{home.config}: unknown section [{name}]{_known(SECTIONS)}")
        if not isinstance(table, dict):
            raise InvalidInputError(f"{home.config}: {name} must be a section, [{name}]")
    return document


def read_document(path: Path) -> dict[str, object]:
    """Read a TOML file as a dictionary; a missing file counts as empty.

    Raises:
        InvalidInputError: it is too long, or not TOML (with the line).
    """
    try:
        return tomllib.loads(read_public(path, MAX_CONFIG_BYTES).decode())
    except NotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: not UTF-8 at byte {error.start}: save it so") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{path}: {error}") from None


def read_bootstrap(home: Home) -> tuple[Address, ...]:
    """The addresses in the invitation; none for a founder."""
    mend = 'write into it where peers can be reached: ["HOST:PORT"]'
    try:
        with mended_by(home.bootstrap, mend):
            return tuple(map(parse_address, load_json(home.bootstrap, list[str], mend=mend)))
    except NotFoundError:
        return ()


def write_bootstrap(home: Home, addresses: tuple[Address, ...]) -> None:
    texts = [format_address(address) for address in addresses]
    save_json(home.bootstrap, texts)


def read_section(
    section: type[T],
    table: object,
    where: str,
    defaults: Mapping[str, object] | None = None,
) -> T:
    """Convert a TOML table to the dataclass `section`.

    Raises:
        InvalidInputError: an unknown key, a wrong type, or a value that the dataclass refuses.
    """
    assert dataclasses.is_dataclass(section)
    assert isinstance(table, dict)
    settings = {each.name for each in dataclasses.fields(section) if _is_setting(each)}
    hints = {
        name: hint for name, hint in typing.get_type_hints(section).items() if name in settings
    }
    values: dict[str, object] = dict(defaults or {})
    for key, value in table.items():
        if key not in hints:
            raise InvalidInputError(f"{where}.{key}: unknown key{_known(hints)}")
        try:
            values[key] = _convert(value, hints[key])
        except (InvalidInputError, msgspec.ValidationError) as error:
            raise InvalidInputError(f"{where}.{key}: {error}") from None
    try:
        return section(**values)
    except (ValueError, InvalidInputError) as error:
        raise InvalidInputError(f"{where}: {error}") from None


def _is_setting(field: dataclasses.Field[object]) -> bool:
    """Whether the field is a setting of medusa.toml."""
    return bool(field.metadata.get("setting", True))


def _known(names: Iterable[str]) -> str:
    return f" (known: {', '.join(sorted(names))})"


def _convert(value: object, hint: object) -> object:
    """Convert a TOML value to the type of a dataclass field; addresses are written host:port."""
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        (hint,) = [part for part in typing.get_args(hint) if part is not types.NoneType]
    if hint == Address:
        return parse_address(_text(value))
    if hint == tuple[Address, ...]:
        return tuple(parse_address(text) for text in msgspec.convert(value, list[str]))
    if typing.get_origin(hint) is Mapping:
        return dict(_options(msgspec.convert(value, dict[str, object]), ""))
    return msgspec.convert(value, hint)


def _text(value: object) -> str:
    return msgspec.convert(value, str)


def _options(table: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    """Flatten nested tables: `spark.ui.enabled = false` is nested tables to TOML, and one option
    with a text to Spark."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        match value:
            case dict():
                found += _options(value, f"{prefix}{key}.")
            case bool():
                found.append((prefix + key, "true" if value else "false"))
            case str() | int() | float():
                found.append((prefix + key, str(value)))
            case _:
                raise InvalidInputError(f"{prefix}{key}: expected a text, a number or a boolean")
    return found
