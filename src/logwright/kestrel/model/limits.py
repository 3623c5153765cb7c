"""The options of a queue: its limits, and when its journal is compacted. `Options` has names, `Limits` the values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias, TypedDict

from ...core.options import NamedOptions
from ...errors import WrongUse
from ..bytes.layout import MAX_DATA_BYTES, PARKED_SUFFIX, check_queue_name, parked_name
from .packing import MOST_ATTEMPTS

Seconds: TypeAlias = float | timedelta
Expires: TypeAlias = float | timedelta | datetime
"""When an item expires: after a number of seconds, after a timedelta, or at a datetime."""

DEFAULT_JOURNAL_BYTES: Final = 16 << 20
MAX_JOURNAL_BYTES: Final = 1 << 30
MAX_MEMORY_BYTES: Final = 128 << 20
_MEMORY_BYTES_OF_ITEM: Final = 128
"""The least memory that an item needs in addition to its data. It limits the number of items in memory."""
_LEAST_MEMORY_ITEMS: Final = 1024
MAX_ID_CHARACTERS: Final = 1024


class Options(TypedDict, total=False):
    """The names of the limits, for `Queue(directory, name, **options)`. `Limits` documents them."""

    max_items: int | None
    max_bytes: int | None
    max_item_bytes: int | None
    discard_old_when_full: bool
    max_age: Seconds | None
    expire_to: str | None
    sweep_seconds: float | None
    max_attempts: int | None
    park: str | None
    retry_delay: Seconds | None
    max_retry_delay: Seconds
    id_window: Seconds
    max_ids: int
    max_memory_bytes: int
    default_journal_bytes: int
    max_journal_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(NamedOptions):
    """The limits of a queue and its journal, and what happens to items that are not taken.

    max_items, max_bytes    the most waiting items, and bytes of their data; beyond them, a put raises `Full`
    max_item_bytes          the size of the largest item; a larger one raises `TooLarge`
    discard_old_when_full   instead of raising `Full`, remove the oldest items until there is room
    max_age                 items expire at this age, even if they were put without an expiry
    expire_to               the queue of the same directory that expired items move to; by default they are removed
    sweep_seconds           look for expired items at the head at this interval, not only when an item is requested
    max_attempts            park an item that was put back this many times
    park                    the queue of the same directory that such items move to; by default NAME_parked
    retry_delay             how long an item that was put back waits before it is at the head again; twice as long after
                            each further attempt
    max_retry_delay         the longest of these delays
    id_window, max_ids      a `put` with an id that was used within this time, and is among the last `max_ids` ids, adds
                            nothing
    max_memory_bytes        the most data in memory; the queue reads behind for the rest
    default_journal_bytes   erase a journal of this size when the queue is empty
    max_journal_bytes       rewrite a journal larger than this if that at least halves its size

    The first three do not apply to items that expire in another queue or are parked, and therefore move here.
    """

    max_items: int | None = None
    max_bytes: int | None = None
    max_item_bytes: int | None = None
    discard_old_when_full: bool = False
    max_age: Seconds | None = None
    expire_to: str | None = None
    sweep_seconds: float | None = None
    max_attempts: int | None = None
    park: str | None = None
    retry_delay: Seconds | None = None
    max_retry_delay: Seconds = 3600.0
    id_window: Seconds = 3600.0
    max_ids: int = 100_000
    max_memory_bytes: int = MAX_MEMORY_BYTES
    default_journal_bytes: int = DEFAULT_JOURNAL_BYTES
    max_journal_bytes: int = MAX_JOURNAL_BYTES

    def __post_init__(self) -> None:
        for name in ("max_items", "max_bytes", "max_item_bytes", "max_attempts"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name))
        for name in ("max_ids", "max_memory_bytes", "default_journal_bytes", "max_journal_bytes"):
            _check_number(name, getattr(self, name))
        for name in ("max_age", "sweep_seconds", "retry_delay", "max_retry_delay", "id_window"):
            seconds = getattr(self, name)
            if seconds is not None and not (_is_duration(seconds) and 0 < as_seconds(seconds) < 2**50):
                raise WrongUse(f"{name} cannot be {seconds!r}")
        for name in ("expire_to", "park"):
            if getattr(self, name) is not None:
                _check_target(name, getattr(self, name))
        if self.max_attempts is not None and self.max_attempts > MOST_ATTEMPTS:
            raise WrongUse(f"max_attempts cannot be {self.max_attempts}: a journal records at most {MOST_ATTEMPTS}")
        if self.max_item_bytes is not None and self.max_item_bytes > MAX_DATA_BYTES:
            raise WrongUse(f"max_item_bytes cannot be {self.max_item_bytes}: the limit is {MAX_DATA_BYTES}")
        if self.park is not None and self.max_attempts is None:
            raise WrongUse("park needs max_attempts: it names the queue that items move to after these")

    @property
    def max_age_ms(self) -> int:
        """0 for none."""
        return 0 if self.max_age is None else max(1, round(as_seconds(self.max_age) * 1000))

    def retry_delay_ms(self, attempts: int) -> int:
        """How long an item waits after this many attempts; 0 for not at all."""
        if self.retry_delay is None:
            return 0
        most = as_seconds(self.max_retry_delay)
        doublings = min(max(0, attempts - 1), 100)  # more would exceed a float
        return round(min(most, as_seconds(self.retry_delay) * 2.0**doublings) * 1000)

    @property
    def id_window_ms(self) -> int:
        return max(1, round(as_seconds(self.id_window) * 1000))

    @property
    def max_memory_items(self) -> int:
        """The most items in memory, however small they are."""
        return max(_LEAST_MEMORY_ITEMS, self.max_memory_bytes // _MEMORY_BYTES_OF_ITEM)


def _check_target(name: str, queue: object) -> None:
    try:
        check_queue_name(queue)
    except WrongUse as error:
        raise WrongUse(f"{name}: {error}") from None


def park_of(queue: str, limits: Limits) -> str:
    """The queue that items of a queue move to after `max_attempts`."""
    return limits.park or parked_name(queue)


def targets_of(queue: str, limits: Limits) -> list[str]:
    """The queues that items of a queue may move to."""
    found = [limits.expire_to, None if limits.max_attempts is None else park_of(queue, limits)]
    return [target for target in found if target is not None]


def is_named_like_park(queue: str) -> bool:
    """Whether a queue has the default name of a queue of parked items."""
    return queue.endswith(PARKED_SUFFIX)


def check_targets(path: Path, limits: Limits) -> None:
    """Raise `WrongUse` if the items of the queue at a path could not move to a target of its limits."""
    queue = path.name
    for target in targets_of(queue, limits):
        if target == queue:
            raise WrongUse(f"{path}: the items of a queue cannot move to the same queue")
        if target.startswith(f"{queue}+"):  # a child has the same limits
            raise WrongUse(f"{path}: the items of a queue cannot move to {target}, which receives all of them anyway")
        check_queue_name(target)  # with _parked, the name may be too long


def check_count(most: object) -> None:
    """Raise `WrongUse` if this is not a number of items."""
    if not isinstance(most, int) or isinstance(most, bool) or most < 0:
        raise WrongUse(f"cannot take {most!r} items")


def check_timeout(timeout: object) -> None:
    """Raise `WrongUse` if this is not a timeout: seconds, or None for ever."""
    if timeout is not None and not (isinstance(timeout, int | float) and _is_duration(timeout)):
        raise WrongUse(f"cannot wait {timeout!r} seconds")


def _is_duration(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    return is_number or isinstance(value, timedelta)


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**62:
        raise WrongUse(f"{name} cannot be {value!r}")


def as_seconds(duration: Seconds) -> float:
    """A duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def due_ms(delay: Expires, now: int) -> int:
    """When an item with a delay is due, in milliseconds since the epoch; not after `now` for no delay."""
    try:
        return deadline_ms(delay, now)
    except WrongUse as error:
        raise WrongUse(str(error).replace("an item cannot expire", "an item cannot be due")) from None


def check_id(id: object) -> str:
    """An id as a string; `WrongUse` if it is none. Bytes that are not UTF-8 are kept as in names of files."""
    found = id.decode("utf-8", "surrogateescape") if isinstance(id, bytes) else id
    if not isinstance(found, str) or not 0 < len(found) <= MAX_ID_CHARACTERS:
        raise WrongUse(f"{id!r} is not an id: give a string or bytes of 1 to {MAX_ID_CHARACTERS} characters")
    return found


def deadline_ms(expires: Expires, now: int) -> int:
    """When an item expires, in milliseconds since the epoch, like `now`.

    A datetime without a time zone is local time, as everywhere in Python.
    """
    if isinstance(expires, datetime):
        try:
            found = int(expires.astimezone(UTC).timestamp() * 1000)
        except (ValueError, OverflowError):  # before year 1 or after year 9999 in UTC
            raise WrongUse(f"an item cannot expire at {expires}") from None
    elif _is_duration(expires):
        seconds = as_seconds(expires)
        if not -(2**50) < seconds < 2**50:
            raise WrongUse(f"an item cannot expire in {expires} seconds")
        found = now + round(seconds * 1000)
    else:
        raise WrongUse(f"an item cannot expire at {expires!r}: give seconds, a timedelta or a datetime")
    if not -(2**63) <= found < 2**63:
        raise WrongUse(f"an item cannot expire at {found} ms")
    return found or 1  # 0 means never
