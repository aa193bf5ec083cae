"""Access tokens over HTTP and from files, blocking, with limits of time and size (KIP-768)."""

import http.client
import socket
import ssl
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from cryptography.exceptions import UnsupportedAlgorithm

from broker.config.errors import ConfigError
from broker.sasl.client.access_tokens import read_token
from broker.sasl.client.assertions import AssertionRules, assertion_request, unsigned_assertion
from broker.sasl.client.oauth_settings import Retrieval
from broker.sasl.client.oauthbearer import OAuthToken
from broker.sasl.client.token_endpoint import (
    MAX_RESPONSE_BYTES,
    TokenRetrievalFailed,
    parse_token_response,
    retry_delays,
    token_request,
)
from broker.sasl.mechanism import AuthenticationFailed


def retrieve_token(source: Retrieval, sleep: Callable[[float], object] = time.sleep) -> OAuthToken:
    """Return a new token; block until then. Raise AuthenticationFailed. `sleep` takes seconds."""
    value = _read_file(source) if source.credentials is None else _request_with_retries(source, sleep)
    return read_token(value, source.subject_claim, source.scope_claim)


def _read_file(source: Retrieval) -> str:
    return _text(source.endpoint.path, "access token")


def _text(path: str, kind: str) -> str:
    try:
        return _content(path).decode("ascii").strip()
    except ValueError:
        raise AuthenticationFailed(f"{path} holds no {kind}") from None


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_RESPONSE_BYTES + 1)
    except OSError as error:
        raise AuthenticationFailed(f"{path} cannot be read: {error.strerror}") from error


def _signed(rules: AssertionRules) -> str:
    """Return the assertion of a file, or a new one that the private key signs. Files are read each time."""
    if rules.file is not None:
        return _text(rules.file, "assertion")
    assert rules.key_file is not None
    from cryptography.hazmat.primitives.serialization import (
        load_pem_private_key,  # local import: other grants sign nothing
    )
    from jwt import PyJWTError, encode

    template = None if rules.template_file is None else _content(rules.template_file)
    unsigned = unsigned_assertion(rules, template, int(time.time()), str(uuid.uuid4()))
    try:
        passphrase = None if rules.passphrase is None else rules.passphrase.encode()
        key = load_pem_private_key(_content(rules.key_file), passphrase)
        return encode(dict(unsigned.payload), cast(Any, key), rules.algorithm, dict(unsigned.header))
    except (ValueError, TypeError, PyJWTError, UnsupportedAlgorithm):
        raise AuthenticationFailed(f"{rules.key_file} holds no private key for {rules.algorithm}") from None


def _request_with_retries(source: Retrieval, sleep: Callable[[float], object]) -> str:
    next_delay = retry_delays(source.backoff_ms, source.backoff_max_ms, lambda: time.monotonic() * 1000)
    while True:
        try:
            return _request(source)
        except TokenRetrievalFailed as error:
            delay_ms = next_delay()
            if delay_ms is None:
                raise AuthenticationFailed(str(error)) from error
        sleep(delay_ms / 1000)


def _request(source: Retrieval) -> str:
    """Make one attempt. Raise AuthenticationFailed, or TokenRetrievalFailed if a retry may help."""
    proof = source.credentials
    assert proof is not None
    if isinstance(proof, AssertionRules):
        headers, body = assertion_request(_signed(proof), proof.scope)
    else:
        headers, body = token_request(proof, url_encode=source.url_encode)
    connection = http.client.HTTPConnection(source.endpoint.host, source.endpoint.port)
    connection.sock = _connect(source)
    try:
        connection.request("POST", source.endpoint.path, body, headers)
        with connection.getresponse() as response:  # a redirection is no success: the secret goes nowhere else
            return parse_token_response(response.status, _read(response, source.read_timeout_ms / 1000))
    except TokenRetrievalFailed as error:
        raise TokenRetrievalFailed(f"{source.endpoint} {error}") from error
    except AuthenticationFailed as error:
        raise AuthenticationFailed(f"{source.endpoint} {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise TokenRetrievalFailed(f"{source.endpoint} {_reason(error)}") from error
    finally:
        connection.close()


def _connect(source: Retrieval) -> socket.socket:
    endpoint, timeout_s = source.endpoint, source.connect_timeout_ms / 1000
    try:
        opened = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
        if endpoint.scheme == "https":
            opened = _secure(opened, source)
    except ConfigError as error:
        raise AuthenticationFailed(error.sentence.rstrip(".")) from error
    except OSError as error:
        raise TokenRetrievalFailed(f"{endpoint} cannot be reached: {_reason(error)}") from error
    opened.settimeout(source.read_timeout_ms / 1000)
    return opened


def _secure(opened: socket.socket, source: Retrieval) -> socket.socket:
    """Shake hands; `ssl.*` options of the JAAS entry replace the certificates that the system trusts."""
    if source.tls:
        from broker.tls.blocking_socket import secure  # local import: logins without TLS do not load cryptography

        return secure(opened, source.endpoint.host, source.tls)
    try:
        return ssl.create_default_context().wrap_socket(opened, server_hostname=source.endpoint.host)
    except BaseException:
        opened.close()
        raise


def _read(response: http.client.HTTPResponse, timeout_s: float) -> bytes:
    """Return the body, at most one byte more than MAX_RESPONSE_BYTES."""
    deadline, body = time.monotonic() + timeout_s, b""
    while len(body) <= MAX_RESPONSE_BYTES and (part := response.read1(65_536)):
        body += part
        if time.monotonic() > deadline:
            raise TimeoutError
    return body[: MAX_RESPONSE_BYTES + 1]


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "did not respond in time"
    if isinstance(error, http.client.HTTPException):
        return "sent a response that is not HTTP"
    if isinstance(error, ssl.SSLError):
        return f"failed the TLS hand-shake ({(error.reason or type(error).__name__).replace('_', ' ').lower()})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return type(error).__name__
