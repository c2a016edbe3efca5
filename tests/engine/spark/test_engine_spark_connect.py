"""A peer whose Spark is behind a Connect server gives the same answers, also if the server is
lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from computing_elsewhere import Run, expected
from engine_peers import Cluster, until
from spark_cluster import SECRET, open_connect_server, port_of

from medusa.engine.spark.config import SparkConfig
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.files import write_secret

pytestmark = [pytest.mark.spark, pytest.mark.process]


@pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas", "ignore:.RETRIES_EXCEEDED"
)
@pytest.mark.usefixtures("spark_stopped")
async def test_answers_of_a_connect_server_are_exact_though_it_is_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    # monkeypatch removes the variable after the test
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with open_connect_server(tmp_path / "server") as server:
        master = f"sc://localhost:{port_of(server)}"
        run = await Run.begin(cluster, f'[spark]\nmaster = "{master}"\n', SECRET)
        await run.post()
        await run.computed()
        server.kill()
        await run.post()
        await until(lambda: run.task_says("failing", f"{master} is gone, or has forgotten"))
        server.start()
        await run.computed()
        await run.post()
        await run.computed()
        assert await run.answers() == expected(range(run.posted))


def test_a_token_stands_in_a_file_of_its_own_and_is_sent_to_no_server_in_clear(
    tmp_path: Path,
) -> None:
    connect = pytest.importorskip("medusa.engine.spark.connect")
    with pytest.raises(InvalidInputError, match=r"spark\.secret beside it"):
        SparkConfig("sc://head:15002/;token=abc")
    secret = tmp_path / "spark.secret"
    config = SparkConfig("sc://head:15002", secret_file=secret)
    with pytest.raises(InvalidInputError, match="is reached in clear"):
        connect.url_of(config)
    assert connect.url_of(SparkConfig("sc://localhost")) == "sc://localhost"
    encrypted = "sc://head:15002/;use_ssl=true"
    assert connect.url_of(SparkConfig(encrypted)) == encrypted
    write_secret(secret, b"a;b\n")
    assert connect.url_of(config) == "sc://head:15002/;token=a%3Bb"
