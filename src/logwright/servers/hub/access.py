"""How a client gets to a hub: its address, TLS, a token, and what an error of gRPC's means.

What is not on loopback is reached over TLS only, unless somebody spells out `insecure`: else whoever is on the way
could read the journals, and the token as well.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import grpc
import grpc.aio

from ...errors import LogwrightError, NotFound, WrongUse
from ..safety import Address, client_context, parse_address, read_bounded, read_secret, read_tokens
from .errors import (
    Barred,
    Broken,
    Conflict,
    DamagedCopy,
    HubError,
    NotConnected,
    OutOfStep,
    Refused,
    TooLargeForHub,
    Unexplained,
    Unreachable,
)

EXPECTED_KEY: Final = "logwright-expected"
"""The metadata, behind an error, that says where a copy goes on."""
_MOST_DETAILS_CHARACTERS: Final = 1000
_LARGEST_ANSWER_BYTES: Final = 2**31 - 1
"""As much as one message of sej can have: what a hub has taken it must be able to give back."""


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """The way to a hub. `tls` without an authority trusts those that this machine trusts.

    `context` is the same for Python's `ssl`, which says more about what is wrong.
    """

    address: Address
    token: bytes | None = None
    tls: bool = False
    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    context: ssl.SSLContext | None = None

    @classmethod
    def load(
        cls,
        address: Address | str,
        *,
        token: Path | str | None = None,
        tls: bool = False,
        authority: Path | str | None = None,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        insecure: bool = False,
    ) -> Self:
        """Read the files: one with a token, who signed the hub's certificate, and a certificate and key of our own."""
        if (certificate is None) != (key is None):
            raise WrongUse("a certificate of the client's needs its key, and the other way round")
        address = parse_address(address) if isinstance(address, str) else address
        tls = tls or authority is not None or certificate is not None
        if not tls and not insecure and not address.is_loopback:
            raise WrongUse(
                f"{address} is elsewhere: what goes there needs TLS (--tls, or --tls-authority), "
                "or --insecure if nobody on the way can listen in"
            )
        files = [None if file is None else Path(file) for file in (authority, certificate, key)]
        context = client_context(*files) if tls else None
        return cls(
            address,
            None if token is None else read_tokens(Path(token))[0],
            tls,
            None if authority is None else read_bounded(Path(authority)),
            None if certificate is None else read_bounded(Path(certificate)),
            None if key is None else read_secret(Path(key)),
            context,
        )

    def channel(self) -> Any:
        """A new channel of gRPC's; connects when it is used."""
        options = [
            ("grpc.max_receive_message_length", _LARGEST_ANSWER_BYTES),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.enable_retries", 0),  # we do it ourselves, and know from where on
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if not self.tls:
            return grpc.aio.insecure_channel(str(self.address), options=options)
        credentials = grpc.ssl_channel_credentials(
            self.authority or _trusted_by(self.context), self.key, self.certificate
        )
        return grpc.aio.secure_channel(str(self.address), credentials, options=options)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return () if self.token is None else (("authorization", f"Bearer {self.token.decode('ascii')}"),)


def _trusted_by(context: ssl.SSLContext | None) -> bytes | None:
    """Those who sign certificates that this machine trusts; None where it has no list: then gRPC has one of its own."""
    found = [] if context is None else context.get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode("ascii") or None


_PLACE: Final = re.compile(r"(.*?) @ (\d{1,20}): (.*)", re.DOTALL)
"""How damage is told: the file, the position, and what is wrong there."""
_TOO_LARGE: Final = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")
"""How gRPC tells the size of a message, and the limit."""
_REFUSALS: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
_PASSING: Final = (
    grpc.StatusCode.OK,  # no error of the hub's, but the answers have ended
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
"""What gRPC says when a connection breaks, or when a hub has as many calls as it takes."""


def _printable(details: str) -> str:
    """A hub's words in one line, of no more than some length: they may be a stranger's, and go to a terminal."""
    return "".join(character if character.isprintable() else "?" for character in details[:_MOST_DETAILS_CHARACTERS])


def translated(address: Address, code: Any, details: str | None, metadata: Any = ()) -> LogwrightError:
    """What a call's end means, as one of our errors."""
    told = _printable(details or ("the hub has ended the call" if code == grpc.StatusCode.OK else code.name))
    words = f"{address}: {told}"
    found = next((value for key, value in metadata or () if key == EXPECTED_KEY), None)
    expected = int(found) if found is not None and str(found).isdigit() else None
    if code == grpc.StatusCode.OUT_OF_RANGE:
        return OutOfStep(words, expected)
    if code == grpc.StatusCode.ALREADY_EXISTS:
        return Conflict(words, expected)
    if code == grpc.StatusCode.NOT_FOUND:
        return NotFound(words)
    if code == grpc.StatusCode.DATA_LOSS:
        place = _PLACE.fullmatch(words)
        return DamagedCopy(words, 0, "damage") if place is None else DamagedCopy(place[1], int(place[2]), place[3])
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and (sizes := _TOO_LARGE.search(words)) is not None:
        what = f"the hub takes requests of {sizes[2]} bytes at most, and this one has {sizes[1]}"
        return TooLargeForHub(f"{address}: {what}: serve it with a larger --max-request")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return Barred(f"{words}: this is another server than a hub, or a hub that cannot do this")
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return Barred(words)
    if code in _REFUSALS:
        return Refused(words)
    if code == grpc.StatusCode.INTERNAL:
        return Broken(words)
    if code == grpc.StatusCode.UNAVAILABLE and told.startswith("failed to connect"):
        return NotConnected(words)
    if code == grpc.StatusCode.UNKNOWN:
        return Unexplained(words)
    return Unreachable(words) if code in _PASSING else HubError(words)
