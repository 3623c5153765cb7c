"""Certificates for the tests of TLS: an authority, and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for localhost, in files of a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._own = self._sign(self._name, self._key.public_key(), is_authority=True)
        self.path = directory / f"{name}.crt"
        self.path.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        is_authority: bool,
        address: str = "127.0.0.1",
        days: int = 1,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(address))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=3))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
        if is_authority:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, name: str, address: str = "127.0.0.1", days: int = 1) -> Certificate:
        """A certificate of this name, for localhost at an address, that is valid for `days` days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signed = self._sign(subject, key.public_key(), is_authority=False, address=address, days=days)
        found = Certificate(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        found.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        found.key.touch(0o600)
        found.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return found

    def trusting(self, own: Certificate | None = None) -> ssl.SSLContext:
        """The context of a client that trusts this authority, with a client certificate if one is given."""
        context = ssl.create_default_context(cafile=str(self.path))
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        return context
