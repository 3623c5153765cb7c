"""A process that makes the transactions of `logwright.torture.database` and reports their number, until a kill."""

from __future__ import annotations

import contextlib
import itertools
from multiprocessing.connection import Connection
from pathlib import Path

from logwright.errors import LogwrightError
from logwright.torture.database import COUNT, change
from logwright.yeltsin.model.database import Database
from tests.support.forks import fork_server
from tests.support.threads import DEADLINE_SECONDS


def change_for_ever(
    directory: str, number: int, sync: str, checkpoint_bytes: int, acknowledgements: Connection
) -> None:
    """Make transactions, and send the number of acknowledged ones; until the disk fails, if it does."""
    home = Path(directory)
    with contextlib.suppress(LogwrightError):
        db = Database(home / "t.ydb", home / "t.jrnl", sync=sync, checkpoint_bytes=checkpoint_bytes)
        for count in itertools.count(number):
            change(db, count)
            acknowledgements.send_bytes(COUNT.pack(count + 1))


class Changing:
    """Such a process, which has sent some reports. `count` is the number of transactions acknowledged by then."""

    def __init__(self, reports: int, directory: Path, number: int, sync: str, checkpoint_bytes: int) -> None:
        context = fork_server()
        self._receiver, sender = context.Pipe(duplex=False)
        arguments = str(directory), number, sync, checkpoint_bytes, sender
        self._process = context.Process(target=change_for_ever, args=arguments)
        self._process.start()
        sender.close()
        self.count = 0
        try:
            for _ in range(reports):
                assert self._receiver.poll(DEADLINE_SECONDS), "the process reports nothing"
                (self.count,) = COUNT.unpack(self._receiver.recv_bytes())
        except BaseException:
            self.kill()
            raise

    def kill(self) -> int | None:
        """Kill it, and read what else it had sent before it died, which was acknowledged as well; how it ended."""
        self._process.kill()
        self._process.join(DEADLINE_SECONDS)
        ended = self._process.exitcode
        with contextlib.suppress(EOFError):
            while self._receiver.poll():
                (self.count,) = COUNT.unpack(self._receiver.recv_bytes())
        self._receiver.close()
        self._process.close()
        return ended
