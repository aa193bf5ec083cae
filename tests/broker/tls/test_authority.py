"""The private authority of a secure cluster, against the TLS stack that uses it."""

import datetime
import ssl
from pathlib import Path

import pytest

from broker.tls.authority import NODE_DAYS, IssuedCertificate, PrivateAuthority

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = PrivateAuthority.create("Authority", NOW)
HOSTS = ["127.0.0.1", "localhost", "::1"]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Run a hand-shake in memory and return the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname=host)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client_side, server_side, client_side, server_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return server_side


def contexts(path: Path, text: str, trust: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    path.write_text(text)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=trust)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cadata=trust)
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_cert_chain(path)
    return server, client


@pytest.mark.parametrize("host", HOSTS)
def test_node_serves_and_connects_with_one_certificate(tmp_path: Path, host: str) -> None:
    text = AUTHORITY.issue("node-1", HOSTS, NOW)
    server = handshake(*contexts(tmp_path / "node.pem", text, AUTHORITY.certificate_pem), host)
    assert server.getpeercert() is not None
    assert server.version() == "TLSv1.3"


def test_other_hosts_and_other_authorities_are_refused(tmp_path: Path) -> None:
    text = AUTHORITY.issue("node-1", HOSTS, NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*contexts(tmp_path / "node.pem", text, AUTHORITY.certificate_pem), "elsewhere")
    other = PrivateAuthority.create("Authority", NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*contexts(tmp_path / "node.pem", text, other.certificate_pem), "localhost")


def test_authority_is_read_back_and_hides_its_key() -> None:
    again = PrivateAuthority.from_pem(AUTHORITY.certificate_pem, AUTHORITY.key_pem)
    assert again.key_pem == AUTHORITY.key_pem
    assert "key" not in repr(again)


def test_certificate_serves_its_hosts_until_it_is_about_to_end() -> None:
    issued = IssuedCertificate.from_pem(AUTHORITY.issue("node-7", HOSTS, NOW))
    assert (issued.name, issued.hosts) == ("node-7", frozenset(HOSTS))
    assert issued.serves(HOSTS[:2], NOW)
    assert not issued.serves(["elsewhere"], NOW)
    assert not issued.serves(HOSTS, NOW + datetime.timedelta(days=NODE_DAYS - 29))


def test_text_without_certificate_is_an_error() -> None:
    with pytest.raises(ValueError, match="PEM"):
        IssuedCertificate.from_pem("nothing")
