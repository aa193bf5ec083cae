"""Contexts from key stores and trust stores of all forms, tried with hand-shakes in memory."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.config.errors import ConfigError
from broker.tls.contexts import client_context, server_context
from broker.tls.settings import SettingsSource, TlsSettings, read_tls_settings
from tests.support.certificates import CertificateAuthority, Identity

AUTHORITY = CertificateAuthority()
SERVER = AUTHORITY.issue("broker", "localhost", "127.0.0.1")
CLIENT = AUTHORITY.issue("alice")
STRANGER = CertificateAuthority("Stranger").issue("mallory")
PASSWORD = "geheim-7"


def settings(given: Mapping[str, str]) -> TlsSettings:
    return read_tls_settings(SettingsSource(given.get))


def inline(identity: Identity, **more: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.chain_pem,
        "ssl.keystore.key": identity.key_pem(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.pem,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """Return the server's side. Raise SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours


def stores(directory: Path) -> dict[str, dict[str, str]]:
    """Return settings of the same identity in every form."""
    pem = SERVER.write_pem(directory / "server.pem")
    encrypted = directory / "encrypted.pem"
    encrypted.write_text(f"a comment\n{SERVER.key_pem(PASSWORD)}\n{SERVER.chain_pem}")
    store, trust = directory / "server.p12", directory / "trust.p12"
    store.write_bytes(SERVER.pkcs12(PASSWORD))
    trust.write_bytes(AUTHORITY.pkcs12_trust_store(PASSWORD))
    (directory / "authority.pem").write_text(AUTHORITY.pem)
    pem_file = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    pem_file["ssl.truststore.location"] = str(directory / "authority.pem")
    p12 = {
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
    }
    return {
        "inline": inline(SERVER),
        "one line": {name: value.replace("\n", " ") for name, value in inline(SERVER).items()},
        "inline, encrypted": inline(SERVER, ssl_keystore_key=SERVER.key_pem(PASSWORD), ssl_key_password=PASSWORD),
        "file": pem_file | {"ssl.keystore.location": str(pem)},
        "file, encrypted": pem_file | {"ssl.keystore.location": str(encrypted), "ssl.key.password": PASSWORD},
        "password without need": pem_file | {"ssl.keystore.location": str(pem), "ssl.key.password": PASSWORD},
        "PKCS12": p12 | {"ssl.keystore.type": "PKCS12", "ssl.truststore.type": "PKCS12"},
        "PKCS12 under the default type": p12,
    }


@pytest.mark.parametrize(
    "form",
    [
        "inline",
        "one line",
        "inline, encrypted",
        "file",
        "file, encrypted",
        "password without need",
        "PKCS12",
        "PKCS12 under the default type",
    ],
)
def test_every_form_of_store_serves_mutual_authentication(tmp_path: Path, form: str) -> None:
    given = stores(tmp_path)[form]
    server = server_context(settings(given | {"ssl.client.auth": "required"}))
    shaken = shake_hands(server, client_context(settings(given)))
    assert shaken.version() == "TLSv1.3"
    assert shaken.getpeercert(binary_form=True) == SERVER.der


def test_requested_certificates_may_be_missing_but_not_wrong() -> None:
    server = server_context(settings(inline(SERVER, ssl_client_auth="requested")))
    anonymous = {name: value for name, value in inline(CLIENT).items() if "keystore" not in name}
    assert shake_hands(server, client_context(settings(anonymous))).getpeercert(binary_form=True) is None
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake_hands(server, client_context(settings(inline(STRANGER))))


def test_host_names_are_checked_unless_turned_off() -> None:
    server = server_context(settings(inline(SERVER)))
    checking = client_context(settings(inline(CLIENT)))
    shake_hands(server, checking, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, checking, "example.com")
    shake_hands(
        server, client_context(settings(inline(CLIENT, ssl_endpoint_identification_algorithm=""))), "example.com"
    )


def test_versions_and_suites_are_applied() -> None:
    server = server_context(settings(inline(SERVER, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")))
    shaken = shake_hands(server, client_context(settings(inline(CLIENT))))
    cipher = shaken.cipher()
    assert cipher is not None
    assert (shaken.version(), cipher[0]) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")
    newest = client_context(settings(inline(CLIENT, ssl_enabled_protocols="TLSv1.3")))
    with pytest.raises(ssl.SSLError):
        shake_hands(server, newest)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (inline(SERVER, ssl_keystore_key="nothing"), "ssl.keystore.key has no private key but needs one."),
        (inline(SERVER, ssl_keystore_key=SERVER.key_pem() * 2), "ssl.keystore.key has 2 private keys but needs one."),
        (inline(SERVER, ssl_keystore_key=SERVER.key_pem(PASSWORD)), "has an encrypted private key; set ssl.key.pass"),
        (
            inline(SERVER, ssl_keystore_key=SERVER.key_pem(PASSWORD), ssl_key_password="wrong-1"),
            "has a private key that cannot be decrypted with ssl.key.password.",
        ),
        (inline(SERVER, ssl_keystore_key=CLIENT.key_pem()), "cannot be used: key values mismatch."),
        (inline(SERVER, ssl_keystore_certificate_chain="x"), "ssl.keystore.key has no certificate."),
        (inline(SERVER, ssl_truststore_certificates="x"), "ssl.truststore.certificates has no certificate."),
        (
            inline(SERVER, ssl_truststore_certificates=AUTHORITY.pem.replace("MII", "MIX", 1)),
            "ssl.truststore.certificates has a certificate that cannot be parsed.",
        ),
    ],
)
def test_unusable_key_material_is_refused_without_its_text(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server_context(settings(given))
    assert sentence in refused.value.sentence
    for secret in (PASSWORD, "wrong-1", "BEGIN"):
        assert secret not in refused.value.sentence
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: /"),
        (b"\xfe\xed\xfe\xed rest", "converted with: keytool -importkeystore"),
        (b"0\x82 rest", "cannot be read as PKCS12 with the given password"),
        (SERVER.pkcs12("another"), "cannot be read as PKCS12 with the given password"),
    ],
)
def test_unreadable_store_files_are_refused_with_the_way_out(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    store = tmp_path / "store.jks"
    if content is not None:
        store.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        server_context(settings({"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}))
    assert refused.value.key == "ssl.keystore.location"
    assert sentence.replace("converted", "convert it") in refused.value.sentence
    assert PASSWORD not in refused.value.sentence
