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
    """Silence the warning of each torn tail that a writer cuts off: these tests cut tens of thousands of them."""
    caplog.set_level(logging.ERROR, logger="logwright")
