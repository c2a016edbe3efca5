"""The deadline after which a test stops waiting."""

from typing import Final

DEADLINE_S: Final = 240.0
"""Seconds, everywhere. It ends a test that hangs, with the place where it does, and measures
nothing: what takes a second here takes many on a machine that is slower, or does other things.
pytest's own limit is longer, as several such waits may follow each other."""
