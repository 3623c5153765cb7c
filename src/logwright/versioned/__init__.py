"""versioned: a key-value store with its whole history, and its journals. Each change is appended, with its time.

    from logwright import versioned

    with versioned.VersionedKVStore("state", "settings") as store:     # creates it; one process at a time
        store.insert("limits", {"per_hour": 100})                           # its time, in nanoseconds
        store.get("limits")                                                 # from memory

    recovery = versioned.VersionedRecovery.load("state")                    # from files alone, needs no lock
    recovery.recover_at(1699564850000000000)                                # the state at a time
    recovery.history("limits")

    with versioned.Reader("state/settings.jrn") as reader:                  # every change, each once
        for entry in reader:
            print(entry.t, entry.k, entry.o)

`AsyncVersionedKVStore` is the same in asyncio. `StoresReader` reads all stores of a directory. Values and entries are
BONJSON: see `bonjson`. Loading this package loads neither pyarrow nor pyspark.
"""

from ..core.io.durability import ALWAYS, NONE, Sync, interval
from ..core.io.quarantine import Recovery
from .bytes import bonjson
from .bytes.records import Entry, Metadata
from .files.archive_stream import ArchiveLimits
from .files.reader import Reader
from .files.scanner import Scanner
from .files.stores import StoresReader
from .format import looks_like, open_reader, recover
from .model.aio import AsyncVersionedKVStore
from .model.recovery import RecoveredState, VersionedRecovery
from .model.retention import Retention
from .model.store import VersionedKVStore
from .tables.writer import StoresWriter

__all__ = [
    "ALWAYS",
    "NONE",
    "ArchiveLimits",
    "AsyncVersionedKVStore",
    "Entry",
    "Metadata",
    "Reader",
    "RecoveredState",
    "Recovery",
    "Retention",
    "Scanner",
    "StoresReader",
    "StoresWriter",
    "Sync",
    "VersionedKVStore",
    "VersionedRecovery",
    "bonjson",
    "interval",
    "looks_like",
    "open_reader",
    "recover",
]
