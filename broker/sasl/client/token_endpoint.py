"""The client-credentials grant (RFC 6749, section 4.4; KIP-768): the request and the response, without HTTP itself.

Errors are AuthenticationFailed or TokenRetrievalFailed and show neither secrets nor tokens.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, Literal
from urllib.parse import quote_plus, unquote, urlsplit

from broker.sasl.mechanism import AuthenticationFailed
from protocol.lazy_dataclass import lazy_dataclass

MAX_RESPONSE_BYTES: Final = 1_048_576
"""A limit of this client for the response of a token endpoint, and for a token's file."""

_SUCCESS: Final = frozenset({200, 201})
_FINAL: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
"""Status codes after which Kafka does not try again."""

Scheme = Literal["http", "https", "file"]


class TokenRetrievalFailed(AuthenticationFailed):
    """The endpoint gave no token; another attempt may succeed."""


@lazy_dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A URL's parts. `path` has the query, or is the path of a file."""

    scheme: Scheme
    host: str
    port: int
    path: str = field(repr=False)

    def __str__(self) -> str:
        """Return the URL without its query, which may hold secrets."""
        path = self.path.partition("?")[0] if self.scheme != "file" else self.path
        return f"file:{path}" if self.scheme == "file" else f"{self.scheme}://{self.host}:{self.port}{path}"


@lazy_dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Id and secret of a client at a token endpoint, and the scope that it asks for."""

    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None


def parse_endpoint(url: str) -> TokenEndpoint:
    """Parse an https, http or file URL. Raise ValueError with a predicate that shows nothing of the URL."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise ValueError("has no absolute path")
        return TokenEndpoint("file", "", 0, unquote(parts.path))
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("is not an https, http or file URL with a host")
    if parts.username is not None:
        raise ValueError("holds credentials; use clientId and clientSecret")
    query = f"?{parts.query}" if parts.query else ""
    scheme: Scheme = "https" if parts.scheme == "https" else "http"
    default = 443 if scheme == "https" else 80
    return TokenEndpoint(scheme, parts.hostname, default if port is None else port, (parts.path or "/") + query)


def token_request(credentials: ClientCredentials, *, url_encode: bool = False) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of the POST. `url_encode` is `sasl.oauthbearer.header.urlencode`."""
    client_id, secret = credentials.client_id, credentials.client_secret
    if url_encode:
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    body = "grant_type=client_credentials"
    if credentials.scope:
        body += f"&scope={quote_plus(credentials.scope)}"
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {basic}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return headers, body.encode()


def parse_token_response(status: int, body: bytes) -> str:
    """Return the access token. Raise AuthenticationFailed, or TokenRetrievalFailed if a retry may help."""
    if status not in _SUCCESS:
        reason = f"answered with status {status}{_error_code(body)}"
        raise (AuthenticationFailed if status in _FINAL else TokenRetrievalFailed)(reason)
    if len(body) > MAX_RESPONSE_BYTES:
        raise AuthenticationFailed(f"sent more than {MAX_RESPONSE_BYTES} bytes")
    token = _object(body).get("access_token")
    if not isinstance(token, str) or not token.strip():
        raise AuthenticationFailed("sent a response without access_token")
    return token.strip()


def retry_delays(backoff_ms: int, backoff_max_ms: int, now_ms: Callable[[], float]) -> Callable[[], float | None]:
    """Return a function that returns the wait in ms before the next attempt, None if the time is over.

    Like Kafka's, waits double from `sasl.login.retry.backoff.ms`, and all attempts together last at most
    `sasl.login.retry.backoff.max.ms`.
    """
    end_ms, attempts = now_ms() + backoff_max_ms, 0

    def wait_ms() -> float | None:
        nonlocal attempts
        left_ms = end_ms - now_ms()
        if left_ms <= 0:
            return None
        attempts += 1
        return float(min(backoff_ms * 2 ** min(attempts - 1, 32), left_ms))

    return wait_ms


def _error_code(body: bytes) -> str:
    """Return the error code of RFC 6749, section 5.2; descriptions may repeat what was sent."""
    code = _object(body).get("error")
    return f" and {code}" if isinstance(code, str) and code.replace("_", "").isalnum() and len(code) <= 64 else ""


def _object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
