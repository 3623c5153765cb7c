"""An S3 server on loopback, for tests that request it: a conftest.py imports the fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


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
