"""A private certificate authority: makes itself, and certificates for nodes. Elliptic-curve keys; no IO."""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocol.lazy_dataclass import lazy_dataclass

AUTHORITY_DAYS: Final = 3650
NODE_DAYS: Final = 365
RENEWAL_DAYS: Final = 30
"""A node's certificate is renewed at the start of a cluster in the last days of its life."""
_CLOCK_SKEW: Final = datetime.timedelta(hours=1)


@lazy_dataclass(frozen=True, slots=True)
class PrivateAuthority:
    """An authority's certificate and private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def create(cls, name: str, now: datetime.datetime) -> "PrivateAuthority":
        """Make a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def from_pem(cls, certificates: str, key: str) -> "PrivateAuthority":
        """Parse the authority to which the key belongs; further certificates are those of other authorities.

        Raise ValueError, which never shows the key.
        """
        loaded = load_pem_private_key(key.encode(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not an elliptic-curve key")
        own = loaded.public_key()
        for certificate in x509.load_pem_x509_certificates(certificates.encode()):
            if certificate.public_key() == own:
                return cls(certificate, loaded)
        raise ValueError("no certificate belongs to the authority's key")

    @property
    def certificate_pem(self) -> str:
        """The certificate as PEM."""
        return certificate_pem(self.certificate)

    @property
    def key_id(self) -> bytes:
        """The identifier of the key, which certificates that it signs name as their issuer's."""
        return key_id(self.certificate)

    @property
    def key_pem(self) -> str:
        """The private key as unencrypted PEM."""
        return _key_pem(self.key)

    def issue(self, name: str, hosts: Iterable[str], now: datetime.datetime) -> str:
        """Issue a certificate for servers and clients; return a new private key and the certificate as PEM.

        `hosts` are DNS names and addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self.certificate.subject, key.public_key(), now, NODE_DAYS)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage(usages), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False),
            (x509.SubjectAlternativeName([_host(host) for host in hosts]), False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        certificate = builder.sign(self.key, hashes.SHA256())
        return _key_pem(key) + certificate.public_bytes(Encoding.PEM).decode()


@lazy_dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """The facts of a certificate from which another one is issued."""

    name: str
    hosts: frozenset[str]
    ends: datetime.datetime
    issuer_key_id: bytes | None
    der: bytes = field(repr=False)

    @classmethod
    def from_pem(cls, text: str) -> "IssuedCertificate":
        """Parse the certificate in a PEM text. Raise ValueError."""
        start = text.find("-----BEGIN CERTIFICATE-----")
        found = x509.load_pem_x509_certificate(text[max(start, 0) :].encode())
        names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        try:
            alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            raise ValueError("the certificate has no alternative names") from None
        if len(names) != 1:
            raise ValueError("the certificate has no common name")
        hosts = frozenset(str(each.value) for each in alternatives)
        ends, der = found.not_valid_after_utc, found.public_bytes(Encoding.DER)
        return cls(str(names[0].value), hosts, ends, _issuer_key_id(found), der)

    def serves(self, hosts: Iterable[str], now: datetime.datetime) -> bool:
        """Whether the certificate names all hosts and is not about to end."""
        return self.hosts.issuperset(hosts) and self.ends - now > datetime.timedelta(days=RENEWAL_DAYS)


def certificate_pem(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM."""
    return certificate.public_bytes(Encoding.PEM).decode()


def key_id(certificate: x509.Certificate) -> bytes:
    """Return the identifier of a certificate's key (RFC 5280 4.2.1.2)."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    except x509.ExtensionNotFound:
        return x509.SubjectKeyIdentifier.from_public_key(certificate.public_key()).digest


def _issuer_key_id(certificate: x509.Certificate) -> bytes | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
