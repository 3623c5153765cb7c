"""One Spark for the tests that request it, which one worker runs, also as a server of Spark Connect; and an S3 server
on loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logwright.spark import session
from tests.support.s3 import s3_server

__all__ = ["s3_server"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("spark")
    made = session(
        "local[2]",
        spark_ui_enabled="false",
        spark_sql_shuffle_partitions="2",
        spark_sql_warehouse_dir=str(directory / "warehouse"),
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_host="127.0.0.1",
        spark_sql_session_timeZone="UTC",
        spark_plugins="org.apache.spark.sql.connect.SparkConnectPlugin",
        spark_connect_grpc_binding_address="127.0.0.1",
        spark_connect_grpc_binding_port="0",
        spark_connect_progress_reportInterval="50ms",
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def server(spark: Any) -> str:
    """The URL of Spark Connect of the same JVM."""
    service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    return f"sc://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def _client(server: str) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    made = SparkSession.builder.remote(server).config("spark.sql.session.timeZone", "UTC").create()
    yield made
    made.stop()


@pytest.fixture
def connect(_client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session of Spark Connect. PySpark's functions make columns for it while a test has this fixture."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    yield _client
    for query in _client.streams.active:
        query.stop()


@pytest.fixture(autouse=True)
def _stopped(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop every query after a failed test."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()
