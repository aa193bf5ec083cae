"""Settings of TLS: Kafka's rules between the keys, names of cipher suites, and errors that name the key."""

import ssl

import pytest

from broker.config.errors import ConfigError
from broker.tls.settings import SettingsSource, TlsSettings, read_tls_settings

SECRET = "geheim-7"
STORE = {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": SECRET}
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def parse(**given: str) -> TlsSettings:
    settings = {name.replace("_", "."): value for name, value in given.items()}
    return read_tls_settings(SettingsSource(settings.get))


def test_defaults_are_those_of_kafka() -> None:
    settings = parse()
    assert settings == TlsSettings(None, None, V12, V13, None, True, "none")


def test_representation_shows_no_secret() -> None:
    settings = read_tls_settings(SettingsSource((STORE | {"ssl.key.password": SECRET}).get))
    assert settings.key_store is not None
    assert settings.key_store.password == settings.key_store.key_password == SECRET
    assert SECRET not in repr(settings)
    assert settings.files == ("/k.p12",)


@pytest.mark.parametrize(
    ("given", "versions"),
    [
        ({"ssl_enabled_protocols": "TLSv1.3"}, (V13, V13)),
        ({"ssl_enabled_protocols": "TLSv1.2"}, (V12, V12)),
        ({"ssl_enabled_protocols": "", "ssl_protocol": "TLSv1.2"}, (V12, V12)),
        ({"ssl_enabled_protocols": "", "ssl_protocol": "TLS"}, (V12, V13)),
        ({"ssl_protocol": "TLSv1.2"}, (V12, V13)),
        ({"ssl_cipher_suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, (V12, V12)),
        (
            {"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"},
            (V13, V13),
        ),
    ],
)
def test_protocols_and_suites_limit_the_versions(given: dict[str, str], versions: tuple[object, object]) -> None:
    settings = parse(**given)
    assert (settings.lowest, settings.highest) == versions


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
        ("TLS_ECDHE_RSA_WITH_CAMELLIA_128_CBC_SHA256", "ECDHE-RSA-CAMELLIA128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_ARIA_256_GCM_SHA384", "ECDHE-ARIA256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_java_names_of_cipher_suites_are_translated(java: str, openssl: str) -> None:
    assert parse(ssl_cipher_suites=java).ciphers == openssl


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ssl_protocol": "SSLv3"}, "ssl.protocol is 'SSLv3' but must be one of TLS, TLSv1.2, TLSv1.3."),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "ssl.enabled.protocols lists 'TLSv1.1' but may only list"),
        ({"ssl_cipher_suites": "TLS_NULL_WITH_NULL_NULL"}, "ssl.cipher.suites lists 'TLS_NULL_WITH_NULL_NULL', which"),
        ({"ssl_cipher_suites": "ALL"}, "ssl.cipher.suites lists 'ALL', which is not a cipher suite"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "but not TLS_AES_256_GCM_SHA384: single suites of TLS 1.3"),
        (
            {"ssl_cipher_suites": "TLS_RSA_WITH_AES_128_CBC_SHA", "ssl_enabled_protocols": "TLSv1.3"},
            "ssl.cipher.suites has no suite for the versions in ssl.enabled.protocols.",
        ),
        ({"ssl_endpoint_identification_algorithm": "ldaps"}, "but must be https, or empty for no check."),
        ({"ssl_client_auth": "maybe"}, "ssl.client.auth is 'maybe' but must be one of none, requested, required."),
        ({"ssl_keystore_location": "/k"}, "ssl.keystore.password must be set, because ssl.keystore.location names"),
        ({"ssl_keystore_password": SECRET}, "ssl.keystore.password is set, but ssl.keystore.location is not."),
        ({"ssl_keystore_key": SECRET}, "ssl.keystore.certificate.chain must be set beside ssl.keystore.key."),
        ({"ssl_keystore_certificate_chain": SECRET}, "ssl.keystore.key must be set beside"),
        (
            {"ssl_keystore_key": SECRET, "ssl_keystore_certificate_chain": SECRET},
            "ssl.keystore.type is JKS but must be PEM for certificates given as text.",
        ),
        (
            {"ssl_keystore_key": SECRET, "ssl_keystore_location": "/k"},
            "ssl.keystore.location must not be set beside ssl.keystore.key.",
        ),
        (
            {"ssl_keystore_type": "PEM", "ssl_keystore_location": "/k", "ssl_keystore_password": SECRET},
            "ssl.keystore.password must not be set for a store of type PEM; use ssl.key.password",
        ),
        ({"ssl_truststore_type": "BKS", "ssl_truststore_location": "/t"}, "is 'BKS' but must be PEM or PKCS12."),
        ({"ssl_truststore_password": SECRET}, "ssl.truststore.password is set, but ssl.truststore.location is not."),
        ({"ssl_truststore_certificates": SECRET}, "ssl.truststore.type is JKS but must be PEM"),
    ],
)
def test_unusable_settings_are_refused_with_a_sentence_that_names_the_key(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(**given)
    assert sentence in refused.value.sentence
    assert refused.value.key in refused.value.sentence
    assert SECRET not in refused.value.sentence


def test_error_names_the_key_with_its_listener() -> None:
    given = {"ssl.client.auth": "maybe"}
    source = SettingsSource(given.get, lambda name: f"listener.name.tls.{name}")
    with pytest.raises(ConfigError, match=r"^listener\.name\.tls\.ssl\.client\.auth is"):
        read_tls_settings(source)
