"""Access tokens that are fetched over HTTP and from files, kept fresh, and awaited by connections."""

import asyncio
import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from broker.net.peer import SaslConnect, SocketAddress
from broker.net.peer_connection import Ending
from broker.net.token_retrieval import retrieve_token
from broker.net.token_source import TokenSource, shared_source
from broker.sasl.client.assertions import AssertionRules
from broker.sasl.client.oauth_settings import OAuthSettings, Retrieval
from broker.sasl.client.oauthbearer import OAuthToken
from broker.sasl.client.sasl_login import SaslLogin
from broker.sasl.client.token_endpoint import MAX_RESPONSE_BYTES, ClientCredentials, parse_endpoint
from broker.sasl.client.token_refresh import RefreshSchedule
from broker.sasl.mechanism import AuthenticationFailed
from tests.support.certificates import CertificateAuthority
from tests.support.fakes.token_endpoint import TokenEndpoint

SECRET = "sesame-9"
WAIT_S = 10
TOKEN = jwt.encode({"sub": "node", "iat": 1_000, "exp": 4_600}, SECRET * 4, algorithm="HS256")
FAR_MS = 10**15


@contextmanager
def served(*answers: tuple[int, bytes]) -> Iterator[TokenEndpoint]:
    """Give one (status, body) per request, the last one again and again."""
    left = list(answers)
    with TokenEndpoint(lambda: left.pop(0) if len(left) > 1 else left[0]) as endpoint:
        yield endpoint


def retrieval(url: str, **changed: int) -> Retrieval:
    endpoint = parse_endpoint(url)
    credentials = None if endpoint.scheme == "file" else ClientCredentials("node", SECRET, "kafka")
    times = {"connect_timeout_ms": 2_000, "read_timeout_ms": 2_000, "backoff_ms": 1, "backoff_max_ms": 1_000} | changed
    return Retrieval(endpoint, credentials, url_encode=False, subject_claim="sub", scope_claim="scope", tls=(), **times)


GOOD = (200, b'{"access_token": "%s"}' % TOKEN.encode())


def test_token_is_fetched_after_failures_that_may_pass() -> None:
    waits: list[float] = []
    with served((503, b""), (500, b""), GOOD) as endpoint:
        token = retrieve_token(retrieval(endpoint.url), waits.append)
    assert (token.value, token.principal, token.start_ms, token.expiry_ms) == (TOKEN, "node", 1_000_000, 4_600_000)
    assert waits == [0.001, 0.002]
    assert endpoint.bodies == [b"grant_type=client_credentials&scope=kafka"] * 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, b'{"error": "invalid_client"}'), "status 401 and invalid_client"),
        ((302, b""), "status 302"),
        ((200, b"nothing"), "without access_token"),
        ((200, b'{"access_token": "not a token"}'), "is not a JWT"),
        ((200, b" " * (MAX_RESPONSE_BYTES + 2)), "more than"),
    ],
)
def test_final_failure_is_one_sentence(answer: tuple[int, bytes], reason: str) -> None:
    with served(answer) as endpoint, pytest.raises(AuthenticationFailed, match=reason) as caught:
        retrieve_token(retrieval(endpoint.url, backoff_max_ms=0), lambda _: None)
    assert SECRET not in str(caught.value)


def test_token_is_fetched_over_https_from_a_trusted_endpoint(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    trust = tmp_path / "authority.pem"
    trust.write_text(authority.pem)
    key_file = authority.issue("idp", "127.0.0.1").write_pem(tmp_path / "idp.pem")
    with TokenEndpoint(lambda: GOOD, key_file) as endpoint:
        untrusting = retrieval(endpoint.url, backoff_max_ms=0)
        with pytest.raises(AuthenticationFailed, match="the TLS hand-shake"):
            retrieve_token(untrusting, lambda _: None)
        options = (("ssl.truststore.location", str(trust)), ("ssl.truststore.type", "PEM"))
        assert retrieve_token(replace(untrusting, tls=options)).value == TOKEN
    assert len(endpoint.bodies) == 1, "the secret goes to a trusted endpoint only"


def test_silent_and_missing_endpoints_are_reported() -> None:
    with served(GOOD) as endpoint:
        url = endpoint.url
    with pytest.raises(AuthenticationFailed, match="cannot be reached: connection refused"):
        retrieve_token(retrieval(url, backoff_max_ms=0))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        with pytest.raises(AuthenticationFailed, match="did not respond in time"):
            retrieve_token(retrieval(url, read_timeout_ms=20, backoff_max_ms=0), lambda _: None)


def test_token_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token.jwt"
    file.write_text(f"{TOKEN}\n")
    assert retrieve_token(retrieval(file.as_uri())).value == TOKEN
    with pytest.raises(AuthenticationFailed, match="cannot be read: No such file"):
        retrieve_token(retrieval((tmp_path / "none").as_uri()))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_assertion_is_signed_with_the_private_key(algorithm: str, tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "key.pem"
    encryption = BestAvailableEncryption(SECRET.encode())
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    rules = AssertionRules(None, str(file), SECRET, algorithm, (("sub", "node"), ("aud", "idp")))
    with served(GOOD) as endpoint:
        source = replace(retrieval(endpoint.url), credentials=rules)
        assert retrieve_token(source).value == TOKEN
    sent = parse_qs(endpoint.bodies[0].decode())
    claims = jwt.decode(sent["assertion"][0], key.public_key(), [algorithm], audience="idp")
    assert (claims["sub"], claims["exp"] - claims["iat"]) == ("node", 300)


def test_ready_assertion_is_read_and_a_wrong_key_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "ready.jwt"
    file.write_text("a.b.c\n")
    with served(GOOD) as endpoint:
        source = replace(retrieval(endpoint.url), credentials=AssertionRules(str(file), None))
        assert retrieve_token(source).value == TOKEN
        wrong = replace(source, credentials=AssertionRules(None, str(file)))
        with pytest.raises(AuthenticationFailed, match="holds no private key for RS256"):
            retrieve_token(wrong)
    assert parse_qs(endpoint.bodies[0].decode())["assertion"] == ["a.b.c"]


class Fetches:
    """Outcomes of fetches, the wall clock, and the source that uses both without a thread."""

    def __init__(self) -> None:
        self.outcomes: list[OAuthToken | Exception] = []
        self.now_ms = 0
        self.source = TokenSource(self._fetch, RefreshSchedule(), lambda: self.now_ms, lambda: 0.0)

    def _fetch(self) -> OAuthToken:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def token(name: str, start_ms: int, life_ms: int = 3_600_000) -> OAuthToken:
    return OAuthToken(name, "node", start_ms + life_ms, start_ms)


def test_token_is_refreshed_by_schedule_and_survives_failures() -> None:
    fetches = Fetches()
    with pytest.raises(AuthenticationFailed, match="no access token yet"):
        fetches.source.token()
    fetches.outcomes = [token("first", 0), AuthenticationFailed("down"), token("second", 2_900_000)]
    assert fetches.source.refresh() == 2_880
    fetches.now_ms = 2_880_000
    assert fetches.source.refresh() == 10, "Kafka tries again after ten seconds"
    assert fetches.source.token().value == "first"
    assert fetches.source.request() is None
    fetches.now_ms = 2_900_000
    assert fetches.source.refresh() == 2_880
    assert fetches.source.token().value == "second"


def test_thread_ends_when_there_is_no_usable_token() -> None:
    fetches = Fetches()
    fetches.outcomes = [ValueError(SECRET)]
    assert fetches.source.refresh() is None
    fetches.outcomes = [token("first", 0)]
    fetches.source.refresh()
    fetches.now_ms, fetches.outcomes = 3_600_000, [AuthenticationFailed("down")]
    assert fetches.source.refresh() is None


def test_waiting_logins_share_one_fetch_and_its_failure() -> None:
    release = threading.Event()
    calls: list[int] = []

    def fetch() -> OAuthToken:
        calls.append(1)
        assert release.wait(WAIT_S)
        if len(calls) == 1:
            raise AuthenticationFailed("down")
        return token("late", 0, FAR_MS)

    source = TokenSource(fetch, RefreshSchedule())
    first, second = source.request(), source.request()
    assert first is not None
    assert first is second
    release.set()
    with pytest.raises(AuthenticationFailed, match=r"^OAUTHBEARER: down$"):
        first.result(WAIT_S)
    again = source.request()
    assert again is not None
    again.result(WAIT_S)
    assert source.token().value == "late"
    assert len(calls) == 2


def test_thread_ends_with_the_last_login() -> None:
    source = TokenSource(lambda: token("one", time.time_ns() // 1_000_000), RefreshSchedule())
    before = set(threading.enumerate())
    pending = source.request()
    assert pending is not None
    started = set(threading.enumerate()) - before
    pending.result(WAIT_S)
    reference = weakref.ref(source)
    del source
    gc.collect()
    for thread in started:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert reference() is None


def test_logins_with_equal_settings_share_a_source(tmp_path: Path) -> None:
    def settings(name: str) -> OAuthSettings:
        return OAuthSettings(retrieval((tmp_path / name).as_uri()), RefreshSchedule(), ())

    first = shared_source(settings("a"))
    assert shared_source(settings("a")) is first
    assert shared_source(settings("b")) is not first


class Supply:
    """A supply whose token the test provides."""

    def __init__(self) -> None:
        self.pending: Future[None] | None = Future()

    def token(self) -> OAuthToken:
        raise AssertionError

    def request(self) -> Future[None] | None:
        return self.pending


class Attempts:
    """Counts opened connections and failures."""

    def __init__(self, supply: Supply) -> None:
        self.opened = 0
        self.canceled = 0
        self.failures: list[str] = []
        login = SaslLogin("OAUTHBEARER", lambda: pytest.fail("not begun"), supply=supply)
        self._connect = SaslConnect(self._open, login)

    def start(self) -> object:
        endpoint = SocketAddress("node", 9093)
        return self._connect(endpoint, asyncio.Protocol(), lambda ending: self.failures.append(ending.reason))

    def _open(
        self, endpoint: SocketAddress, protocol: asyncio.BaseProtocol, on_failure: Callable[[Ending], None]
    ) -> "Attempts":
        self.opened += 1
        return self

    def cancel(self) -> None:
        self.canceled += 1


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_connection_waits_for_the_first_token() -> None:
    supply = Supply()
    attempts = Attempts(supply)
    attempts.start()
    await turns()
    assert attempts.opened == 0
    assert supply.pending is not None
    supply.pending.set_result(None)
    await turns()
    assert attempts.opened == 1
    supply.pending = None
    attempts.start()
    assert attempts.opened == 2


async def test_failed_fetch_fails_the_attempt() -> None:
    supply = Supply()
    attempts = Attempts(supply)
    attempts.start()
    assert supply.pending is not None
    supply.pending.set_exception(AuthenticationFailed("OAUTHBEARER: down"))
    await turns()
    assert (attempts.opened, attempts.failures) == (0, ["cannot be logged in at (OAUTHBEARER: down)"])


async def test_canceled_attempt_leaves_the_fetch_to_others() -> None:
    supply = Supply()
    attempts = Attempts(supply)
    first, second = attempts.start(), attempts.start()
    first.cancel()  # type: ignore[attr-defined]
    assert supply.pending is not None
    supply.pending.set_result(None)
    await turns()
    assert attempts.opened == 1
    second.cancel()  # type: ignore[attr-defined]
    assert attempts.canceled == 1
