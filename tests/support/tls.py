"""TLS settings, contexts and endpoints for tests, from certificates made in memory."""

import ssl

from broker.tls.contexts import client_context
from broker.tls.listener import ListenerTls, LoadedTls, load_tls
from broker.tls.principal_rules import parse_principal_rules
from broker.tls.settings import SettingsSource, read_tls_settings
from tests.support.certificates import CertificateAuthority, Identity


def inline(authority: CertificateAuthority, identity: Identity | None = None, **more: str) -> dict[str, str]:
    """Return `ssl.*` settings with PEM text; keywords are further settings, with "_" for "."."""
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    if identity is not None:
        given |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": identity.chain_pem,
            "ssl.keystore.key": identity.key_pem(),
        }
    return given | {name.replace("_", "."): value for name, value in more.items()}


def loaded(given: dict[str, str], rules: str = "DEFAULT") -> LoadedTls:
    """Return the contexts of a listener that serves."""
    settings = read_tls_settings(SettingsSource(given.get))
    return load_tls("SSL", settings, parse_principal_rules(rules), serves=True)


def listener(given: dict[str, str], rules: str = "DEFAULT") -> ListenerTls:
    return ListenerTls(loaded(given, rules))


def client(given: dict[str, str]) -> ssl.SSLContext:
    return client_context(read_tls_settings(SettingsSource(given.get)))
