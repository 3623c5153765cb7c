"""Device: a real file system that can lose its power. It is ext4 on a loop device, in a file.

The power cut is the shutdown call of ext4, without flushing its log: from then on nothing reaches the disk, not even
writes in progress. Mounting it again replays the log, as after a real power cut. This needs root, a loop device and
mkfs.ext4; `missing_for_power_cuts` says what is missing.

The loop device is detached by the system when the file system is unmounted.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SHUTDOWN: Final = 0x8004587D
_WITHOUT_LOG_FLUSH: Final = 2
DEVICE_BYTES: Final = 24 << 20


def missing_for_power_cuts() -> str | None:
    """What this machine or this user does not have; None if power can be cut."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "power cuts need root"
    if shutil.which("mkfs.ext4") is None:
        return "power cuts need mkfs.ext4, of the package e2fsprogs"
    if not Path("/dev/loop-control").exists():
        return "power cuts need a loop device, and there is no /dev/loop-control"
    return None


class Device:
    """A file system of `size` bytes in a directory: `image` is its file, and `root` is where it is mounted."""

    def __init__(self, directory: Path, size: int = DEVICE_BYTES) -> None:
        self.image = directory / "image"
        self.root = directory / "mounted"
        self.root.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size)
        self._run("mkfs.ext4", "-q", "-F", str(self.image))

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self.image), str(self.root))

    def unmount(self) -> None:
        try:
            self._run("umount", str(self.root))
        except OSError as error:
            error.add_note(f"open in this process: {self._open_here() or 'nothing'}")
            raise

    def give_up(self) -> None:
        """If it is mounted, unmount it as soon as none of its files is open."""
        if os.path.ismount(self.root):
            self._run("umount", "--lazy", str(self.root))

    def _open_here(self) -> list[str]:
        """The files of this file system that this process has open or mapped."""
        maps = Path("/proc/self/maps").read_text().splitlines()
        links = (os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
        return [found for found in [*links, *maps] if str(self.root) in found]

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, not even writes in progress."""
        import fcntl

        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)

    @staticmethod
    def _run(*command: str) -> None:
        # In a session of its own: Ctrl-C must not end it half-way.
        done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
