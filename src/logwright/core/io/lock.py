"""One writer at a time, whichever language the other one is written in.

The lock is an exclusive `flock` on a file of its own. It belongs to an open file, so the system gives it back when its
holder dies, however it dies, and a live holder cannot be robbed of it. A child that was forked meanwhile has the same
open file: it neither keeps the lock when its parent gives it back, nor gives it back itself.

Some other programs unlock the lock file when they are done, and then remove it. A writer that locks it in between holds
a lock on a file without a name, while the next one locks a new file of the same name, and two writers hold a lock. So
the name is looked up again after locking: the lock counts only if the name still leads to the locked file. The name may
also vanish later, when the other program removes it: `check` asks whether the locked file still has a name, and a
writer calls it before it writes and before it acknowledges. For the same reason this module never removes a lock file.

On NFS `flock` works between machines only with NFSv4 or Linux ≥ 2.6.12 with a running lock daemon; keep journals on a
local disk.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from ...errors import Locked
from .disk import Disk, File

_ATTEMPTS = 100
"""How often the name may change under us before we call it locked: each change is another program's whole open."""


class Lock:
    """A held lock; `release()` or leaving the `with` block gives it back."""

    def __init__(self, path: Path, file: File) -> None:
        self._path = path
        self._file: File | None = file

    @classmethod
    def acquire(cls, disk: Disk, path: Path) -> Lock:
        """Take the lock at once or raise `Locked`. The directory must be there, the file need not."""
        for _ in range(_ATTEMPTS):
            file = disk.open(path, "update")
            try:
                file.lock()
                if disk.identity(path) == file.identity():
                    return cls(path, file)
            except BaseException:
                file.close()
                raise
            file.close()
        raise Locked(f"{path} is being created and removed by other programs all the time")

    def check(self) -> None:
        """Raise `Locked` if another program has removed or replaced the lock file: then another writer may be at work.

        Looks at the locked file only: once it is removed, or another one is renamed over it, it has no name. That the
        directory has another name now is no harm. What was written before a call that does not raise was written alone.
        """
        if self._file is not None and not self._file.has_name():
            raise Locked(
                f"{self._path} was removed or replaced by another program while this one held its lock: another writer "
                f"may be writing the same journal; close this one, make sure that no other is open, and run verify"
            )

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
