"""Certificates for tests: an authority, and what it signs, in PEM."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.datetime.now(datetime.UTC)


class Authority:
    """Signs certificates; its own is in `certificate`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_NOW - datetime.timedelta(days=1))
            .not_valid_after(_NOW + datetime.timedelta(days=1))
        )

    def sign(self, name: str) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1, and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        places = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signed = self._builder(subject, key.public_key()).add_extension(places, critical=False)
        certificate, key_path = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        data = signed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        certificate.write_bytes(data)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_secret(key_path, secret)
        return certificate, key_path


def write_secret(path: Path, data: bytes) -> Path:
    """A file that only its owner may read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(data)
    return path
