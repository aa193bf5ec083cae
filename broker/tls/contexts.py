"""TLS contexts of Python's `ssl` from settings and key material. Reads files; blocks for a few milliseconds."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from broker.config.errors import ConfigError
from broker.tls.key_material import KeyMaterial, read_key_store, read_trust_store
from broker.tls.settings import StoreSettings, TlsSettings

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Build the context of a listener. Raise ConfigError."""
    assert settings.key_store is not None, "the caller checks that a listener has a key store"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    _apply(context, settings, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Build the context of outgoing connections. Without trust store, the system's authorities are trusted.

    Raise ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_names
    _apply(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def _apply(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    context.minimum_version, context.maximum_version = settings.lowest, settings.highest
    # Java trusts every certificate of a trust store, also one that is not self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.ciphers is not None:
        context.set_ciphers(settings.ciphers)
    if settings.key_store is not None:
        _load_key(context, settings.key_store)
    if settings.trust_store is not None:
        context.load_verify_locations(cadata=read_trust_store(settings.trust_store))
    elif context.verify_mode is not ssl.CERT_NONE:
        context.load_default_certs(purpose)


def _load_key(context: ssl.SSLContext, store: StoreSettings) -> None:
    material = read_key_store(store)
    try:
        with _as_file(material) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        reason = (error.reason or "unknown").replace("_", " ").lower()
        raise ConfigError(store.key, f"{store.key} has a key or certificate that cannot be used: {reason}.") from None


@contextmanager
def _as_file(material: KeyMaterial) -> Iterator[str]:
    """Yield a path to the key material: `ssl` loads keys from files only. On Linux the file exists in memory alone."""
    data = material.private_key + material.certificates
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-tls", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:  # readable for this user alone
            file.write(data)
            file.flush()
            yield file.name
