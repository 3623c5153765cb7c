"""How a client reaches a hub: address, TLS and token; what gRPC's errors mean; and why no hub answers.

Addresses other than loopback need TLS, unless the caller passes `insecure`: otherwise anyone on the network path could
read the journals and the token.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import grpc
import grpc.aio

from ...errors import LogwrightError, NotFound, WrongUse
from ..security import Address, client_context, parse_address, read_bounded, read_secret, read_tokens
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
from .requests import EXPECTED_KEY

_MOST_DETAILS_CHARACTERS: Final = 1000
_LARGEST_ANSWER_BYTES: Final = 2**31 - 1
"""The largest message of sej: a client must be able to read back every message that a hub accepted."""


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """The address of a hub, and the TLS files and token for it. TLS trusts `authority`, or the system's.

    `context` is the same for Python's `ssl`, whose errors are more precise than gRPC's.
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
        """Read the files: the token, the authority of the hub's certificate, and the client's certificate and key."""
        if (certificate is None) != (key is None):
            raise WrongUse("a client certificate and its key must be given together")
        address = parse_address(address) if isinstance(address, str) else address
        tls = tls or authority is not None or certificate is not None
        if not tls and not insecure and not address.is_loopback:
            raise WrongUse(
                f"{address} is on another machine: use TLS (--tls or --tls-authority), "
                "or --insecure if no one on the network path can read the traffic"
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
        """A new gRPC channel; it connects on first use."""
        options = [
            ("grpc.max_receive_message_length", _LARGEST_ANSWER_BYTES),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.enable_retries", 0),  # `retry.py` does it, from the last acknowledged message
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if not self.tls:
            return grpc.aio.insecure_channel(str(self.address), options=options)
        credentials = grpc.ssl_channel_credentials(
            self.authority or _trusted_by(self.context), self.key, self.certificate
        )
        return grpc.aio.secure_channel(str(self.address), credentials, options=options)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token.decode('ascii')}"),)


def _trusted_by(context: ssl.SSLContext | None) -> bytes | None:
    """The authorities that this machine trusts; None if it has no list: then gRPC uses its own."""
    found = [] if context is None else context.get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode("ascii") or None


# --- what an error of gRPC means ------------------------------------------------------------------------------------


_PLACE: Final = re.compile(r"(.*?) @ (\d{1,20}): (.*)", re.DOTALL)
"""The message of a damage: file, position and reason."""
_TOO_LARGE: Final = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")
"""The part of gRPC's message with the size and the limit."""
_MEANINGS: Final[dict[Any, type[LogwrightError]]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.UNAUTHENTICATED: Barred,
    grpc.StatusCode.PERMISSION_DENIED: Barred,
    grpc.StatusCode.INVALID_ARGUMENT: Refused,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.INTERNAL: Broken,
    grpc.StatusCode.UNKNOWN: Unexplained,
    grpc.StatusCode.OK: Unreachable,  # not an error, but the answers have ended
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unreachable,
    grpc.StatusCode.CANCELLED: Unreachable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Unreachable,  # a hub with too many calls
}


def _printable(details: str) -> str:
    """A hub's message as one short line: the hub may be hostile, and the message is printed on a terminal."""
    return "".join(character if character.isprintable() else "?" for character in details[:_MOST_DETAILS_CHARACTERS])


def translated(address: Address, code: Any, details: str | None, metadata: Any = ()) -> LogwrightError:
    """The error that the end of a call means."""
    text = _printable(details or ("the hub has ended the call" if code == grpc.StatusCode.OK else code.name))
    words = f"{address}: {text}"
    found = next((value for key, value in metadata or () if key == EXPECTED_KEY), None)
    expected = int(found) if found is not None and str(found).isdigit() else None
    if code == grpc.StatusCode.OUT_OF_RANGE:
        return OutOfStep(words, expected)
    if code == grpc.StatusCode.ALREADY_EXISTS:
        return Conflict(words, expected)
    if code == grpc.StatusCode.DATA_LOSS:
        place = _PLACE.fullmatch(words)
        return DamagedCopy(words, 0, "damage") if place is None else DamagedCopy(place[1], int(place[2]), place[3])
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and (sizes := _TOO_LARGE.search(words)) is not None:
        what = f"the request has {sizes[1]} bytes, and the hub accepts {sizes[2]} at most"
        return TooLargeForHub(f"{address}: {what}: restart the hub with a larger --max-request")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return Barred(f"{words}: this is not a hub, or a hub without this method")
    if code == grpc.StatusCode.UNAVAILABLE and text.startswith("failed to connect"):
        return NotConnected(words)
    return _MEANINGS.get(code, HubError)(words)


# --- why no hub answers ---------------------------------------------------------------------------------------------


_PROBE_SECONDS: Final = 5.0
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The beginning of HTTP/2, and so of gRPC: the preface and an empty settings frame."""
_SETTINGS: Final = 4
"""The type of the first frame of the other side, its fourth byte."""
_NO_SUCH_NAME: Final = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_NOT_FOR_HOST: Final = (62, 64)
"""OpenSSL's codes for a certificate that is not for this name, or not for this address."""
_NOT_NOW: Final = {9: "is not valid yet", 10: "has expired"}


def why_unreachable(access: Access) -> HubError | None:
    """Why no hub answers at an address, found by a connection of our own; None if one answers the greeting.

    gRPC reports the same few words for everything. A cause that may pass is `Unreachable`; one that needs a change,
    such as TLS on one side only or an untrusted certificate, is `Barred`. Blocks for some seconds.
    """
    if access.tls and access.context is None:  # not made by `load`: the trusted authorities are unknown
        return None
    try:
        answer = _greet(access)
        if not answer and access.tls:
            answer = _greet(access)  # a hub that is stopping does not complete a second handshake
            if not answer:
                return _client_barred(access, "it disconnects after the handshake")
    except HubError as error:
        return error
    except OSError as error:
        return Unreachable(f"{access.address}: no answer ({_reason_of(error)})")
    if len(answer) > 3 and answer[3] == _SETTINGS:
        return None
    if access.context is None and _speaks_tls(access):
        return Barred(f"{access.address}: the hub uses TLS: give --tls-authority FILE, or --tls")
    if not answer:
        return Unreachable(f"{access.address}: the connection was closed at once")
    return Barred(f"{access.address}: this is not a hub: it does not speak HTTP/2: check the address")


def _connect(access: Access) -> socket.socket:
    try:
        return socket.create_connection((access.address.host, access.address.port), _PROBE_SECONDS)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            raise Barred(f"{access.address}: unknown host name: check the address") from None
        raise


def _greet(access: Access) -> bytes:
    """The answer to a greeting, with TLS if the access has it."""
    with _connect(access) as connection:
        if access.context is None:
            return _answer_to_greeting(connection)
        access.context.set_alpn_protocols(["h2"])
        try:
            with access.context.wrap_socket(connection, server_hostname=access.address.host) as secured:
                if secured.selected_alpn_protocol() != "h2":
                    raise Barred(
                        f"{access.address}: this is not a hub: it speaks TLS, but not HTTP/2: check the address"
                    )
                return _answer_to_greeting(secured)
        except ssl.SSLCertVerificationError as error:
            raise Barred(f"{access.address}: {_why_not_trusted(access, error)}") from None
        except ssl.SSLError as error:
            raise _why_no_handshake(access, error) from None


def _answer_to_greeting(connection: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionError):
        connection.sendall(_GREETING)
        return connection.recv(9)
    return b""


def _why_not_trusted(access: Access, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _NOT_FOR_HOST:
        host = access.address.host
        return f"the hub's certificate is not for {host!r}: use a name in the certificate, or change the certificate"
    if error.verify_code in _NOT_NOW:
        return f"the hub's certificate {_NOT_NOW[error.verify_code]}: renew it, or correct this machine's clock"
    if access.authority is None:
        what = "not signed by an authority that this machine trusts: give --tls-authority FILE"
    else:
        what = "not signed by the authority in --tls-authority"
    return f"the hub's certificate is {what} ({error.verify_message})"


def _why_no_handshake(access: Access, error: ssl.SSLError) -> HubError:
    reason = (error.reason or "").replace("_", " ").lower()
    if "alert" in reason:  # sent by the other side, which has rejected us
        return _client_barred(access, reason)
    with contextlib.suppress(OSError), _connect(access) as connection:
        answer = _answer_to_greeting(connection)
        if len(answer) > 3 and answer[3] == _SETTINGS:
            return Barred(f"{access.address}: the hub does not use TLS: omit --tls and the other TLS options")
    return Unreachable(f"{access.address}: the TLS handshake failed ({reason or error})")


def _client_barred(access: Access, reason: str) -> Barred:
    """The client accepts the hub, but the hub does not accept the client."""
    if access.certificate is None:
        what = "asks for a certificate: give --tls-certificate and --tls-key"
    else:
        what = "rejects this certificate: give one that its --client-authority has signed"
    return Barred(f"{access.address}: the hub {what} ({reason})")


def _speaks_tls(access: Access) -> bool:
    """Whether a server that does not answer plain text answers TLS; its certificate is not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connect(access) as connection, context.wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _reason_of(error: OSError) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
