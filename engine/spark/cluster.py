"""Checks Spark's settings if its executors run on other machines.

Spark's own ports are open by default: any program that reaches such a port may run code there, and
read rows. So a peer's Spark proves a secret to the cluster, and encrypts what it sends. ADR 32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from medusa.overlay.addresses import outward_host
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.files import read_secret

SECRET: Final = "spark.authenticate.secret"  # noqa: S105 - the setting's name

_AUTHENTICATE: Final = "spark.authenticate"

_SETTINGS: Final[Mapping[str, str]] = {
    _AUTHENTICATE: "true",
    "spark.network.crypto.enabled": "true",
    # Spark's default cipher would not notice changes
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",  # the fallback would send in clear
    "spark.io.encryption.enabled": "true",  # workers have shuffled rows on their disks
    # A task that failed at one executor is tried at another: a worker may have lost the shared
    # storage.
    "spark.excludeOnFailure.enabled": "true",
    # Executors log ten lines a job at level INFO, into a file that nobody truncates.
    "spark.log.level": "WARN",
    "spark.executor.syncLogLevel.enabled": "true",
    "spark.executor.defaultJavaOptions": "-Dlog4j2.configurationFile="
    "org/apache/spark/log4j2-defaults.properties",  # a logger has a level once it is named
}

_STANDALONE: Final = re.compile(r"spark://([^:,/]+):(\d+)")


def cluster_settings(
    master: str, options: Mapping[str, str], secret_file: Path | None
) -> dict[str, str]:
    """The settings for a master that is not local; the peer's options win over them.

    Args:
        secret_file: has the secret of a standalone cluster. Other clusters (YARN, Kubernetes) make
            one for each application.

    Raises:
        InvalidInputError: the secret is missing.
        NotAuthorisedError: its file is open to others.
    """
    found = dict(_SETTINGS)
    first = _STANDALONE.match(master)
    if first is not None:
        host = outward_host((first[1], int(first[2])))
        found |= {} if host is None else {"spark.driver.host": host}
        if options.get(_AUTHENTICATE, "true") == "true":
            found[SECRET] = _secret(secret_file)
    return found


def _secret(path: Path | None) -> str:
    mend = (
        f"write the cluster's {SECRET} into it, chmod 600; or, if everybody who reaches the "
        f'cluster may run code on it, set "{_AUTHENTICATE}" = "false" in [spark.options]'
    )
    if path is None:
        raise InvalidInputError(f"no file with the secret of the Spark cluster: {mend}")
    try:
        secret = read_secret(path).decode(errors="replace").strip()
    except NotFoundError:
        raise InvalidInputError(f"{path}: no such file: {mend}") from None
    if not secret:
        raise InvalidInputError(f"{path} is empty: {mend}")
    return secret
