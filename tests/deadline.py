"""The deadline after which a test stops waiting."""

from typing import Final

DEADLINE_S: Final = 240.0
"""Seconds after which a hanging test is ended, with the place where it hangs. It measures nothing:
a step that takes a second here takes many on a slower or busier machine. pytest's own limit is
longer, as several such waits may follow each other."""
