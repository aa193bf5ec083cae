"""Random clients against the logins of one listener: `python -m tests.broker.sasl.fuzz_logins --steps 1000000`.

Clients of PLAIN, SCRAM (users and delegation tokens) and OAUTHBEARER log in with right and wrong credentials. Messages
are damaged, doubled, left out, sent to another mechanism, and replayed from earlier connections; other requests come
in between, and time passes. After every step:

- the connection's state is one that the table of transitions allows after the former state;
- no request but those of logins is served unless the client is authenticated;
- the principal is one whose right credential the client itself used on this connection, and never another;
- an exception is one that ends the connection.

Memory must be flat: what Python holds at the end may exceed that after the first tenth by at most 5 % and 1 MB.
"""

import argparse
import functools
import gc
import hashlib
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from broker.api.pipeline import permission as needs
from broker.api.pipeline.authentication import TRANSITIONS, AuthenticationState
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.sasl import SaslServices
from broker.api.security.sasl_session import refuse_handshake, refuse_token
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.net.request import ANONYMOUS, RAW_TOKEN_VERSION, CloseConnection, ConnectionInfo, LoginRefused, Request
from broker.sasl.client.plain import PlainClient
from broker.sasl.client.scram import ScramClient
from broker.sasl.mechanism import AuthenticationFailed, ClientExchange
from broker.sasl.server.access_tokens import UnsecuredRules, check_unsecured
from broker.sasl.server.mechanisms import OfferedMechanism
from broker.sasl.server.oauthbearer import OAuthBearerServer, TokenRefused, parse_first
from broker.sasl.server.plain import PlainServer
from broker.sasl.server.scram import DecoyRules, ScramServer, StoredCredential, TokenCredential
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import DecodeError, ErrorCode
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.api.serving.test_controller_routes import Observer
from tests.broker.sasl.test_oauthbearer import unsigned
from tests.broker.sasl.test_servers import credential
from tests.support.fakes.clock import ManualClock

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {"alice": "secret", "bob": "other secret"}
TOKEN_ID, TOKEN_SECRET, TOKEN_OWNER = "token", "aG1hYw==", "User:owner"
CAPTURED_MAX = 200
GROWTH_LIMIT, GROWTH_BYTES = 1.05, 1 << 20

_S = AuthenticationState
NEXT = {state: {to for (of, _), to in TRANSITIONS.items() if of is state} for state in AuthenticationState}
REACHABLE = {state: {state} | NEXT[state] | {to for each in NEXT[state] for to in NEXT[each]} for state in NEXT}
"""States after one request: it reports at most two events, the end of the session and another."""

credential = functools.cache(credential)


class Credentials:
    """SCRAM credentials of the users, and one delegation token without end."""

    def of_user(self, mechanism: str, user: str) -> StoredCredential | None:
        return credential(mechanism, USERS[user]) if user in USERS else None

    def decoys(self, mechanism: str, *, is_token: bool) -> DecoyRules:
        return DecoyRules(b"secret of decoys", 26, 8192)

    async def of_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        if token_id != TOKEN_ID:
            return None
        return TokenCredential(credential(mechanism, TOKEN_SECRET), TOKEN_OWNER, 1 << 50)


class TokenMessages:
    """The client's side of OAUTHBEARER with an unsecured token."""

    def __init__(self, subject: str, expiry_s: int) -> None:
        self._token = unsigned({"alg": "none"}, {"sub": subject, "exp": expiry_s})

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        return b"\x01" if challenge else None


@dataclass(frozen=True, slots=True)
class Login:
    """A login that a client attempts. `principal` is the right one, None with a wrong credential."""

    mechanism: str
    begin: Callable[[], ClientExchange]
    principal: str | None


@dataclass(slots=True)
class LoginTally:
    """Results of a run."""

    steps: int = 0
    connections: int = 0
    logins: int = 0
    served: int = 0
    transitions: Counter[tuple[str, str]] = field(default_factory=Counter)


def finished(pending: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        pending.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the coroutine waits")


async def no_sleep(_seconds: float) -> None:
    """Return at once."""


class Listener:
    """A SASL listener with all mechanisms, and the requests that its clients had served."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.heartbeats = 0
        rows = (
            route(ApiKey.API_VERSIONS, lambda _request, _context: ApiVersionsResponse(), needs.BEFORE_AUTHENTICATION),
            route(ApiKey.HEARTBEAT, self._heartbeat, needs.READ_GROUP),
            route(ApiKey.SASL_HANDSHAKE, refuse_handshake, needs.BEFORE_AUTHENTICATION),
            route(ApiKey.SASL_AUTHENTICATE, refuse_token, needs.BEFORE_AUTHENTICATION),
        )
        found = Credentials()

        def check(token: str) -> Any:
            return check_unsecured(token, UnsecuredRules(), clock.now_ms())

        mechanisms = {
            "PLAIN": OfferedMechanism(lambda: PlainServer(USERS), 5_000),
            SCRAM[0]: OfferedMechanism(lambda: ScramServer(SCRAM[0], found), 5_000),
            SCRAM[1]: OfferedMechanism(lambda: ScramServer(SCRAM[1], found)),
            "OAUTHBEARER": OfferedMechanism(lambda: OAuthBearerServer(check, lambda _: None)),
        }
        services = {"CLIENTS": SaslServices(mechanisms, clock, no_sleep)}
        self.pipelines = RequestPipelines(Dispatcher(rows, clock, Observer()), services)

    def _heartbeat(self, _request: Any, _context: Any) -> HeartbeatResponse:
        self.heartbeats += 1
        return HeartbeatResponse()


class FuzzedClient:
    """One connection and the login that its client attempts on it."""

    def __init__(self, listener: Listener, random: Random, captured: deque[bytes], tally: LoginTally) -> None:
        self._listener = listener
        self._random = random
        self._captured = captured
        self._tally = tally
        self._connection = ConnectionInfo("c", "CLIENTS", "10.0.0.1", 1, "SASL_PLAINTEXT")
        self._pipeline: Any = listener.pipelines.open(self._connection)
        self._login: Login | None = None
        self._exchange: ClientExchange | None = None
        self._next: bytes | None = None
        self._proven: set[str] = set()
        """Principals whose right credential was used here."""
        self._version = 1

    @property
    def _state(self) -> AuthenticationState:
        found: AuthenticationState = self._pipeline._authentication.state
        return found

    def step(self) -> bool:
        """Send one request and check the connection. Return False once it is closed."""
        before, served = self._state, self._listener.heartbeats
        was_authenticated = self._connection.is_authenticated
        is_open = True
        try:
            self._act()
        except (CloseConnection, LoginRefused, DecodeError):
            is_open = False
        after, served = self._state, self._listener.heartbeats - served
        assert after in REACHABLE[before], (before, after)
        assert not served or (was_authenticated and before is _S.AUTHENTICATED), before
        principal = self._connection.principal
        assert principal == ANONYMOUS or principal in self._proven, (principal, self._proven)
        if after in (_S.AUTHENTICATED, _S.EXPIRED, _S.REAUTHENTICATING):
            assert principal != ANONYMOUS, after
        if before is not after:
            self._tally.transitions[before.name, after.name] += 1
            self._tally.logins += after is _S.AUTHENTICATED
        self._tally.served += served
        return is_open

    def _act(self) -> None:
        random = self._random
        choice = random.random()
        if choice < 0.05:
            self._listener.clock.advance_ms(random.choice((1, 900, 1_100, 6_000)))
        elif choice < 0.15:
            self._frame(ApiKey.HEARTBEAT, 4, encode_bytes(HeartbeatRequest("g", 1, "m"), 4))
        elif choice < 0.20:
            self._frame(ApiKey.API_VERSIONS, random.choice((0, 3, 4, 9)), random.randbytes(random.randrange(6)))
        elif choice < 0.24:
            self._frame(random.choice([*ApiKey]), random.randrange(-1, 12), random.randbytes(random.randrange(40)))
        elif choice < 0.30:
            self._token(random.choice(self._captured) if self._captured else b"")
        elif choice < 0.36:
            self._token(damaged(random, self._next or b"n,,n=alice,r=abc"))
        elif self._next is None or choice < 0.40:
            self._handshake()
        else:
            self._continue()

    def _handshake(self) -> None:
        self._login = login = random_login(self._random, self._listener.clock)
        self._version, self._next = self._random.choice((0, 1, 1, 1)), None
        mechanism = login.mechanism if self._random.random() > 0.05 else self._random.choice(("GSSAPI", "", "plain"))
        body = encode_bytes(SaslHandshakeRequest(mechanism), self._version)
        frame = self._frame(ApiKey.SASL_HANDSHAKE, self._version, body)
        answer = decode_response(SaslHandshakeResponse, self._version, memoryview(frame))[1]
        if answer.error_code == ErrorCode.NONE:
            self._exchange = login.begin()
            self._next = self._exchange.first()

    def _continue(self) -> None:
        """Send the honest next message, at times to no purpose, and take the answer."""
        assert self._exchange is not None
        assert self._next is not None
        assert self._login is not None
        token, self._next = self._next, None
        if self._random.random() < 0.3:
            self._captured.append(token)
        if self._login.principal is not None:
            self._proven.add(self._login.principal)
        answer = self._token(token)
        if answer is None:
            return
        try:
            self._next = self._exchange.respond(answer)
        except AuthenticationFailed:
            self._next = None

    def _token(self, token: bytes) -> bytes | None:
        """Send a token; return the server's, or None if there is none."""
        self._proven |= shown_principals(token, self._listener.clock)
        if self._connection.takes_raw_tokens:
            return self._frame(0, RAW_TOKEN_VERSION, token)
        version = self._random.choice((0, 1, 2))
        body = encode_bytes(SaslAuthenticateRequest(token), version)
        frame = self._frame(ApiKey.SASL_AUTHENTICATE, version, body)
        answer = decode_response(SaslAuthenticateResponse, version, memoryview(frame))[1]
        return bytes(answer.auth_bytes) if answer.error_code == ErrorCode.NONE else None

    def _frame(self, key: int, version: int, body: bytes) -> bytes:
        header = RequestHeader(key, version, 7, "app")
        response = self._pipeline(Request(header, memoryview(bytearray(body)), self._connection, 0))
        if isinstance(response, Coroutine):  # also a compiled one, which inspect.iscoroutine refuses
            response = finished(response)
        return b"".join(bytes(part) for part in response or [])[SIZE_BYTES:]


def random_login(random: Random, clock: ManualClock) -> Login:
    """Return a login with a right or wrong credential of any mechanism."""
    user = random.choice([*USERS])
    password = USERS[user] if random.random() < 0.6 else random.choice(("wrong", *USERS.values()))
    principal = f"User:{user}" if password == USERS[user] else None
    kind = random.randrange(5)
    if kind == 0:
        return Login("PLAIN", lambda: PlainClient(user, password), principal)
    if kind == 1:
        secret = random.choice((TOKEN_SECRET, "wrong"))
        owner = TOKEN_OWNER if secret == TOKEN_SECRET else None
        mechanism = random.choice(SCRAM)
        return Login(mechanism, lambda: ScramClient(mechanism, TOKEN_ID, secret, is_token=True), owner)
    if kind == 2:
        expiry_s = clock.now_ms() // 1000 + random.choice((-10, 60))
        subject = random.choice(("carol", "dave"))
        is_right = expiry_s * 1000 > clock.now_ms()
        return Login("OAUTHBEARER", lambda: TokenMessages(subject, expiry_s), f"User:{subject}" if is_right else None)
    mechanism = random.choice(SCRAM)
    return Login(mechanism, lambda: ScramClient(mechanism, user, password), principal)


def shown_principals(token: bytes, clock: ManualClock) -> set[str]:
    """Return the principal whose whole credential a message holds, as messages of PLAIN and OAUTHBEARER do."""
    parts = token.split(b"\0")
    if len(parts) == 3:
        user, password = parts[1].decode("latin-1"), parts[2].decode("latin-1")
        return {f"User:{user}"} if USERS.get(user) == password else set()
    try:
        return {f"User:{check_unsecured(parse_first(token).token, UnsecuredRules(), clock.now_ms()).subject}"}
    except (AuthenticationFailed, TokenRefused):
        return set()


def damaged(random: Random, token: bytes) -> bytes:
    """Return a message with flipped bits, cut, extended, or replaced."""
    changed = bytearray(token)
    kind = random.randrange(4)
    if kind == 0 and changed:
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    elif kind == 1:
        del changed[random.randrange(len(changed) + 1) :]
    elif kind == 2:
        changed += random.randbytes(random.randrange(1, 30))
    else:
        changed = bytearray(random.randbytes(random.randrange(200)))
    return bytes(changed)


def run(steps: int, seed: int) -> LoginTally:
    """Take so many steps. Raise AssertionError for the first that breaks a rule."""
    random, clock, tally = Random(seed), ManualClock(), LoginTally()
    listener, captured = Listener(clock), deque[bytes](maxlen=CAPTURED_MAX)
    held = 0
    hashed = functools.lru_cache(maxsize=100)(hashlib.pbkdf2_hmac)
    tracemalloc.start()
    with patch.object(hashlib, "pbkdf2_hmac", hashed):
        while tally.steps < steps:
            client = FuzzedClient(listener, random, captured, tally)
            tally.connections += 1
            is_open = True
            while is_open and tally.steps < steps:
                is_open = client.step() and random.random() > 0.02
                tally.steps += 1
                if tally.steps == steps // 10:
                    held = held_bytes()
    grown = held_bytes()
    tracemalloc.stop()
    assert grown <= held * GROWTH_LIMIT + GROWTH_BYTES, (held, grown)
    return tally


def held_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tally = run(arguments.steps, arguments.seed)
    print(
        f"{tally.steps:,} steps on {tally.connections:,} connections: {tally.logins:,} logins,"
        f" {tally.served:,} requests served"
    )
    for (before, after), count in sorted(tally.transitions.items()):
        print(f"  {before} -> {after}: {count:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
