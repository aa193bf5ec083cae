"""Certificates for tests, made in memory with fast elliptic-curve keys."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

DAY = datetime.timedelta(days=1)
SIGNING = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


@dataclass(frozen=True)
class Identity:
    """A private key, its certificate, and the authority's certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def chain_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption(password)).decode()

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"own", self.key, self.certificate, [self.authority], encryption(password)
        )

    def write_pem(self, path: Path) -> Path:
        """Write key and certificate to one file, as Kafka's PEM key stores are."""
        path.touch(0o600)
        path.write_text(self.key_pem() + self.chain_pem)
        return path


class CertificateAuthority:
    """A private authority that signs certificates for servers and clients."""

    def __init__(self, name: str = "Test authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.certificate = self._builder(self.name, self.key, is_authority=True).sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, common_name: str, *hosts: str, organization: str | None = None, days: int = 1) -> Identity:
        """Issue a certificate for a name, valid for `hosts` (DNS names and addresses) and `days`."""
        parts = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            parts.insert(0, x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization))
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name(parts), key, is_authority=False, days=days)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return Identity(key, builder.sign(self.key, hashes.SHA256()), self.certificate)

    def pkcs12_trust_store(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(None, None, None, [self.certificate], encryption(password))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool, days: int = 1
    ) -> x509.CertificateBuilder:
        """Return a builder with the extensions that Python's default context demands from 3.13 (RFC 5280)."""
        now = datetime.datetime.now(datetime.UTC)
        own, issuer = (x509.SubjectKeyIdentifier.from_public_key(each.public_key()) for each in (key, self.key))
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(own, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        )
        return builder.add_extension(SIGNING, critical=True) if is_authority else builder


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
