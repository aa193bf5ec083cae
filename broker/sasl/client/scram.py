"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677; KIP-84), without channel binding.

The client proves that it knows the password, and checks that the server knows the credential derived from it.
Delegation tokens log in with their id and HMAC and the extension `tokenauth=true` (KIP-48).
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, Literal

from broker.sasl.mechanism import AuthenticationFailed

SCRAM_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Hash functions by mechanism."""

MIN_ITERATIONS: Final = 4096
"""Kafka's lowest number: fewer would let a false server guess the password from the proof."""

MAX_ITERATIONS: Final = 1_000_000
"""A limit of this client: a false server could make an event loop compute for minutes. Kafka stores 16,384 at most."""

_NO_CHANNEL_BINDING: Final = "n,,"
_State = Literal["new", "first sent", "final sent", "complete"]


def new_nonce() -> str:
    """Return 192 random bits as text."""
    return secrets.token_urlsafe(24)


class ScramClient:
    """A `ClientExchange` of three messages. `mechanism` is a key of SCRAM_DIGESTS."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        self._digest = SCRAM_DIGESTS[mechanism]
        self._username = username
        self._password = password
        self._is_token = is_token
        self._nonce = nonce()
        self._first_bare = ""
        self._server_signature = b""
        self._state: _State = "new"

    def first(self) -> bytes:
        """Return the client-first-message."""
        name = self._username.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if self._is_token else ""
        self._first_bare = f"n={name},r={self._nonce}{extension}"
        self._state = "first sent"
        return f"{_NO_CHANNEL_BINDING}{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the client-final-message, then None. Raise AuthenticationFailed for a server that is not genuine."""
        text = _text(challenge)
        if self._state == "first sent":
            return self._final(text)
        if self._state == "final sent":
            self._check(text)
            self._state = "complete"
            return None
        raise AuthenticationFailed("the server sent a SCRAM message out of turn")

    def _final(self, server_first: str) -> bytes:
        fields = _fields(server_first, "r", "s", "i")
        nonce, salt, iterations = fields["r"], _bytes(fields["s"], "salt"), _iterations(fields["i"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the server's nonce does not extend the client's")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        stored_key = hashlib.new(self._digest, client_key).digest()
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        signature = hmac.digest(stored_key, signed, self._digest)
        proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._server_signature = hmac.digest(server_key, signed, self._digest)
        self._state = "final sent"
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, server_final: str) -> None:
        if server_final.startswith("e="):
            raise AuthenticationFailed(f"the server sent the SCRAM error {server_final[2:]}")
        signature = _bytes(_fields(server_final, "v")["v"], "signature")
        if not hmac.compare_digest(signature, self._server_signature):
            raise AuthenticationFailed("the server does not know the credential: its signature is wrong")


def _text(challenge: bytes) -> str:
    try:
        return challenge.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the server sent a SCRAM message that is not text") from None


def _fields(text: str, *names: str) -> dict[str, str]:
    """Return the attributes `names`, with which the message begins in this order; extensions may follow."""
    parts = [part.split("=", 1) for part in text.split(",")]
    if [part[0] for part in parts[: len(names)]] != list(names) or any(len(part) != 2 for part in parts):
        raise AuthenticationFailed("the server sent a malformed SCRAM message")
    return {name: value for name, value in parts[: len(names)]}


def _bytes(value: str, what: str) -> bytes:
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded:
        raise AuthenticationFailed(f"the server sent a malformed SCRAM {what}")
    return decoded


def _iterations(value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        raise AuthenticationFailed("the server sent a malformed SCRAM iteration count")
    if int(value) < MIN_ITERATIONS:
        raise AuthenticationFailed(f"the server's SCRAM iteration count {value} is below {MIN_ITERATIONS}")
    if int(value) > MAX_ITERATIONS:
        raise AuthenticationFailed(f"the server's SCRAM iteration count {value} is above {MAX_ITERATIONS}")
    return int(value)
