"""The types of the records of a journal: a mode that raises or skips damage returns only records.

mypy checks each `assert_type`; the tests run the same calls and check that the records really have these types.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import logwright
from logwright import appendfile, kestrel, sej, versioned, yeltsin
from logwright.core.bytes.outcome import Damage


def test_sej_journal_has_messages(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(b"value")
    reader = sej.Reader(tmp_path)
    assert_type(reader.messages(mode="dropmalformed"), Iterator[sej.Message])
    assert_type(reader.messages(mode="permissive"), Iterator[sej.Message | Damage])
    assert_type(sej.open_reader(tmp_path), sej.Reader | sej.ShardedReader)
    scanner = sej.Scanner(tmp_path, timeout=0)
    assert_type(list(sej.Scanner(tmp_path, timeout=0, mode="permissive")), list[sej.Message | Damage])
    for messages in (reader.messages(), iter(reader), iter(sej.open_reader(tmp_path)), iter(scanner)):
        (found,) = assert_type(messages, Iterator[sej.Message])
        assert found.value == b"value"


def test_queue_has_operations(tmp_path: Path) -> None:
    with kestrel.Writer(tmp_path / "cars") as writer:
        writer.addx(b"value")
    reader = kestrel.Reader(tmp_path / "cars")
    assert_type(reader.operations(mode="dropmalformed"), Iterator[kestrel.Operation])
    assert_type(reader.operations(mode="permissive"), Iterator[kestrel.Operation | Damage])
    assert_type(kestrel.open_reader(tmp_path), kestrel.Reader | kestrel.QueuesReader)
    queues = kestrel.QueuesReader(tmp_path)
    scanner = kestrel.Scanner(tmp_path, timeout=0)
    assert_type(list(kestrel.Scanner(tmp_path, timeout=0, mode="permissive")), list[kestrel.Operation | Damage])
    for operations in (reader.operations(), iter(reader), queues.operations(), iter(queues), iter(scanner)):
        (found,) = assert_type(operations, Iterator[kestrel.Operation])
        assert found.data == b"value"


def test_store_has_entries(tmp_path: Path) -> None:
    with versioned.VersionedKVStore(tmp_path, "cars") as store:
        store["key"] = "value"
    reader = versioned.Reader(tmp_path / "cars.jrn")
    assert_type(reader.entries(mode="dropmalformed"), Iterator[versioned.Entry])
    assert_type(reader.entries(mode="permissive"), Iterator[versioned.Entry | Damage])
    assert_type(versioned.open_reader(tmp_path), versioned.Reader | versioned.StoresReader)
    stores = versioned.StoresReader(tmp_path)
    scanner = versioned.Scanner(tmp_path, timeout=0)
    assert_type(list(versioned.Scanner(tmp_path, timeout=0, mode="permissive")), list[versioned.Entry | Damage])
    for entries in (reader.entries(), iter(reader), stores.entries(), iter(stores), iter(scanner)):
        (found,) = assert_type(entries, Iterator[versioned.Entry])
        assert found.o == "value"


def test_appendfile_journal_has_records(tmp_path: Path) -> None:
    with appendfile.Writer(tmp_path) as writer:
        writer.append(b"value")
    reader = appendfile.open_reader(tmp_path)
    assert_type(reader, appendfile.Reader)
    assert_type(reader.records(mode="dropmalformed"), Iterator[appendfile.Record])
    assert_type(reader.records(mode="permissive"), Iterator[appendfile.Record | Damage])
    scanner = appendfile.Scanner(tmp_path, timeout=0)
    assert_type(list(appendfile.Scanner(tmp_path, timeout=0, mode="permissive")), list[appendfile.Record | Damage])
    for records in (reader.records(), iter(reader), iter(scanner)):
        found = list(assert_type(records, Iterator[appendfile.Record]))
        assert found[-1] == appendfile.Data(b"value")


def test_page_journal_has_transactions(tmp_path: Path) -> None:
    with yeltsin.TransactionJournal(tmp_path / "t.jrnl") as journal:
        journal.append([])
    reader = yeltsin.Reader(tmp_path / "t.jrnl")
    assert_type(reader.transactions(mode="dropmalformed"), Iterator[yeltsin.Transaction])
    assert_type(reader.transactions(mode="permissive"), Iterator[yeltsin.Transaction | Damage])
    assert_type(yeltsin.open_reader(tmp_path), yeltsin.Reader | yeltsin.JournalsReader)
    journals = yeltsin.JournalsReader(tmp_path)
    scanner = yeltsin.Scanner(tmp_path, timeout=0)
    assert_type(list(yeltsin.Scanner(tmp_path, timeout=0, mode="permissive")), list[yeltsin.Transaction | Damage])
    for transactions in (reader.transactions(), iter(reader), journals.transactions(), iter(journals), iter(scanner)):
        (found,) = assert_type(transactions, Iterator[yeltsin.Transaction])
        assert found.operations == ()


def test_journal_of_any_format_is_a_reader(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(b"value")
    with logwright.open(tmp_path) as journal:
        assert_type(journal, logwright.Reader)
        (message,) = assert_type(iter(journal), Iterator[Any])
        assert message.value == b"value"
        assert isinstance(journal, sej.Reader)
    assert logwright.open.__doc__ is not None
    for word in ("`Reader`", "`with`", "iterating", "sej.Message"):
        assert word in logwright.open.__doc__
