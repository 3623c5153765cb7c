"""One writer at a time, whichever language the other one is written in.

The lock is an exclusive `flock` on a file of its own. It belongs to an open file, so the system gives it back when its
holder dies, however it dies, and a live holder cannot be robbed of it. A child that was forked meanwhile has the same
open file: it neither keeps the lock when its parent gives it back, nor gives it back itself.

Some other programs remove the lock file when they are done. A writer that opened it just before then holds a lock on
a file without a name, while the next one locks a new file of the same name, and both believe to be alone. So after
locking the name is looked up again: only if it still is the locked file does the lock count. For the same reason this
module never removes a lock file.

On NFS `flock` works between machines only with NFSv4 or Linux ≥ 2.6.12 with a running lock daemon; keep journals on a
local disk.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from .disk import Disk, File
from .errors import Locked

_ATTEMPTS = 100
"""How often the name may change under us before we call it locked: each change is another program's whole open."""


class Lock:
    """A held lock; `release()` or leaving the `with` block gives it back."""

    def __init__(self, file: File) -> None:
        self._file: File | None = file

    @classmethod
    def acquire(cls, disk: Disk, path: Path) -> Lock:
        """Take the lock at once or raise `Locked`. The directory must be there, the file need not."""
        for _ in range(_ATTEMPTS):
            file = disk.open(path, "update")
            try:
                file.lock()
                if disk.identity(path) == file.identity():
                    return cls(file)
            except BaseException:
                file.close()
                raise
            file.close()
        raise Locked(f"{path} is being created and removed by other programs all the time")

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
