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
from .requests import EXPECTED_KEY

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


# --- what an error of gRPC means --------------------------------------------------------------------------------------


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


# --- why no hub answers -----------------------------------------------------------------------------------------------


_PROBE_SECONDS: Final = 5.0
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How HTTP/2, and so gRPC, begins: the preface, and settings without any."""
_SETTINGS: Final = 4
"""The kind of frame that the other side begins with, in its fourth byte."""
_NO_SUCH_NAME: Final = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_NOT_FOR_HOST: Final = (62, 64)
"""What OpenSSL calls certificates that are not for this name, or not for this address."""
_NOT_NOW: Final = {9: "is not valid yet", 10: "has expired"}


def why_unreachable(access: Access) -> HubError | None:
    """Why no hub answers at an address; None when one does, as far as a greeting goes. Blocks for some seconds."""
    if access.tls and access.context is None:  # not by `load`: we do not know whom to trust
        return None
    try:
        answer = _greet(access)
        if not answer and access.tls:
            answer = _greet(access)  # a hub that is just stopping does not shake hands a second time
            if not answer:
                return _client_barred(access, "it hangs up after the handshake")
    except HubError as error:
        return error
    except OSError as error:
        return Unreachable(f"{access.address}: nobody answers there ({_words_of(error)})")
    if len(answer) > 3 and answer[3] == _SETTINGS:
        return None
    if access.context is None and _speaks_tls(access):
        return Barred(f"{access.address}: the hub there speaks TLS: give --tls-authority FILE, or --tls")
    if not answer:
        return Unreachable(f"{access.address}: the connection was closed at once")
    return Barred(f"{access.address}: what answers there is no hub, it does not speak HTTP/2: check the address")


def _connect(access: Access) -> socket.socket:
    try:
        return socket.create_connection((access.address.host, access.address.port), _PROBE_SECONDS)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            raise Barred(f"{access.address}: there is no machine of this name: check the address") from None
        raise


def _greet(access: Access) -> bytes:
    """What is answered to a greeting, the way we are told to talk."""
    with _connect(access) as connection:
        if access.context is None:
            return _answer_to_greeting(connection)
        access.context.set_alpn_protocols(["h2"])
        try:
            with access.context.wrap_socket(connection, server_hostname=access.address.host) as secured:
                if secured.selected_alpn_protocol() != "h2":
                    raise Barred(f"{access.address}: what answers there speaks TLS, but is no hub: check the address")
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
        return f"the hub's certificate is not for {host!r}: use the name that it is for, or give the hub another one"
    if error.verify_code in _NOT_NOW:
        return f"the hub's certificate {_NOT_NOW[error.verify_code]}: give it another one, or set this machine's clock"
    trusted = "this machine trusts: give --tls-authority FILE" if access.authority is None else "--tls-authority names"
    return f"the hub's certificate is signed by nobody that {trusted} ({error.verify_message})"


def _why_no_handshake(access: Access, error: ssl.SSLError) -> HubError:
    reason = (error.reason or "").replace("_", " ").lower()
    if "alert" in reason:  # the other side has looked at us, and has had enough
        return _client_barred(access, reason)
    with contextlib.suppress(OSError), _connect(access) as connection:
        answer = _answer_to_greeting(connection)
        if len(answer) > 3 and answer[3] == _SETTINGS:
            return Barred(f"{access.address}: the hub there does not speak TLS: leave --tls and its like out")
    return Unreachable(f"{access.address}: no connection by TLS ({reason or error})")


def _client_barred(access: Access, reason: str) -> Barred:
    """We have accepted the hub, and it does not accept us."""
    if access.certificate is None:
        what = "asks for a certificate: give --tls-certificate and --tls-key"
    else:
        what = "does not accept this certificate: give one that its --client-authority has signed"
    return Barred(f"{access.address}: the hub {what} ({reason})")


def _speaks_tls(access: Access) -> bool:
    """Whether something that does not answer plain text answers TLS, whoever it says it is."""
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


def _words_of(error: OSError) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
