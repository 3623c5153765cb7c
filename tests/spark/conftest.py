"""One Spark for the tests that ask for it, which one worker runs; and an S3 server on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from logwright.spark import session


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


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server; its one user may do everything."""
    from moto.server import ThreadedMotoServer

    names = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"127.0.0.1:{port}"
    server.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
