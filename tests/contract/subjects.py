"""The formats of the contract tests."""

from __future__ import annotations

from tests.appendfile.subject import AppendfileSubject
from tests.contract.subject import Subject
from tests.kestrel.subject import KestrelSubject
from tests.sej.subject import SejSubject
from tests.versioned.subject import VersionedSubject
from tests.yeltsin.subject import YeltsinSubject

SUBJECTS: dict[str, Subject] = {
    subject.name: subject
    for subject in (SejSubject(), KestrelSubject(), VersionedSubject(), AppendfileSubject(), YeltsinSubject())
}
