"""The status of a server that is kept in a file, and the errors if that is not possible."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import StorageFailed, WrongUse
from logwright.servers.queue.server import QueueServer
from logwright.servers.queue.service import ServerSettings
from tests.servers.queue.support import Client, serving
from tests.servers.queue.test_full_disk import FickleDisk

PUT = b"set q 0 0 1\r\n1\r\n"


def test_status_survives_a_restart_if_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "status"
    settings: dict[str, Any] = {"status_file": file}
    with serving(tmp_path / "queues", **settings) as served, Client(served) as client:
        assert client.ask(b"status\r\n" + PUT + b"status readonly\r\n") == b"UP\r\nSTORED\r\nEND\r\n"
        assert client.ask(b"status asleep\r\nstatus up down\r\n") == b"CLIENT_ERROR unknown status\r\n" * 2
    assert file.read_bytes() == b"READONLY\n"
    with serving(tmp_path / "queues", **settings) as served, Client(served) as client:
        assert client.ask(b"status\r\n" + PUT) == b"READONLY\r\nSERVER_ERROR the server is read-only\r\n"
        assert client.ask(b"get q\r\nstatus up\r\n") == b"VALUE q 0 1\r\n1\r\nEND\r\nEND\r\n"
    with serving(tmp_path / "queues", **settings) as served, Client(served) as client:
        assert client.ask(PUT + b"status quiescent\r\n") == b"STORED\r\nEND\r\n"
    with serving(tmp_path / "queues") as served, Client(served) as client:
        assert client.ask(b"status\r\nget q\r\n") == b"UP\r\nVALUE q 0 1\r\n1\r\nEND\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["queues", "status"]


def test_status_that_cannot_be_saved_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="logwright")
    disk = FickleDisk()
    settings: dict[str, Any] = {"status_file": tmp_path / "status", "disk": disk}
    with serving(tmp_path / "queues", **settings) as served, Client(served) as client:
        disk.failing = {"write": errno.ENOSPC}
        assert client.ask(b"status readonly\r\nstatus\r\n") == b"SERVER_ERROR the status could not be saved\r\nUP\r\n"
        disk.failing = {}
        assert client.ask(b"status readonly\r\nstatus\r\n") == b"END\r\nREADONLY\r\n"


@pytest.mark.parametrize("content", [b"", b"asleep\n", b"UP READONLY", bytes(150), b"\xff"])
def test_file_without_a_status_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "status").write_bytes(content)
    with pytest.raises(WrongUse, match="not a status"), serving(tmp_path / "queues", status_file=tmp_path / "status"):
        pass


def test_status_file_among_the_queues_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="is in the directory of the queues"):
        QueueServer(ServerSettings(directory=tmp_path, status_file=tmp_path / "status"))


def test_status_file_in_a_missing_directory_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "status"
    with pytest.raises(WrongUse, match="its directory does not exist"), serving(tmp_path / "queues", status_file=file):
        pass


def test_directory_as_status_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed), serving(tmp_path / "queues", status_file=tmp_path):
        pass
