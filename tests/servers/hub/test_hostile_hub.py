"""A client and a hostile hub: any answer is one of our errors in one line, and nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from logwright.errors import LogwrightError
from logwright.sej.bytes.wire import bytes_field, number_field
from logwright.servers.hub import Access, Barred, HubError, restore_path, send_path
from tests.servers.hub.support import in_loop, message, write_journal
from tests.servers.hub.wire_messages import GetResponse
from tests.support.counts import COUNTS

LISTED = b"\x0a\x06orders"


@asynccontextmanager
async def answering(**answers: Any) -> AsyncIterator[Access]:
    """A server that answers each method with these bytes, or with a code and a message."""

    def handler(answer: Any) -> Any:
        async def answer_all(_: Any, context: Any) -> None:
            while await context.read() is not grpc.aio.EOF:
                if isinstance(answer, tuple):
                    await context.abort(*answer)
                await context.write(answer)

        return grpc.stream_stream_rpc_method_handler(answer_all)

    server = grpc.aio.server()
    handlers = {name: handler(answer) for name, answer in answers.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("hub.Hub", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Access.load(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)


ANSWERS: dict[str, dict[str, Any]] = {
    "an answer that is not a list": {"List": b"\xff" * 20},
    "names that lead out": {"List": bytes_field(1, b"../../up") + bytes_field(1, b"1.000/..")},
    "names for a terminal": {"List": bytes_field(1, b"\x1b[2J")},
    "a list without an end": {"List": b"\x0a\x7forders"},
    "messages that are none": {"List": LISTED, "Get": b"\x0a\x7f"},
    "messages that do not follow each other": {
        "List": LISTED,
        "Get": GetResponse(Messages=[message(0), message(2)]).SerializeToString(),
    },
    "an offset after the last": {
        "List": LISTED,
        "Get": GetResponse(Messages=[message(2**64 - 1)]).SerializeToString(),
    },
    "words for a terminal": {"List": (grpc.StatusCode.INVALID_ARGUMENT, "\x1b[2J\nlogwright: all is well\n")},
    "words without an end": {"List": (grpc.StatusCode.INVALID_ARGUMENT, "x" * 6000)},
    "an unknown code": {"List": (grpc.StatusCode.DATA_LOSS, "lost")},
    "nothing": {},
}


@pytest.mark.parametrize("case", ANSWERS)
def test_hostile_answers_to_a_restore_are_one_error_line(case: str, tmp_path: Path) -> None:
    async def talk() -> None:
        async with answering(**ANSWERS[case]) as access:
            with pytest.raises(LogwrightError) as raised:
                await restore_path(access, tmp_path / "new" / "orders", client="web", patience_seconds=0)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 1200

    in_loop(talk())
    assert list(tmp_path.iterdir()) == []
    COUNTS.add("hostile inputs", 1, "hub")


def test_different_server_is_reported(tmp_path: Path) -> None:
    write_journal(tmp_path / "orders", 1)

    async def talk() -> None:
        async with answering() as access:
            with pytest.raises(Barred, match="this is not a hub, or a hub without this method"):
                await send_path(access, tmp_path / "orders", client="web")

    in_loop(talk())


@pytest.mark.parametrize("answer", [number_field(30, 2**64 - 1), b"\xff" * 11], ids=["far ahead", "noise"])
def test_invalid_offset_from_a_hub_is_an_error(answer: bytes, tmp_path: Path) -> None:
    write_journal(tmp_path / "orders", 1)

    async def talk() -> None:
        async with answering(Put=answer) as access:
            with pytest.raises((HubError, ValueError)):
                await send_path(access, tmp_path / "orders", client="web")

    in_loop(talk())
