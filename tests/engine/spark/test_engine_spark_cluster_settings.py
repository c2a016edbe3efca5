"""Spark on other machines is closed unless the operator opens it: its settings."""

from pathlib import Path

import pytest

from medusa.engine.spark.config import SparkConfig
from medusa.overlay.errors import InvalidInputError, NotAuthorisedError
from medusa.overlay.files import write_secret

MASTER = "spark://127.0.0.1:7077"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "spark.secret"
    write_secret(path, b"open sesame\n")
    return path


def test_a_cluster_is_used_with_its_secret_and_encrypted(secret: Path) -> None:
    settings = SparkConfig(f"{MASTER},other:7077", secret_file=secret).settings()
    assert settings["spark.authenticate.secret"] == "open sesame"
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.network.crypto.saslFallback"] == "false"
    assert settings["spark.driver.host"] == "127.0.0.1", "as the master is reached"


def test_without_the_secret_the_error_says_where_it_goes(secret: Path) -> None:
    secret.unlink()
    with pytest.raises(
        InvalidInputError, match=r"spark\.secret: no such file: write the cluster's"
    ):
        SparkConfig(MASTER, secret_file=secret).settings()
    write_secret(secret, b"\n")
    with pytest.raises(InvalidInputError, match="is empty"):
        SparkConfig(MASTER, secret_file=secret).settings()


def test_a_secret_that_others_may_read_is_refused(secret: Path) -> None:
    secret.chmod(0o640)
    with pytest.raises(NotAuthorisedError, match="chmod 600"):
        SparkConfig(MASTER, secret_file=secret).settings()
    with pytest.raises(InvalidInputError, match=r"medusa\.toml is no secret"):
        SparkConfig(MASTER, options={"spark.authenticate.secret": "open sesame"})


def test_the_operator_may_switch_authentication_off() -> None:
    settings = SparkConfig(MASTER, options={"spark.authenticate": "false"}).settings()
    assert settings["spark.authenticate"] == "false"
    assert "spark.authenticate.secret" not in settings


@pytest.mark.parametrize("master", ["yarn", "k8s://https://head:6443"])
def test_other_clusters_make_a_secret_themselves(master: str) -> None:
    settings = SparkConfig(master).settings()
    assert settings["spark.authenticate"] == "true"
    assert "spark.authenticate.secret" not in settings


def test_a_local_spark_needs_no_authentication() -> None:
    settings = SparkConfig("local[2]").settings()
    assert "spark.authenticate" not in settings
    assert settings["spark.driver.host"] == "127.0.0.1"
