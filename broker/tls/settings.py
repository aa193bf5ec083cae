"""The TLS settings of a listener or client, from Kafka's `ssl.*` keys.

Values are texts, as in a properties file. Errors name the key as it was given: with the prefix of its listener, or
without. Secrets never appear in an error or in the representation of an object.
"""

import ssl
from collections.abc import Callable
from dataclasses import field
from typing import Final, Literal

from broker.config.errors import ConfigError
from broker.tls.cipher_suites import CipherChoice, choose_ciphers
from protocol.lazy_dataclass import lazy_dataclass

ClientAuth = Literal["none", "requested", "required"]
CLIENT_AUTH: Final[tuple[ClientAuth, ...]] = ("none", "requested", "required")

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PROTOCOLS: Final = ("TLS", *VERSIONS)

_DEFAULTS: Final = {
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.protocol": "TLSv1.3",
    "ssl.keystore.type": "JKS",
    "ssl.truststore.type": "JKS",
    "ssl.endpoint.identification.algorithm": "https",
}


class SettingsSource:
    """Settings as texts by key. `find` returns the value of a key, and `spelling` its name as given."""

    def __init__(self, find: Callable[[str], str | None], spelling: Callable[[str], str] = str) -> None:
        self.find = find
        self.spelling = spelling

    def get(self, name: str) -> str | None:
        """Return the value; None for one that is unset or empty, which Kafka's files use alike."""
        return (self.find(name) or "").strip() or None

    def text(self, name: str) -> str:
        """Return the value, or Kafka's default. An empty value is returned as it is."""
        found = self.find(name)
        return _DEFAULTS.get(name, "") if found is None else found.strip()

    def items(self, name: str) -> tuple[str, ...]:
        """Return the items of a list."""
        return tuple(item for item in (item.strip() for item in self.text(name).split(",")) if item)

    def error(self, name: str, problem: str) -> ConfigError:
        """Return the error of a key; `problem` continues the sentence that begins with its name."""
        shown = self.spelling(name)
        return ConfigError(shown, f"{shown} {problem}.")


@lazy_dataclass(frozen=True, slots=True)
class StoreSettings:
    """A key store or trust store: a file, or PEM text. `key` names the setting to report."""

    kind: str
    location: str | None
    key: str
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)


@lazy_dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings of one listener or client; `checks_host_names` and `client_auth` concern one side each."""

    key_store: StoreSettings | None
    trust_store: StoreSettings | None
    lowest: ssl.TLSVersion
    highest: ssl.TLSVersion
    ciphers: str | None
    checks_host_names: bool
    client_auth: ClientAuth

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the context is built from."""
        stores = (self.key_store, self.trust_store)
        return tuple(store.location for store in stores if store is not None and store.location is not None)


def read_tls_settings(source: SettingsSource) -> TlsSettings:
    """Parse and check settings. Raise ConfigError. Reads no file."""
    lowest, highest = _versions(source)
    ciphers = _ciphers(source, (lowest, highest))
    return TlsSettings(
        key_store=_key_store(source),
        trust_store=_trust_store(source),
        lowest=ciphers.lowest,
        highest=ciphers.highest,
        ciphers=ciphers.names,
        checks_host_names=_checks_host_names(source),
        client_auth=_client_auth(source),
    )


def _versions(source: SettingsSource) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Return the lowest and highest version. `ssl.protocol` is the highest where no version is enabled by name."""
    protocol = source.text("ssl.protocol")
    if protocol not in PROTOCOLS:
        raise source.error("ssl.protocol", f"is {protocol!r} but must be one of {', '.join(PROTOCOLS)}")
    enabled = source.items("ssl.enabled.protocols")
    unknown = [version for version in enabled if version not in VERSIONS]
    if unknown:
        raise source.error("ssl.enabled.protocols", f"lists {unknown[0]!r} but may only list {', '.join(VERSIONS)}")
    if not enabled:
        return ssl.TLSVersion.TLSv1_2, VERSIONS.get(protocol, ssl.TLSVersion.TLSv1_3)
    versions = [VERSIONS[version] for version in enabled]
    return min(versions), max(versions)


def _ciphers(source: SettingsSource, versions: tuple[ssl.TLSVersion, ssl.TLSVersion]) -> CipherChoice:
    try:
        return choose_ciphers(source.items("ssl.cipher.suites"), *versions)
    except ValueError as error:
        raise source.error("ssl.cipher.suites", str(error)) from None


def _checks_host_names(source: SettingsSource) -> bool:
    algorithm = source.text("ssl.endpoint.identification.algorithm")
    if algorithm.lower() not in ("https", ""):
        raise source.error(
            "ssl.endpoint.identification.algorithm", f"is {algorithm!r} but must be https, or empty for no check"
        )
    return bool(algorithm)


def _client_auth(source: SettingsSource) -> ClientAuth:
    given = source.text("ssl.client.auth").lower() or "none"
    for known in CLIENT_AUTH:
        if given == known:
            return known
    raise source.error("ssl.client.auth", f"is {given!r} but must be one of {', '.join(CLIENT_AUTH)}")


def _key_store(source: SettingsSource) -> StoreSettings | None:
    """Return the key store under Kafka's rules for the combination of keys."""
    location, password = source.get("ssl.keystore.location"), source.get("ssl.keystore.password")
    chain, key = source.get("ssl.keystore.certificate.chain"), source.get("ssl.keystore.key")
    kind = source.text("ssl.keystore.type").upper()
    if chain is None and key is None and location is None:
        if password is not None:
            raise source.error("ssl.keystore.password", "is set, but ssl.keystore.location is not")
        return None
    if location is None:
        if key is None:
            raise source.error("ssl.keystore.key", "must be set beside ssl.keystore.certificate.chain")
        if chain is None:
            raise source.error("ssl.keystore.certificate.chain", "must be set beside ssl.keystore.key")
    elif chain is not None or key is not None:
        raise source.error("ssl.keystore.location", "must not be set beside ssl.keystore.key")
    _check_kind(source, "ssl.keystore", kind, location, password)
    if location is not None and kind != "PEM" and password is None:
        raise source.error("ssl.keystore.password", "must be set, because ssl.keystore.location names a key store")
    name = "ssl.keystore.key" if location is None else "ssl.keystore.location"
    return StoreSettings(
        kind,
        location,
        source.spelling(name),
        password=password,
        key_password=source.get("ssl.key.password"),
        certificates=chain,
        private_key=key,
    )


def _trust_store(source: SettingsSource) -> StoreSettings | None:
    location, password = source.get("ssl.truststore.location"), source.get("ssl.truststore.password")
    certificates = source.get("ssl.truststore.certificates")
    kind = source.text("ssl.truststore.type").upper()
    if certificates is None and location is None:
        if password is not None:
            raise source.error("ssl.truststore.password", "is set, but ssl.truststore.location is not")
        return None
    if certificates is not None and location is not None:
        raise source.error("ssl.truststore.location", "must not be set beside ssl.truststore.certificates")
    _check_kind(source, "ssl.truststore", kind, location, password)
    name = "ssl.truststore.certificates" if location is None else "ssl.truststore.location"
    return StoreSettings(kind, location, source.spelling(name), password=password, certificates=certificates)


def _check_kind(source: SettingsSource, store: str, kind: str, location: str | None, password: str | None) -> None:
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise source.error(f"{store}.type", f"is {kind!r} but must be PEM or PKCS12")
    if location is None and kind != "PEM":
        raise source.error(f"{store}.type", f"is {kind} but must be PEM for certificates given as text")
    if kind == "PEM" and password is not None:
        way_out = "; use ssl.key.password for an encrypted key" if store == "ssl.keystore" else ""
        raise source.error(f"{store}.password", f"must not be set for a store of type PEM{way_out}")
