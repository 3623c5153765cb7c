"""Why no hub answers: looked up by a connection of our own, because gRPC says little, and the same of everything.

What may pass by itself (nobody listens, a network that is down) is `Unreachable`. What cannot, because one side speaks
TLS and the other does not, or does not trust the other's certificate, is `Barred`, in words that say what to do.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from .access import Access
from .errors import Barred, HubError, Unreachable

_SECONDS: Final = 5.0
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
        return socket.create_connection((access.address.host, access.address.port), _SECONDS)
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
