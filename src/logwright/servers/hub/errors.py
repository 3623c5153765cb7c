"""The errors of a hub and its clients.

LogwrightError
└── HubError
    ├── OutOfStep       the messages do not begin where the copy ends, at offset `expected`
    ├── Conflict        the copy has another message at the same offset; the copy ends at offset `expected`
    ├── DamagedCopy     the hub's copy is damaged (also a DamagedJournal): `verify` and `repair` it on the hub
    ├── Refused         the hub rejects the request
    │   ├── Barred          the hub rejects every request: a token, a certificate or the address is wrong
    │   └── TooLargeForHub  a request, and so perhaps a message, is larger than the hub accepts
    └── Unreachable     no answer, or a passing failure of the hub: a later attempt may succeed

Any other failure of a hub is a `HubError` with the hub's message.
"""

from __future__ import annotations

from ...errors import DamagedJournal, LogwrightError


class HubError(LogwrightError):
    """The root of these errors."""


class Mismatch(HubError):
    """The messages do not fit the copy, which continues with the offset `expected`."""

    def __init__(self, message: str, expected: int | None) -> None:
        super().__init__(message)
        self.expected = expected


class OutOfStep(Mismatch):
    """The messages do not begin where the copy ends: some would be missing."""


class Conflict(Mismatch):
    """The copy has another message at the same offset: it is not a copy of this journal."""


class DamagedCopy(HubError, DamagedJournal):
    """The hub's copy is damaged. `file` is the hub's address and the path below the hub's directory."""


class Refused(HubError):
    """The hub rejects the request."""


class Barred(Refused):
    """The hub rejects every request of this client: a token, a certificate or the address is wrong."""


class TooLargeForHub(Refused):
    """A request is larger than the hub accepts: smaller ones may work, unless a single message is too large."""


class Unreachable(HubError):
    """No answer, or a passing failure of the hub."""


class NotConnected(Unreachable):
    """There is no connection, and gRPC waits before it connects again."""


class Unexplained(Unreachable):
    """The call failed without a specific code: another program's hub may answer so."""


class Broken(Unreachable):
    """A call ended during a send, and its reason was lost: send the request again."""
