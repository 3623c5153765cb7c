"""Whole directories as values: read one from any disk, write one to any disk, compare two.

A tree is a dictionary from the path below the root to the bytes of the file, or to None for a directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from logwright.core.io.disk import REAL_DISK, Disk, write_all

Tree = dict[str, bytes | None]


def read_tree(disk: Disk, root: Path) -> Tree:
    """Everything below a directory."""
    tree: Tree = {}
    _read(disk, root, "", tree)
    return tree


def _read(disk: Disk, directory: Path, prefix: str, tree: Tree) -> None:
    for name in disk.list_directory(directory):
        path = directory / name
        if disk.is_directory(path):
            tree[prefix + name] = None
            _read(disk, path, f"{prefix}{name}/", tree)
        else:
            tree[prefix + name] = read_file(disk, path)


def read_file(disk: Disk, path: Path) -> bytes:
    """The bytes of one file."""
    file = disk.open(path, "read")
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def write_file(disk: Disk, path: Path, data: bytes) -> None:
    """Write one file to a disk, replacing an existing one, without syncing it."""
    file = disk.open(path, "update")
    try:
        file.truncate(0)
        write_all(file, 0, data)
    finally:
        file.close()


def write_tree(disk: Disk, root: Path, tree: Mapping[str, bytes | None]) -> None:
    """Write a tree to a disk, below a directory that is created if necessary."""
    _make_parents(disk, root)
    for name in sorted(tree):
        content = tree[name]
        if content is None:
            _make_parents(disk, root / name)
        else:
            _make_parents(disk, (root / name).parent)
            write_file(disk, root / name, content)


def _make_parents(disk: Disk, path: Path) -> None:
    if not disk.is_directory(path):
        _make_parents(disk, path.parent)
        disk.make_directory(path)


def load_directory(source: Path, disk: Disk, root: Path) -> None:
    """Copy a directory of the real disk to another disk."""
    write_tree(disk, root, read_tree(REAL_DISK, source))


def differences(before: Tree, after: Tree) -> list[str]:
    """The differences of two trees, one line for each path; empty if they are equal."""
    lines = []
    for name in sorted({*before, *after}):
        if name not in after:
            lines.append(f"{name}: gone")
        elif name not in before:
            lines.append(f"{name}: new, {_describe(after[name])}")
        elif before[name] != after[name]:
            lines.append(f"{name}: {_describe(before[name])} became {_describe(after[name])}")
            lines[-1] += _first_difference(before[name], after[name])
    return lines


def _describe(content: bytes | None) -> str:
    return "a directory" if content is None else f"{len(content)} bytes"


def _first_difference(before: bytes | None, after: bytes | None) -> str:
    if before is None or after is None:
        return ""
    pairs = zip(before, after, strict=False)
    first = next((position for position, (old, new) in enumerate(pairs) if old != new), min(len(before), len(after)))
    return f", different from byte {first} on"
