"""The boxes that a script's reader has typed, compared with the same boxes typed anew."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.engine.expressions.user_functions import declared
from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.document import Document
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.typing import type_box


def check_typed(document: Document, inputs: Mapping[str, Schema]) -> None:
    """Check that every box is handed on, and as its query's creation would type it."""
    known = dict(inputs)
    for query in document.queries:
        functions = declared(query)
        for box in ordered_boxes(query):
            made = document.typed.typed(box, known, functions)
            assert made is document.typed.typed(box, known, functions), box.name
            assert made == type_box(box, known, functions=functions)
            known.update(made.schemas)
