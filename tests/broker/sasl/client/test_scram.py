"""The client's side of SCRAM and PLAIN: RFC 7677's example, and servers that are not genuine."""

import pytest

from broker.sasl.client.plain import PlainClient
from broker.sasl.client.scram import ScramClient
from broker.sasl.mechanism import AuthenticationFailed

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={SERVER_NONCE},s={SALT},i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begun() -> ScramClient:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=lambda: NONCE)
    assert client.first() == f"n,,n=user,r={NONCE}".encode()
    return client


def test_exchange_of_the_rfc() -> None:
    client = begun()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.respond(SERVER_FIRST.encode()) == f"c=biws,r={SERVER_NONCE},p={proof}".encode()
    assert client.respond(SERVER_FINAL) is None
    with pytest.raises(AuthenticationFailed, match="out of turn"):
        client.respond(SERVER_FINAL)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f"r={NONCE},s={SALT},i=4096", "does not extend"),
        (f"r=other{NONCE},s={SALT},i=4096", "does not extend"),
        (f"r={SERVER_NONCE},s={SALT},i=4095", "4095 is below 4096"),
        (f"r={SERVER_NONCE},s={SALT},i=10000000", "10000000 is above 1000000"),
        (f"r={SERVER_NONCE},s={SALT},i=-1", "malformed SCRAM iteration count"),
        (f"r={SERVER_NONCE},s=?,i=4096", "malformed SCRAM salt"),
        (f"r={SERVER_NONCE},s={SALT}", "malformed SCRAM message"),
        (f"m=x,{SERVER_FIRST}", "malformed SCRAM message"),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "malformed SCRAM message"),
        ("", "malformed SCRAM message"),
    ],
)
def test_first_message_that_is_not_genuine_is_refused(message: str, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        begun().respond(message.encode())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "signature is wrong"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "malformed"),
        (b"\xff", "not text"),
    ],
)
def test_server_must_prove_that_it_knows_the_credential(message: bytes, reason: str) -> None:
    client = begun()
    client.respond(SERVER_FIRST.encode())
    with pytest.raises(AuthenticationFailed, match=reason):
        client.respond(message)


def test_delegation_token_and_special_characters() -> None:
    client = ScramClient("SCRAM-SHA-512", "a=b,c", "hmac", is_token=True, nonce=lambda: "x")
    assert client.first() == b"n,,n=a=3Db=2Cc,r=x,tokenauth=true"


def test_nonces_differ() -> None:
    assert ScramClient("SCRAM-SHA-256", "u", "p").first() != ScramClient("SCRAM-SHA-256", "u", "p").first()


def test_plain_has_one_message() -> None:
    client = PlainClient("älice", "p,=")
    assert client.first() == "\0älice\0p,=".encode()
    assert client.respond(b"") is None
    with pytest.raises(AuthenticationFailed, match="challenge"):
        client.respond(b"more")
