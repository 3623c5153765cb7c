"""The records of a versioned journal: its metadata, and entries, each a change of one key.

Times are nanoseconds since the epoch. `extra` holds unknown fields, which are kept and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...errors import WrongUse
from .layout import FORMAT_VERSION, HEADER_BYTES, INITIALIZED, KEY, MAX_TIMESTAMP, TIMESTAMP, VALUE, VERSION

Value: TypeAlias = Any
"""What JSON can represent: None, bool, int, float, str, list or dict of such values."""
Extra: TypeAlias = Mapping[str, Value] | None

ENTRY_FIELDS: Final = (TIMESTAMP, KEY, VALUE)
METADATA_FIELDS: Final = (INITIALIZED, FORMAT_VERSION)


def check_timestamp(timestamp: int, name: str = "t") -> None:
    """Raise `WrongUse` for a time that does not fit its field."""
    if not isinstance(timestamp, int) or isinstance(timestamp, bool) or not 0 <= timestamp <= MAX_TIMESTAMP:
        raise WrongUse(f"{name} is {timestamp!r}, and must be an integer within 0 and 2^64 - 1: nanoseconds")


def check_key(key: str) -> None:
    """Raise `WrongUse` for an invalid key."""
    if not isinstance(key, str):
        raise WrongUse(f"a key is a string, not a {type(key).__name__}")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise WrongUse(f"the key {key!a} has a lone surrogate, which UTF-8 cannot hold") from None


def _check_extra(extra: Extra, fields: tuple[str, ...]) -> None:
    for name in extra or ():
        if name in fields:
            raise WrongUse(f"{name!r} is a field of its own, and cannot be an extra one")


@dataclass(frozen=True, slots=True)
class Header:
    """The first bytes of a journal: the position of the next entry."""

    position: int = HEADER_BYTES
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Metadata:
    """The first object of a journal: the time at which it became the active one."""

    initialized: int
    format_version: int = VERSION
    extra: Extra = None

    def validate(self) -> None:
        """Raise `WrongUse` for what the format cannot hold."""
        check_timestamp(self.initialized, INITIALIZED)
        if self.format_version != VERSION:
            raise WrongUse(f"the format version is {self.format_version!r}, and only {VERSION} is known")
        _check_extra(self.extra, METADATA_FIELDS)

    def as_json(self) -> dict[str, Any]:
        """The object as it is in the journal."""
        return {INITIALIZED: self.initialized, FORMAT_VERSION: self.format_version, **(self.extra or {})}


@dataclass(frozen=True, slots=True)
class Entry:
    """One change: at the time `t` the key `k` was set to `o`, or deleted if that is None."""

    t: int
    k: str
    o: Value
    extra: Extra = None

    @property
    def deleted(self) -> bool:
        """Whether this removes the key."""
        return self.o is None

    def validate(self) -> None:
        """Raise `WrongUse` for what the format cannot hold; values are checked when they are written."""
        check_timestamp(self.t)
        check_key(self.k)
        _check_extra(self.extra, ENTRY_FIELDS)

    def as_json(self) -> dict[str, Any]:
        """The object as it is in the journal."""
        return {TIMESTAMP: self.t, KEY: self.k, VALUE: self.o, **(self.extra or {})}


Record: TypeAlias = Metadata | Entry
