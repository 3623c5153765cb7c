"""Where the tables of Delta and Iceberg are: a directory on a local disk, or a prefix in a bucket of S3.

Control files are replaced whole. On a local disk that is durable when the call returns, and a lock admits one run at a
time. An object store has neither renames nor locks: an object is written whole by one request, and is durable then. Two
runs that write there at the same time are not detected here. The table formats refuse the second of two commits.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pyarrow import fs

from ...core.io.disk import REAL_DISK, Disk, make_directories, replace_file
from ...core.options import suggest
from ...core.publish.protocol import lock_alone
from ...errors import DamagedJournal, LogwrightError, NotFound, StorageFailed, WrongUse
from .control import CHECKPOINT, FORMAT, HOME, LOCK, MANIFEST, refuse_names, refuse_others
from .publisher import TableFile, batch_of

S3_OPTIONS: Final = ("endpoint", "region", "access_key", "secret_key", "session_token")
_IN_URI: Final = {"endpoint_override": "endpoint", "region": "region", "scheme": "scheme"}


class Store(ABC):
    """A directory of tables. Names are relative to it; `out` is its path or URI, without credentials."""

    out: str
    filesystem: fs.FileSystem

    @abstractmethod
    def path(self, name: str) -> str:
        """The path of a name on `filesystem`."""

    @abstractmethod
    def uri(self, name: str) -> str:
        """The same as the libraries of the table formats understand it."""

    @abstractmethod
    def prepare(self, table: str) -> None:
        """Create the directory of a table, where directories are created."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if there is none."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file: a crash leaves the old contents or the new ones."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file; a missing file is no error."""

    @abstractmethod
    def settle(self, files: Sequence[str]) -> None:
        """Make durable what workers or libraries have written into these files."""

    @abstractmethod
    def close(self) -> None: ...

    def tables(self) -> list[str]:
        """The directories of tables that exist."""
        found = [info.base_name for info in self._list("") if info.type == fs.FileType.Directory]
        return [name for name in found if name != HOME]

    def parts(self, table: str) -> dict[str, fs.FileInfo]:
        """All data files in the directory of a table, by name, whether they are in the table or not."""
        return dict(self._parts(table, ""))

    def _parts(self, table: str, folder: str) -> Iterator[tuple[str, fs.FileInfo]]:
        for info in self._list(f"{table}/{folder}".rstrip("/")):
            name = f"{folder}{info.base_name}"
            if info.type == fs.FileType.File and batch_of(name) is not None:
                yield name, info
            elif info.type == fs.FileType.Directory and "=" in info.base_name:
                yield from self._parts(table, f"{name}/")

    def _list(self, name: str) -> list[fs.FileInfo]:
        with self._translated("list", name):
            selector = fs.FileSelector(self.path(name), allow_not_found=True)
            found: list[fs.FileInfo] = self.filesystem.get_file_info(selector)
            return sorted(found, key=lambda info: str(info.path))

    def check(self, files: Sequence[TableFile]) -> None:
        """Check that data files have the sizes that were reported, and make them durable."""
        names = [f"{file.table}/{file.name}" for file in files]
        with self._translated("stat", "data files"):
            found = self.filesystem.get_file_info([self.path(name) for name in names])
        for name, file, info in zip(names, files, found, strict=True):
            if info.type != fs.FileType.File:
                raise NotFound(f"{self.out}/{name}: no such file; nothing was published")
            if info.size != file.bytes:
                reason = f"the file has {info.size} bytes, but {file.bytes} were reported; nothing was published"
                raise DamagedJournal(f"{self.out}/{name}", min(info.size, file.bytes), reason)
        self.settle(names)

    @contextlib.contextmanager
    def _translated(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except LogwrightError:
            raise
        except OSError as error:
            raise StorageFailed(action, f"{self.out}/{name}", error) from error


class LocalStore(Store):
    """A directory on a local disk, locked. It is created if it is missing; one that has other files is refused."""

    def __init__(self, out: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self._root = Path(out).absolute()
        self._disk = disk
        self.out = str(self._root)
        self.filesystem = fs.LocalFileSystem()
        refuse_others(disk, self._root)
        make_directories(disk, self._root / HOME)
        busy = f"{out}: another run of the pipeline is writing there"
        self._lock = lock_alone(disk, self._root / HOME / LOCK, busy)

    def path(self, name: str) -> str:
        return str(self._root / name)

    def uri(self, name: str) -> str:
        return self.path(name)

    def prepare(self, table: str) -> None:
        make_directories(self._disk, self._root / table)

    def read(self, name: str) -> bytes | None:
        try:
            file = self._disk.open(self._root / name, "read")
        except NotFound:
            return None
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        replace_file(self._disk, path, data, path.with_name(f"{path.name}.tmp"))

    def remove(self, name: str) -> None:
        self._disk.remove(self._root / name)
        self._disk.sync_directory((self._root / name).parent)

    def settle(self, files: Sequence[str]) -> None:
        folders: set[Path] = set()
        for name in files:
            path = self._root / name
            file = self._disk.open(path, "read")
            try:
                file.sync()
            finally:
                file.close()
            folders.update(folder for folder in path.parents if folder.is_relative_to(self._root))
        for folder in sorted(folders):
            self._disk.sync_directory(folder)

    def close(self) -> None:
        self._lock.release()


@dataclass(frozen=True, slots=True)
class S3Access:
    """How a bucket is reached. What is None comes from the environment, as AWS's own programs use it."""

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def file_system(self) -> fs.FileSystem:
        """The bucket for pyarrow."""
        parts = urlsplit(self.endpoint) if self.endpoint else None
        return fs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            region=self.region,
            scheme=parts.scheme if parts else "https",
            endpoint_override=parts.netloc if parts else None,
        )

    def for_deltalake(self) -> dict[str, str]:
        """The storage options of deltalake."""
        allows_http = "true" if self.endpoint and self.endpoint.startswith("http://") else None
        found = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": allows_http,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "aws_conditional_put": "etag",  # the second of two commits of the same version is refused
        }
        return {name: value for name, value in found.items() if value}

    def for_pyiceberg(self) -> dict[str, str]:
        """The properties of pyiceberg's file access."""
        found = {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.session-token": self.session_token,
        }
        return {name: value for name, value in found.items() if value}


class S3Store(Store):
    """A prefix in a bucket of S3 or of another store with its protocol."""

    def __init__(self, out: str, options: Mapping[str, str]) -> None:
        self._prefix, self.access = parse_s3(out, options)
        self.out = f"s3://{self._prefix}"
        self.filesystem = self.access.file_system()
        if all(self.read(f"{HOME}/{name}") is None for name in (FORMAT, CHECKPOINT, MANIFEST)):
            refuse_names(self.out, [info.base_name for info in self._list("")])

    def path(self, name: str) -> str:
        return f"{self._prefix}/{name}".rstrip("/")

    def uri(self, name: str) -> str:
        return f"s3://{self.path(name)}"

    def prepare(self, table: str) -> None:
        """A prefix needs no creation."""

    def read(self, name: str) -> bytes | None:
        with self._translated("read", name):
            try:
                with self.filesystem.open_input_stream(self.path(name)) as stream:
                    data: bytes = stream.read()
                    return data
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        with self._translated("write", name), self.filesystem.open_output_stream(self.path(name)) as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        with self._translated("remove", name), contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(name))

    def settle(self, files: Sequence[str]) -> None:
        """An object is durable when it is visible."""

    def close(self) -> None:
        """There is no lock."""


def parse_s3(out: str, options: Mapping[str, str]) -> tuple[str, S3Access]:
    """Bucket and prefix of a URI, and how they are reached: by options, the URI itself, or the environment."""
    parts = urlsplit(out)
    query = dict(parse_qsl(parts.query))
    for name in query:
        if name not in _IN_URI:
            raise WrongUse(f"s3://{parts.hostname}: there is no parameter {name}; {suggest(name, _IN_URI)}")
    given = {_IN_URI[name]: value for name, value in query.items()}
    given |= {name: options[name] for name in S3_OPTIONS if name in options}
    scheme = given.pop("scheme", "https")
    endpoint = (
        given.pop("endpoint", None) or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    )
    if endpoint and "://" not in endpoint:
        endpoint = f"{scheme}://{endpoint}"
    if parts.username and parts.password:
        given = {"access_key": unquote(parts.username), "secret_key": unquote(parts.password), **given}
    prefix = f"{parts.netloc.rpartition('@')[2]}/{parts.path.strip('/')}"
    if not parts.netloc or prefix.endswith("/"):
        raise WrongUse("tables need a bucket and a prefix: s3://bucket/prefix")
    return prefix, S3Access(endpoint=endpoint, **given)
