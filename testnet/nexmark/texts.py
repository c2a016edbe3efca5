"""Columns of random text, made many rows at a time.

The sizes follow the class StringsGenerator of nexmark/nexmark: short texts of letters and gaps, and
fillers that bring an event to a given size on average.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]
"""One whole number for each row."""

SHORTEST: Final = 3
"""Characters of the shortest random text."""

GAP_SHARE: Final = 1 / 13
"""The share of a text's characters that are gaps."""

FILLER_SPREAD: Final = 0.2
"""A filler has its wanted size give or take this share."""


def texts(rng: np.random.Generator, rows: int, below: int, gap: str = " ") -> pa.Array:
    """Random texts of letters and gaps, with no gap at either end.

    Args:
        rng: the random generator. rows: the number of texts. below: an upper limit of each text's
            characters.
        gap: the character between words.
    """
    lengths = rng.integers(SHORTEST, below, rows)
    letters = _letters(rng, int(lengths.sum()))
    letters[rng.random(len(letters)) < GAP_SHARE] = ord(gap)
    return pc.utf8_trim(_split(letters, lengths), gap)


def fillers(rng: np.random.Generator, sizes: Integers, average: int) -> pa.Array:
    """Texts of letters that bring each row to `average` bytes, give or take a fifth of the text.

    Args:
        rng: the random generator. sizes: the bytes that each row has without the filler.
        average: the wanted bytes of a row, on average. A row that has more gets an empty text.
    """
    wanted = np.maximum(average - sizes, 0)
    spread = np.rint(wanted * FILLER_SPREAD).astype(np.int64)
    lengths = wanted - spread + rng.integers(0, np.maximum(2 * spread, 1))
    return _split(_letters(rng, int(lengths.sum())), lengths)


def _letters(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint8]:
    return rng.integers(ord("a"), ord("z") + 1, count, dtype=np.uint8)


def _split(letters: npt.NDArray[np.uint8], lengths: Integers) -> pa.Array:
    """Cut one run of characters into texts of the given lengths."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)
