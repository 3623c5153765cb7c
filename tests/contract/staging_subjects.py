"""The formats of the contract tests of staging."""

from __future__ import annotations

from tests.appendfile.staging_subject import AppendfileStaging
from tests.contract.staging import StagingSubject
from tests.kestrel.staging_subject import KestrelStaging
from tests.sej.staging_subject import SejStaging
from tests.versioned.staging_subject import VersionedStaging

STAGING_SUBJECTS: dict[str, StagingSubject] = {
    subject.name: subject for subject in (SejStaging(), KestrelStaging(), VersionedStaging(), AppendfileStaging())
}
