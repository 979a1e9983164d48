"""Certificates for tests that speak TLS: an authority of one's own, and what it has signed."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates. `file` is its own, for those who trust it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._built(self._name, self._key.public_key(), timedelta(days=2)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, host: str, lasts: timedelta = timedelta(days=1)) -> Path:
        """A certificate for a host and its key in one file; one that has run out if `lasts` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
        names = x509.SubjectAlternativeName([named(host)])
        signed = self._built(subject, key.public_key(), lasts).add_extension(names, critical=False)
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        file = self._folder / f"{host}-{lasts.days}.pem"
        file.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
            + signed.sign(self._key, hashes.SHA256()).public_bytes(pem)
        )
        return file

    def _built(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        begun = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        return begun.not_valid_before(now - timedelta(days=30)).not_valid_after(now + lasts)


def named(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
