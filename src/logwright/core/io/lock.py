"""Lock: one writer at a time, also among programs in other languages.

The lock is an exclusive `flock` on a lock file. The system releases it when its holder ends in any way. A child process
that was forked shares the open file: it neither keeps the lock when its parent releases it, nor releases it itself.

Some other programs unlock the lock file when they are done, and then remove it. A writer that locks it in between holds
a lock on a file without a name, while the next writer locks a new file of the same name. So the name is looked up again
after locking: the lock is valid only if the name still refers to the locked file. The other program may also remove the
name later: `check` tests whether the locked file still has a name, and a writer calls it before it writes and before it
acknowledges. For the same reason this module never removes a lock file.

On NFS `flock` works between machines only with NFSv4 or Linux ≥ 2.6.12 with a running lock daemon; keep journals on a
local disk.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import Locked
from .disk import Disk, File

_ATTEMPTS = 100
"""How often the name may change before the lock counts as held."""


class Lock:
    """A held lock; `release()` or leaving the `with` block releases it. Without a file it is not held."""

    def __init__(self, path: Path, file: File | None = None) -> None:
        self._path = path
        self._file = file

    @classmethod
    def acquire(cls, disk: Disk, path: Path) -> Lock:
        """Take the lock without waiting, or raise `Locked`. The directory must exist, the file need not."""
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
        """Raise `Locked` if another program has removed or replaced the lock file: another writer may be active then.

        A file that was removed or replaced has no name; renaming the directory does not matter. If this does not raise,
        no other writer was active until now.
        """
        if self._file is not None and not self._file.has_name():
            raise Locked(
                f"{self._path} was removed or replaced by another program while this one held its lock: another writer "
                f"may be writing the same journal; close this one, make sure that no other is open, and run verify"
            )

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
