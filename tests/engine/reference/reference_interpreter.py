"""The tests' own notion of what is right; it computes under simulation, too."""

from medusa.engine.reference.interpreter import (
    Row,
    aggregate,
    canonical,
    evaluate,
    run_query,
    run_task,
)

__all__ = ["Row", "aggregate", "canonical", "evaluate", "run_query", "run_task"]
