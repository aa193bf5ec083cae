"""Delegation tokens: short-lived credentials of a user (KIP-48, KIP-373, KIP-900).

Everything of a token but its HMAC is public. The HMAC derives from the token id and a secret that the controllers share
outside the log. Times are wall-clock milliseconds, since tokens outlive processes.
"""

import hmac
from collections.abc import Iterable
from typing import Final

from immutables import Map

from broker.metadata.controller.result import MAX_RECORDS_PER_BATCH, ControllerResult
from broker.metadata.controller.state import ControllerState, TokenSettings
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.security_image import DelegationToken
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol.messages.metadata_records import RemoveDelegationTokenRecord
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from protocol.primitives import uuid_to_text

_USER: Final = "User"
_LATEST_MS: Final = 2**63 - 1


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the HMAC-SHA-512 of a token id, the secret of the token's holder."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


class DelegationTokens:
    """The commands on delegation tokens. `requester` is always `Type:name`."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._indexed: Map[str, DelegationToken] = Map()
        self._ids_by_hmac: dict[bytes, str] = {}

    def create(
        self, request: CreateDelegationTokenRequest, *, requester: str, now_ms: int
    ) -> ControllerResult[CreateDelegationTokenResponse]:
        """Issue a token to the requester, or to the named owner. Raises KafkaError."""
        settings, secret = self._enabled()
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        lifetime = settings.max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime = min(lifetime, request.max_lifetime_ms)
        max_ms = _later(now_ms, lifetime)
        expiry_ms = min(max_ms, _later(now_ms, settings.expiry_time_ms))
        token = DelegationToken(owner, requester, _renewers(request.renewers), now_ms, max_ms, expiry_ms)
        token_id = uuid_to_text(self._state.new_id())
        response = _created(token, token_id, token_hmac(secret, token_id))
        return ControllerResult([token.to_record(token_id)], response)

    def renew(
        self, request: RenewDelegationTokenRequest, *, requester: str, now_ms: int
    ) -> ControllerResult[RenewDelegationTokenResponse]:
        """Extend the expiry of a token, at most to its maximum lifetime. Raises KafkaError."""
        settings, _ = self._enabled()
        token_id, token = self._find(request.hmac)
        _check_alive(token, now_ms)
        _check_entitled(token, requester)
        period = settings.expiry_time_ms
        if request.renew_period_ms > 0:
            period = min(period, request.renew_period_ms)
        prolonged = _until(token, _later(now_ms, period))
        return ControllerResult(
            [prolonged.to_record(token_id)],
            RenewDelegationTokenResponse(expiry_timestamp_ms=prolonged.expiration_timestamp_ms),
        )

    def expire(
        self, request: ExpireDelegationTokenRequest, *, requester: str, now_ms: int
    ) -> ControllerResult[ExpireDelegationTokenResponse]:
        """Shorten the expiry of a token; a negative period removes the token at once. Raises KafkaError."""
        self._enabled()
        token_id, token = self._find(request.hmac)
        _check_entitled(token, requester)
        if request.expiry_time_period_ms < 0:
            return ControllerResult([_removal(token_id)], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
        _check_alive(token, now_ms)
        shortened = _until(token, _later(now_ms, request.expiry_time_period_ms))
        return ControllerResult(
            [shortened.to_record(token_id)],
            ExpireDelegationTokenResponse(expiry_timestamp_ms=shortened.expiration_timestamp_ms),
        )

    def sweep(self, now_ms: int) -> ControllerResult[None]:
        """Remove expired tokens, as many as fit one batch."""
        tokens = self._state.image.delegation_tokens.tokens
        expired = sorted(token_id for token_id, token in tokens.items() if _is_over(token, now_ms))
        return ControllerResult([_removal(token_id) for token_id in expired[:MAX_RECORDS_PER_BATCH]], None)

    def _enabled(self) -> tuple[TokenSettings, str]:
        settings = self._state.settings.tokens
        if settings.secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        if not self._state.version.supports_delegation_tokens:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "the finalized metadata.version does not support delegation tokens"
            )
        return settings, settings.secret

    def _find(self, digest: bytes) -> tuple[str, DelegationToken]:
        tokens = self._state.image.delegation_tokens.tokens
        if tokens is not self._indexed:
            _, secret = self._enabled()
            self._ids_by_hmac = {token_hmac(secret, token_id): token_id for token_id in tokens}
            self._indexed = tokens
        token_id = self._ids_by_hmac.get(digest)
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token_id, tokens[token_id]


def _renewers(requested: Iterable[CreatableRenewers]) -> tuple[str, ...]:
    renewers = list(requested)
    if any(renewer.principal_type != _USER for renewer in renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return tuple(f"{_USER}:{renewer.principal_name}" for renewer in renewers)


def _check_entitled(token: DelegationToken, requester: str) -> None:
    if requester != token.owner and requester not in token.renewers:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_alive(token: DelegationToken, now_ms: int) -> None:
    if _is_over(token, now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _is_over(token: DelegationToken, now_ms: int) -> bool:
    return min(token.max_timestamp_ms, token.expiration_timestamp_ms) < now_ms


def _later(now_ms: int, duration_ms: int) -> int:
    return min(_LATEST_MS, now_ms + duration_ms)


def _until(token: DelegationToken, expiry_ms: int) -> DelegationToken:
    """Return the token with another expiry, bounded by its maximum lifetime."""
    return token._replace(expiration_timestamp_ms=min(token.max_timestamp_ms, expiry_ms))


def _created(token: DelegationToken, token_id: str, digest: bytes) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    return CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiry_timestamp_ms=token.expiration_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
        token_id=token_id,
        hmac=digest,
    )


def _removal(token_id: str) -> VersionedRecord:
    return VersionedRecord(RemoveDelegationTokenRecord(token_id=token_id), 0)
