"""The engine of a trial: Spark, or plain Python on machines without Java."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import partial
from importlib.util import find_spec

from medusa.engine.reference.executor import open_reference
from medusa.engine.spark.java import find_java
from medusa.engine.tasks.execution import OpenExecutor
from medusa.overlay.errors import InvalidInputError


class Engine(StrEnum):
    """`spark` is the executor of peers, `reference` computes small files without Java."""

    SPARK = "spark"
    REFERENCE = "reference"

    @property
    def execution(self) -> OpenExecutor | None:
        """How the executor is opened; None: the peer's own."""
        return partial(open_reference, None) if self is Engine.REFERENCE else None

    @property
    def remark(self) -> str:
        """A remark for a person who waits while the engine starts; "": it starts at once."""
        return "starts a peer and Spark" if self is Engine.SPARK else ""


def engine_of(asked: str | None) -> tuple[Engine, str]:
    """The engine for a trial, and a remark about the choice. Without Java it is `reference`, which
    computes the same rows, only slower if they are many. Args: asked: the wanted engine; None:
    Spark if it can run. Raises: InvalidInputError: the user wants Spark, and it cannot run here;
    the message says why, and how to mend it.
    """
    if asked == Engine.REFERENCE:
        return Engine.REFERENCE, ""
    missing = _missing()
    if not missing:
        return Engine.SPARK, Engine.SPARK.remark
    if asked == Engine.SPARK:
        raise InvalidInputError(f"{missing}; --engine reference computes small files without it")
    return Engine.REFERENCE, f"computes in plain Python (--engine reference), as there is {missing}"


def _missing() -> str:
    """Why Spark cannot run here."""
    if find_spec("pyspark") is None:
        return "no PySpark: pip install 'medusa-federation[peer]'"
    try:
        find_java(os.environ)
    except InvalidInputError as error:
        return str(error)
    return ""
