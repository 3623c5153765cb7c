"""What can go wrong between a hub and its clients.

LogwrightError
└── HubError
    ├── OutOfStep       the messages do not go on where the copy ends; `expected` is where that is
    ├── Conflict        the copy has another message of the same offset; `expected` is where the copy ends
    ├── DamagedCopy     the hub's copy is damaged (also a DamagedJournal); `verify` and `repair` it there
    ├── Refused         the hub does not let us in, or does not understand us
    │   ├── Barred          none of our journals gets through: a token, a certificate or the address is wrong
    │   └── TooLargeForHub  a request, and so perhaps a message, is larger than the hub takes
    └── Unreachable     nobody answers, or the hub cannot at the moment: trying again later may help

What else a hub cannot do for us is a `HubError` in its words.
"""

from __future__ import annotations

from ...errors import DamagedJournal, LogwrightError


class HubError(LogwrightError):
    """The root of these errors."""


class OutOfStep(HubError):
    """The messages do not go on where the copy ends: some between would be missing."""

    def __init__(self, message: str, expected: int | None) -> None:
        super().__init__(message)
        self.expected = expected


class Conflict(HubError):
    """The copy has another message of the same offset: it is not the copy of this journal."""

    def __init__(self, message: str, expected: int | None) -> None:
        super().__init__(message)
        self.expected = expected


class DamagedCopy(HubError, DamagedJournal):
    """The copy that the hub has is damaged. `file` is told from the hub's directory on, behind the hub's address."""


class Refused(HubError):
    """The hub does not let us in, or does not understand what we say."""


class Barred(Refused):
    """Nothing of ours gets through, whatever the journal: a token, a certificate or the address is wrong."""


class TooLargeForHub(Refused):
    """A request is larger than the hub takes: smaller ones may do, unless a single message is too large."""


class Unreachable(HubError):
    """Nobody answers there, or the hub cannot at the moment."""


class NotConnected(Unreachable):
    """There is no connection, and gRPC does not try at once to make another one."""


class Unexplained(Unreachable):
    """The call has failed for no reason that gRPC has a code for: of another program's hub it may be an answer."""


class Broken(Unreachable):
    """A call has ended while something was being sent, and why got lost: ask again."""
