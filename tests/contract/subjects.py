"""The formats that go through the contract tests."""

from __future__ import annotations

from tests.contract.subject import Subject
from tests.formats.appendfile.subject import AppendfileSubject
from tests.formats.kestrel.subject import KestrelSubject
from tests.formats.sej.subject import SejSubject
from tests.formats.versioned.subject import VersionedSubject
from tests.formats.yeltsin.subject import YeltsinSubject

SUBJECTS: dict[str, Subject] = {
    subject.name: subject
    for subject in (SejSubject(), KestrelSubject(), VersionedSubject(), AppendfileSubject(), YeltsinSubject())
}
