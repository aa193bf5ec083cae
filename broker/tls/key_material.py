"""Keys and certificates of key stores and trust stores: PEM as text or file, and PKCS12 files.

JKS is Java's own format, and nothing maintained reads it outside of Java. Kafka's default type is JKS all the same, and
Java reads PKCS12 under that type, so the bytes of a file decide. Reads files; blocks.
"""

import re
from dataclasses import field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from broker.config.errors import ConfigError
from broker.tls.settings import StoreSettings
from protocol.lazy_dataclass import lazy_dataclass

STORE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest store that is read; a bundle of all public authorities has 200 KB."""

_JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_PEM: Final = re.compile(r"-----BEGIN (?P<name>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=name)-----", re.DOTALL)
_KEY_NAME: Final = "PRIVATE KEY"
_CERTIFICATE: Final = "CERTIFICATE"


@lazy_dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificates, the own one first, as unencrypted PEM."""

    certificates: bytes
    private_key: bytes = field(repr=False)


def read_key_store(store: StoreSettings) -> KeyMaterial:
    """Read a private key with its certificates. Raise ConfigError."""
    if store.location is None:
        assert store.certificates is not None
        assert store.private_key is not None
        return _from_pem(store, store.certificates, store.private_key)
    data = _read_file(store, store.location)
    if store.kind == "PEM":
        text = data.decode("utf-8", "replace")
        return _from_pem(store, text, text)
    return _from_pkcs12(store, data)


def read_trust_store(store: StoreSettings) -> str:
    """Read trusted certificates; return them as PEM. Raise ConfigError."""
    if store.certificates is not None:
        return _certificates(store, store.certificates).decode()
    assert store.location is not None
    data = _read_file(store, store.location)
    if store.kind == "PEM":
        return _certificates(store, data.decode("utf-8", "replace")).decode()
    found = _open_pkcs12(store, data, store.password)
    trusted = [each.certificate for each in found.additional_certs]
    if found.key is None and found.cert is not None:
        trusted.append(found.cert.certificate)
    if not trusted:
        raise _error(store, "has no trusted certificate")
    return b"".join(each.public_bytes(Encoding.PEM) for each in trusted).decode()


def _from_pem(store: StoreSettings, certificates: str, private_key: str) -> KeyMaterial:
    blocks = [block for block in _PEM.finditer(private_key) if block["name"].endswith(_KEY_NAME)]
    if len(blocks) != 1:
        raise _error(store, f"has {len(blocks) or 'no'} private key{'s' if len(blocks) > 1 else ''} but needs one")
    text = _canonical(blocks[0])
    password = None if store.key_password is None else store.key_password.encode()
    try:
        try:
            key = load_pem_private_key(text, password)
        except TypeError:  # a password for a key that is not encrypted, or none for one that is
            if password is None:
                raise _error(store, "has an encrypted private key; set ssl.key.password") from None
            key = load_pem_private_key(text, None)
    except (ValueError, UnsupportedAlgorithm):
        reason = "cannot be parsed" if password is None else "cannot be decrypted with ssl.key.password"
        raise _error(store, f"has a private key that {reason}") from None
    return KeyMaterial(_certificates(store, certificates), _plain(key))


def _certificates(store: StoreSettings, text: str) -> bytes:
    """Return the certificates in a text as PEM, without the lines around them."""
    found = [_canonical(block) for block in _PEM.finditer(text) if block["name"] == _CERTIFICATE]
    if not found:
        raise _error(store, "has no certificate")
    joined = b"".join(found)
    try:
        x509.load_pem_x509_certificates(joined)
    except ValueError:
        raise _error(store, "has a certificate that cannot be parsed") from None
    return joined


def _canonical(block: "re.Match[str]") -> bytes:
    """Return a PEM block in lines: Java also accepts text on one line, as properties files often have it."""
    if ":" in block["body"]:  # headers of an encrypted key in OpenSSL's old form
        return block[0].encode()
    body = "".join(block["body"].split())
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {block['name']}-----", *lines, f"-----END {block['name']}-----", ""]).encode()


def _from_pkcs12(store: StoreSettings, data: bytes) -> KeyMaterial:
    found = _open_pkcs12(store, data, store.password)
    if found.key is None or found.cert is None:
        raise _error(store, "has no private key with a certificate")
    chain = [found.cert.certificate, *(each.certificate for each in found.additional_certs)]
    return KeyMaterial(b"".join(each.public_bytes(Encoding.PEM) for each in chain), _plain(found.key))


def _open_pkcs12(store: StoreSettings, data: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    if data.startswith(_JAVA_MAGIC):
        raise _error(
            store,
            f"is a JKS store ({store.location}), which only Java reads; convert it with: keytool -importkeystore "
            f"-srckeystore {store.location} -destkeystore {Path(store.location or '').stem}.p12 -deststoretype PKCS12",
        )
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        with_password = "without a password" if password is None else "with the given password"
        raise _error(store, f"cannot be read as PKCS12 {with_password} ({store.location})") from None


def _plain(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_file(store: StoreSettings, location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise _error(store, f"cannot be read: {location}: {error.strerror}") from None
    if len(data) > STORE_BYTES_MAX:
        raise _error(store, f"is larger than {STORE_BYTES_MAX} bytes: {location}")
    return data


def _error(store: StoreSettings, problem: str) -> ConfigError:
    return ConfigError(store.key, f"{store.key} {problem}.")
