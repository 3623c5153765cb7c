"""One Spark for the tests that request it, which one worker runs; and an S3 server on loopback."""

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
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _stopped(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop every query after a failed test."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()
