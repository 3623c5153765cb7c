"""The security of servers: addresses, TLS, tokens and limits.

A server listens on loopback. Another address needs TLS, and tokens or client certificates; or `insecure`, which leaves
access control to the network.

    protection = Protection.load(certificate="hub.crt", key="hub.key", tokens="hub.tokens")
    protection.check(parse_address("0.0.0.0:7878"))     # raises WrongUse if this is not enough
    protection.admits(token)                            # in constant time

Secrets are read from files that only their owner may read: every user of the machine can see arguments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, get_type_hints

from ..core.io.disk import translated
from ..errors import LogwrightError, WrongUse

LEAST_TOKEN_CHARACTERS: Final = 16
_MOST_SECRET_BYTES: Final = 1 << 20
_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:\s/]+)):(\d{1,5})")
_TOKEN: Final = re.compile(rf"[!-~]{{{LEAST_TOKEN_CHARACTERS},512}}")


# --- addresses ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server. Port 0 lets the system choose a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect. Host names count as other machines."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT` or `[IPV6]:PORT`. `localhost` is always 127.0.0.1."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise WrongUse(f"{text!r} is not an address: give HOST:PORT, such as 127.0.0.1:7878 or [::1]:7878")
    host = match[1] or match[2]
    return Address("127.0.0.1" if host == "localhost" else host, int(match[3]))


@contextlib.contextmanager
def listening(address: Address) -> Iterator[None]:
    """Raise `WrongUse` if the system refuses to listen at an address."""
    try:
        yield
    except LogwrightError:
        raise
    except OSError as error:
        raise WrongUse(f"cannot listen at {address}: {error.strerror or error}") from error


# --- access control -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Protection:
    """The access control of a server. The files are read once, at the start.

    `context` is the same for Python's `ssl`.
    """

    certificate: bytes | None = None
    key: bytes | None = None
    client_authority: bytes | None = None
    tokens: tuple[bytes, ...] = ()
    insecure: bool = False
    context: ssl.SSLContext | None = None

    @classmethod
    def load(
        cls,
        *,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        client_authority: Path | str | None = None,
        tokens: Path | str | None = None,
        insecure: bool = False,
    ) -> Self:
        """Read the server's certificate chain and key, the authority of client certificates, and the tokens."""
        if (certificate is None) != (key is None):
            raise WrongUse("TLS needs both a certificate and its key")
        if client_authority is not None and certificate is None:
            raise WrongUse("client certificates need TLS: give the server's certificate and key as well")
        authority = None if client_authority is None else read_bounded(Path(client_authority))
        return cls(
            None if certificate is None else read_bounded(Path(certificate)),
            None if key is None else read_secret(Path(key)),
            authority,
            () if tokens is None else read_tokens(Path(tokens)),
            insecure,
            None if certificate is None or key is None else _context(Path(certificate), Path(key), authority),
        )

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.certificate is not None

    def check(self, address: Address) -> None:
        """Raise `WrongUse` if this is too weak for an address."""
        if address.is_loopback or self.insecure:
            return
        if not self.has_tls:
            raise WrongUse(
                f"{address} is reachable from other machines: use TLS (--tls-certificate, --tls-key) and tokens or "
                "client certificates (--tokens, --client-authority), or --insecure if the network controls access"
            )
        if not self.tokens and self.client_authority is None:
            raise WrongUse(
                f"{address} is reachable from other machines: TLS alone admits every client: use tokens (--tokens) or "
                "client certificates (--client-authority), or --insecure if the network controls access"
            )

    def admits(self, token: bytes | None) -> bool:
        """Whether a client with this token, or none, is admitted. Takes constant time."""
        if not self.tokens:
            return True
        given = b"" if token is None else token
        admitted = False
        for known in self.tokens:
            admitted |= hmac.compare_digest(known, given)
        return admitted

    def describe(self) -> str:
        """What a client needs, in a few words, without secrets."""
        parts = ["TLS" if self.has_tls else "plain text"]
        if self.client_authority is not None:
            parts.append("client certificates")
        if self.tokens:
            parts.append(f"tokens ({len(self.tokens)})")
        if self.client_authority is None and not self.tokens:
            parts.append("no tokens")
        return ", ".join(parts)


def _context(certificate: Path, key: Path, client_authority: bytes | None) -> ssl.SSLContext:
    """The TLS context of a server; raises `WrongUse` if key and certificate do not match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, certificate, key)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, client_authority, "the authority of client certificates")
    return context


def client_context(authority: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """The TLS context of a client; raises `WrongUse` for unusable files.

    Without an authority it trusts those of the system.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.load_default_certs()
    else:
        _trust(context, read_bounded(authority), str(authority))
    if certificate is not None and key is not None:
        read_bounded(certificate)  # reports missing files and wrong permissions better than `ssl`
        read_secret(key)
        _load(context, certificate, key)
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise WrongUse(f"{certificate} and {key} do not match ({error})") from None


def _trust(context: ssl.SSLContext, authority: bytes, name: str) -> None:
    try:
        context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise WrongUse(f"{name}: not a certificate ({error})") from None


# --- files ----------------------------------------------------------------------------------------------------------


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """The tokens of a file, one per line. Empty lines and lines that begin with # are ignored."""
    found = []
    for number, line in enumerate(read_secret(path).decode("utf-8", "replace").splitlines(), start=1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if not _TOKEN.fullmatch(token):
            what = f"a token has {LEAST_TOKEN_CHARACTERS} to 512 ASCII characters and no spaces"
            raise WrongUse(f"{path}, line {number}: {what}")
        found.append(token.encode("ascii"))
    if not found:
        raise WrongUse(f"{path} has no tokens")
    return tuple(found)


def read_secret(path: Path) -> bytes:
    """Read a file that only its owner, this user or root, may read or write; otherwise raise `WrongUse`."""
    data, status = _read(path)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        raise WrongUse(f"{path} is accessible to others (mode {mode:04o}): run chmod 600 {path}")
    if status.st_uid not in (0, os.geteuid()):
        raise WrongUse(f"{path} belongs to another user")
    return data


def read_bounded(path: Path) -> bytes:
    """Read a small file that is not secret."""
    return _read(path)[0]


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    with translated("read", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise WrongUse(f"{path} is not a file")
            if status.st_size > _MOST_SECRET_BYTES:
                raise WrongUse(f"{path} has {status.st_size} bytes: too large for a certificate, key or list of tokens")
            return os.read(descriptor, _MOST_SECRET_BYTES), status
        finally:
            os.close(descriptor)


# --- limits ---------------------------------------------------------------------------------------------------------


def limits_of(limits: Any) -> dict[str, int | float]:
    """The limits of a server, a dataclass of numbers, as they are printed at its start."""
    return {field.name: getattr(limits, field.name) for field in dataclasses.fields(limits)}


def descriptions(numbers: type[Any]) -> dict[str, str]:
    """What each field of a dataclass of numbers is, by its name: the text in its `Annotated` type."""
    hints = get_type_hints(numbers, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in dataclasses.fields(numbers)}


def check_limits(limits: Any) -> None:
    """Raise `WrongUse` for a limit that is not a positive number."""
    for name, number in limits_of(limits).items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 2**62:
            raise WrongUse(f"{name} must be a positive number, not {number!r}")
