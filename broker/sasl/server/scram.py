"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677; KIP-84), without channel binding.

Unknown users get a salt of their own and the iterations that most users have, and fail at the last message, so that
nobody learns from the first which users exist. Delegation tokens log in with their id and HMAC and the extension
`tokenauth=true` (KIP-48).
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from broker.sasl.client.scram import MIN_ITERATIONS, SCRAM_DIGESTS, new_nonce
from broker.sasl.mechanism import Accepted, AuthenticationFailed, Challenge

_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>n,(?:a=(?P<authorization_id>[^,\0]+))?,)"
    r"(?P<bare>n=(?P<user>[^,\0]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<unproven>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\0]+)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPE: Final = re.compile("=(2C|3D)?")
_ESCAPED: Final = {"=2C": ",", "=3D": "="}
_TOKEN_EXTENSION: Final = ("tokenauth", "true")


class StoredCredential(Protocol):
    """The keys of RFC 5802, section 3, derived from a password."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


class TokenCredential(NamedTuple):
    """The credential of a delegation token, its owner as `Type:name`, and its end as wall-clock time in ms."""

    credential: StoredCredential
    owner: str
    expiry_ms: int


class DecoyRules(NamedTuple):
    """The first messages for unknown users: the secret that salts derive from, the length of salts, the iterations."""

    key: bytes
    salt_bytes: int
    iterations: int


class ScramLookup(Protocol):
    """Looks credentials of users and delegation tokens up."""

    def decoys(self, mechanism: str, *, is_token: bool) -> DecoyRules:
        """Return the rules of decoys that look like the credentials of the mechanism's users, or of tokens."""
        ...

    def of_user(self, mechanism: str, user: str) -> StoredCredential | None:
        """Return the credential of a user; None without one."""
        ...

    async def of_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return the credential of a token; None for one that does not exist or has expired."""
        ...


class _DecoyCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class _Begun(NamedTuple):
    """An exchange whose first message is answered. `principal` is None without a credential."""

    header: str
    transcript: str
    nonce: str
    credential: StoredCredential
    principal: str | None
    lifetime_ms: int | None
    is_token: bool


class ScramServer:
    """A `ServerExchange` of two messages. `mechanism` is a key of SCRAM_DIGESTS."""

    def __init__(self, mechanism: str, credentials: ScramLookup, *, nonce: Callable[[], str] = new_nonce) -> None:
        self._mechanism = mechanism
        self._digest = SCRAM_DIGESTS[mechanism]
        self._credentials = credentials
        self._nonce = nonce()
        self._begun: _Begun | None = None
        self._is_over = False
        self._user: str | None = None

    def respond(self, token: bytes) -> Challenge | Accepted | Awaitable[Challenge | Accepted]:
        """Take the client's next message. Raise AuthenticationFailed."""
        if self._is_over:
            raise self._failure()
        return self._first(token) if self._begun is None else self._final(self._begun, token)

    def _first(self, token: bytes) -> Challenge | Awaitable[Challenge | Accepted]:
        match = _CLIENT_FIRST.fullmatch(self._text(token))
        user = None if match is None else _unescaped(match["user"])
        if match is None or user is None:
            raise self._failure()
        self._user = user
        authorization_id = match["authorization_id"]
        if authorization_id is not None and _unescaped(authorization_id) != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username", user
            )
        if _TOKEN_EXTENSION in _extensions(match["extensions"]):
            return self._first_of_token(match, user)
        credential = self._credentials.of_user(self._mechanism, user)
        return self._challenge(match, user, credential, f"User:{user}", None, is_token=False)

    async def _first_of_token(self, match: re.Match[str], token_id: str) -> Challenge | Accepted:
        found = await self._credentials.of_token(self._mechanism, token_id)
        if found is None:
            return self._challenge(match, token_id, None, "", None, is_token=True)
        return self._challenge(match, token_id, found.credential, found.owner, found.expiry_ms, is_token=True)

    def _challenge(
        self,
        match: re.Match[str],
        name: str,
        credential: StoredCredential | None,
        principal: str,
        lifetime_ms: int | None,
        *,
        is_token: bool,
    ) -> Challenge:
        is_known = credential is not None and credential.iterations >= MIN_ITERATIONS
        offered = credential if credential is not None and is_known else self._decoy(name, is_token=is_token)
        nonce = match["nonce"] + self._nonce
        server_first = f"r={nonce},s={base64.b64encode(offered.salt).decode()},i={offered.iterations}"
        transcript = f"{match['bare']},{server_first}"
        self._begun = _Begun(
            match["header"], transcript, nonce, offered, principal if is_known else None, lifetime_ms, is_token
        )
        return Challenge(server_first.encode())

    def _final(self, begun: _Begun, token: bytes) -> Accepted:
        self._is_over = True
        match = _CLIENT_FINAL.fullmatch(self._text(token))
        if match is None or match["nonce"] != begun.nonce or self._decoded(match["binding"]) != begun.header.encode():
            raise self._failure()
        proof, credential = self._decoded(match["proof"]), begun.credential
        signed = f"{begun.transcript},{match['unproven']}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._digest)
        if len(proof) != len(signature):
            raise self._failure()
        client_key = bytes(shown ^ mask for shown, mask in zip(proof, signature, strict=True))
        is_proven = hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key)
        if not is_proven or begun.principal is None:
            raise self._failure()
        verifier = hmac.digest(credential.server_key, signed, self._digest)
        answer = b"v=" + base64.b64encode(verifier)
        return Accepted(answer, begun.principal, begun.lifetime_ms, begun.is_token)

    def _decoy(self, name: str, *, is_token: bool) -> StoredCredential:
        """Return the same credential for the same name, which no password fits."""
        rules = self._credentials.decoys(self._mechanism, is_token=is_token)
        salt, stored = (hmac.digest(rules.key, f"{part},{name}".encode(), "sha512") for part in ("salt", "stored"))
        stored = stored[: hashlib.new(self._digest).digest_size]
        return _DecoyCredential(salt[: rules.salt_bytes], stored, stored, rules.iterations)

    def _text(self, token: bytes) -> str:
        try:
            return token.decode()
        except UnicodeDecodeError:
            raise self._failure() from None

    def _decoded(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._failure() from None

    def _failure(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}",
            self._user,
        )


def _unescaped(name: str) -> str | None:
    """Return a saslname as text; None if an equals sign stands alone."""
    if any(match[0] not in _ESCAPED for match in _ESCAPE.finditer(name)):
        return None
    return _ESCAPE.sub(lambda match: _ESCAPED[match[0]], name)


def _extensions(text: str) -> set[tuple[str, ...]]:
    return {tuple(part.split("=", 1)) for part in text.split(",") if part}
