"""The reference interpreter is the tests' own definition of right answers; it also computes under
simulation."""

from medusa.engine.reference.interpreter import (
    Row,
    aggregate,
    canonical,
    evaluate,
    run_query,
    run_task,
)

__all__ = ["Row", "aggregate", "canonical", "evaluate", "run_query", "run_task"]
