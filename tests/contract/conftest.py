"""Each contract test runs once for every format."""

from __future__ import annotations

import logging

import pytest

from tests.contract.subject import Subject
from tests.contract.subjects import SUBJECTS


@pytest.fixture(params=SUBJECTS.values(), ids=list(SUBJECTS))
def subject(request: pytest.FixtureRequest) -> Subject:
    """A format."""
    found: Subject = request.param
    return found


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """A writer warns of each tail that it cuts: here that is what is tested, ten thousands of times."""
    caplog.set_level(logging.ERROR, logger="logwright")
