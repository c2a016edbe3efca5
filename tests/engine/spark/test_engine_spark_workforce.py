"""A peer reports and reacts when the executors of its cluster come and go."""

from medusa.engine.spark.workforce import Patience, Workforce

MASTER = "spark://head:7077"
PATIENCE = Patience(report_s=10.0, anew_s=60.0)


def workforce() -> Workforce:
    return Workforce(MASTER, PATIENCE)


def texts(force: Workforce, count: int, jobs: int, now: float) -> list[tuple[str, str]]:
    return [(each.level, each.text) for each in force.seen(count, jobs, now)]


def test_executors_that_come_and_go_are_counted() -> None:
    force = workforce()
    assert texts(force, 2, 0, 0.0) == [("info", f"runs with executors of {MASTER}: 2")]
    assert texts(force, 2, 1, 1.0) == []
    ((level, text),) = texts(force, 1, 1, 2.0)
    assert level == "warning"
    assert text.startswith(f"lost executors of {MASTER}: 1 of 2; ")
    assert not force.trouble


def test_jobs_that_wait_for_an_executor_are_reported_once() -> None:
    force = workforce()
    assert texts(force, 0, 1, 0.0) == []
    assert texts(force, 0, 1, 9.0) == []
    ((level, text),) = texts(force, 0, 2, 10.0)
    assert (level, text) == ("error", f"cannot compute: {force.trouble}")
    assert force.trouble.startswith(f"waits for an executor of {MASTER}")
    assert texts(force, 0, 2, 11.0) == []
    assert not force.is_over(59.0)
    assert force.is_over(60.0)
    force.anew()
    assert not force.is_over(60.0)
    assert force.trouble, "what it waits for has not come"
    assert texts(force, 0, 1, 61.0) == []
    assert texts(force, 0, 1, 80.0) == []
    assert texts(force, 1, 1, 81.0) == [("info", f"runs with executors of {MASTER}: 1")]
    assert not force.trouble


def test_a_peer_with_nothing_to_compute_needs_no_executor() -> None:
    force = workforce()
    texts(force, 2, 0, 0.0)
    texts(force, 0, 0, 1.0)
    assert texts(force, 0, 0, 100.0) == []
    assert not force.trouble
    assert not force.is_over(100.0)
    texts(force, 0, 1, 200.0)
    assert not force.is_over(259.0), "only the time counts in which a job waits"
    assert force.is_over(260.0)
