"""A step over DataFrames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a task.

    Attributes:
        after, upto: the job computes the results after one boundary, up to the other, microseconds.
        small: whether one core without a shuffle is quicker. own: the task's former output, if a
        step reads it; None: there is none.
    """

    after: int
    upto: int
    small: bool
    own: DataFrame | None = None


class Stage(ABC):
    """One step of a task, with its columns, which are kept between jobs.

    Attributes:
        condition: a column that is true for the rows that it keeps, if the step only filters.
    """

    condition: Column | None = None

    @abstractmethod
    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the step's results in a job. frame: the step's input."""

    def tagged(self, frame: DataFrame, tags: Sequence[str]) -> DataFrame:
        """Return its results for several tasks at once.

        Args:
            frame: the input rows of all these tasks. tags: the columns that tell tasks and windows
                apart.
        """
        del frame, tags
        raise AssertionError("a task with this step runs alone")

    def finished(self, raw: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return the columns of the task's output, if it is the task's last step. raw: the result
        of Spark."""
        return raw.select(names)
