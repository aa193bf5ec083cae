"""PLAIN and SCRAM exchanges, the server's side, with the vectors of RFC 7677 and the client's side of this project."""

import asyncio
import hashlib
import inspect
from base64 import b64decode
from collections.abc import Awaitable

import pytest

from broker.metadata.controller.scram import scram_keys
from broker.metadata.image.security_image import ScramCredential, ScramMechanism
from broker.sasl.client.plain import PlainClient
from broker.sasl.client.scram import ScramClient
from broker.sasl.mechanism import Accepted, AuthenticationFailed, Challenge
from broker.sasl.server.plain import PlainServer
from broker.sasl.server.scram import DecoyRules, ScramServer, StoredCredential, TokenCredential

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
TOKEN_END_MS = 1_700_000_000_000


def credential(mechanism: str, password: str, salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    digest = "sha256" if mechanism == SHA_256 else "sha512"
    number = ScramMechanism.SCRAM_SHA_256 if mechanism == SHA_256 else ScramMechanism.SCRAM_SHA_512
    keys = scram_keys(number, hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations))
    return ScramCredential(salt, keys.stored_key, keys.server_key, iterations)


class Credentials:
    """One user, one user with too few iterations, and one token."""

    def __init__(self, user: str = "alice", password: str = "secret") -> None:
        self.user, self.password = user, password

    def of_user(self, mechanism: str, user: str) -> StoredCredential | None:
        if user == "weak":
            return credential(mechanism, self.password, iterations=1)
        return credential(mechanism, self.password) if user == self.user else None

    def decoys(self, mechanism: str, *, is_token: bool) -> DecoyRules:
        return DecoyRules(b"secret of decoys", 26, 8192)

    async def of_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        if token_id != "token":
            return None
        return TokenCredential(credential(mechanism, "aG1hYw=="), "User:owner", TOKEN_END_MS)


def outcome(server: ScramServer, token: bytes) -> Challenge | Accepted:
    result = server.respond(token)
    if not inspect.isawaitable(result):
        return result

    async def wait(pending: Awaitable[Challenge | Accepted]) -> Challenge | Accepted:
        return await pending

    return asyncio.run(wait(result))


def log_in(server: ScramServer, client: ScramClient) -> Accepted:
    challenge = outcome(server, client.first())
    assert isinstance(challenge, Challenge)
    final = client.respond(challenge.token)
    assert final is not None
    accepted = outcome(server, final)
    assert isinstance(accepted, Accepted)
    assert client.respond(accepted.token) is None
    return accepted


def test_plain_accepts_the_password_of_the_user() -> None:
    server = PlainServer({"alice": "secret"})
    assert server.respond(PlainClient("alice", "secret").first()).principal == "User:alice"
    assert server.respond(b"alice\0alice\0secret").principal == "User:alice"


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0bob\0\0", "Invalid SASL/PLAIN response: expected three parts of UTF-8 text, separated by NUL"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\xff\0alice\0secret", "Invalid SASL/PLAIN response: expected three parts of UTF-8 text, separated by NUL"),
        (b"", "Invalid SASL/PLAIN response: expected three parts of UTF-8 text, separated by NUL"),
    ],
)
def test_plain_refuses(token: bytes, text: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        PlainServer({"alice": "secret"}).respond(token)
    assert str(caught.value) == text
    assert caught.value.user in (None, "alice", "bob")


def test_scram_answers_the_example_of_rfc_7677() -> None:
    class Example(Credentials):
        def of_user(self, mechanism: str, user: str) -> StoredCredential | None:
            return credential(mechanism, "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))

    server = ScramServer(SHA_256, Example(), nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    challenge = outcome(server, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert isinstance(challenge, Challenge)
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge.token == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    accepted = outcome(server, b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert accepted == Accepted(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "User:user", None)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_scram_logs_users_in(mechanism: str) -> None:
    name = "al=i,ce"
    server = ScramServer(mechanism, Credentials(name))
    assert log_in(server, ScramClient(mechanism, name, "secret")).principal == f"User:{name}"


def test_scram_logs_tokens_in_as_their_owners() -> None:
    server = ScramServer(SHA_256, Credentials())
    accepted = log_in(server, ScramClient(SHA_256, "token", "aG1hYw==", is_token=True))
    assert (accepted.principal, accepted.lifetime_ms, accepted.is_token) == ("User:owner", TOKEN_END_MS, True)


@pytest.mark.parametrize(
    ("user", "password", "is_token"),
    [
        ("alice", "wrong", False),
        ("unknown", "secret", False),
        ("weak", "secret", False),
        ("token", "aG1hYw==", False),
        ("other", "aG1hYw==", True),
        ("alice", "secret", True),
    ],
)
def test_scram_refuses_at_the_last_message(user: str, password: str, is_token: bool) -> None:
    server, client = ScramServer(SHA_256, Credentials()), ScramClient(SHA_256, user, password, is_token=is_token)
    challenge = outcome(server, client.first())
    assert isinstance(challenge, Challenge)
    final = client.respond(challenge.token)
    assert final is not None
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        server.respond(final)


def test_scram_answers_unknown_users_with_decoys_of_the_usual_kind() -> None:
    challenge = outcome(ScramServer(SHA_512, Credentials()), ScramClient(SHA_512, "unknown", "x").first())
    assert isinstance(challenge, Challenge)
    fields = dict(part.split("=", 1) for part in challenge.token.decode().split(","))
    assert (len(b64decode(fields["s"])), fields["i"]) == (26, "8192")


def test_scram_hides_unknown_users_behind_a_constant_salt() -> None:
    def salt(user: str) -> bytes:
        challenge = outcome(ScramServer(SHA_256, Credentials()), ScramClient(SHA_256, user, "x").first())
        assert isinstance(challenge, Challenge)
        return challenge.token.split(b",")[1]

    assert salt("unknown") == salt("unknown") != salt("other")


def test_scram_refuses_a_replayed_last_message() -> None:
    credentials = Credentials()
    client = ScramClient(SHA_256, "alice", "secret", nonce=lambda: "client")
    server = ScramServer(SHA_256, credentials)
    challenge = outcome(server, client.first())
    assert isinstance(challenge, Challenge)
    final = client.respond(challenge.token)
    assert final is not None
    assert isinstance(server.respond(final), Accepted)
    for again in (server, ScramServer(SHA_256, credentials)):
        if again is not server:
            outcome(again, b"n,,n=alice,r=client")
        with pytest.raises(AuthenticationFailed):
            again.respond(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=alice",
        b"n,,n=al=ice,r=x",
        b"n,,m=ext,n=alice,r=x",
        b"n,,n=alice,r=x\xc3\xa4",
        b"n,a=bob,n=alice,r=x",
    ],
)
def test_scram_refuses_malformed_first_messages(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ScramServer(SHA_256, Credentials()).respond(message)


@pytest.mark.parametrize("message", [b"", b"c=biws,r=cs", b"c=biws,r=cs,p=", b"c=eSws,r=cs,p=AAAA", b"c=!,r=cs,p=AAAA"])
def test_scram_refuses_malformed_last_messages(message: bytes) -> None:
    server = ScramServer(SHA_256, Credentials(), nonce=lambda: "s")
    outcome(server, b"n,,n=alice,r=c")
    with pytest.raises(AuthenticationFailed):
        server.respond(message)
