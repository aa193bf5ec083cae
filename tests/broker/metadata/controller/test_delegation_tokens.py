"""Delegation tokens: issue, renewal, expiry and removal, with authorization (KIP-48, KIP-373)."""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.metadata.controller.state import ControllerSettings, TokenSettings
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.security_image import DelegationToken
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.metadata.images import CLUSTER_ID, Cluster

NOW, HOUR, DAY = 1_700_000_000_000, 3_600_000, 86_400_000
SETTINGS = ControllerSettings(
    CLUSTER_ID, node_id=1, auto_leader_rebalance=False, max_idle_interval_ms=0, tokens=TokenSettings("secret", 7 * DAY)
)
OWNER, RENEWER, OTHER_USER = "User:owner", "User:renewer", "User:other"


class DelegationTokenHarness:
    """A cluster with tokens enabled; `now` is wall-clock time."""

    def __init__(
        self, level: MetadataVersion = MetadataVersion.IV_4_2_1, settings: ControllerSettings = SETTINGS
    ) -> None:
        self.cluster = Cluster(settings, level=level)
        self.now = NOW

    def create(self, request: CreateDelegationTokenRequest | None = None) -> CreateDelegationTokenResponse:
        request = request or CreateDelegationTokenRequest(renewers=[CreatableRenewers("User", "renewer")])
        controller = self.cluster.controller
        return self.cluster.write(controller.create_delegation_token(request, requester=OWNER, wall_ms=self.now))

    def renew(self, digest: bytes, period_ms: int = -1, requester: str = OWNER) -> int:
        request = RenewDelegationTokenRequest(digest, period_ms)
        controller = self.cluster.controller
        result = controller.renew_delegation_token(request, requester=requester, wall_ms=self.now)
        return self.cluster.write(result).expiry_timestamp_ms

    def expire(self, digest: bytes, period_ms: int, requester: str = OWNER) -> int:
        request = ExpireDelegationTokenRequest(digest, period_ms)
        controller = self.cluster.controller
        result = controller.expire_delegation_token(request, requester=requester, wall_ms=self.now)
        return self.cluster.write(result).expiry_timestamp_ms

    @property
    def tokens(self) -> dict[str, DelegationToken]:
        return dict(self.cluster.image.delegation_tokens.tokens)


def refusal(call: Callable[..., Any], *arguments: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.code


class TestCreate:
    def test_token_expires_after_a_day_and_is_renewable_for_a_week(self) -> None:
        harness = DelegationTokenHarness()
        created = harness.create()
        assert (created.principal_name, created.token_requester_principal_name) == ("owner", "owner")
        assert created.hmac == hmac.new(b"secret", created.token_id.encode(), hashlib.sha512).digest()
        harness.cluster.fail_over()
        assert harness.tokens == {
            created.token_id: DelegationToken(OWNER, OWNER, (RENEWER,), NOW, NOW + 7 * DAY, NOW + DAY)
        }

    def test_requested_lifetime_can_only_shorten(self) -> None:
        harness = DelegationTokenHarness()
        assert harness.create(CreateDelegationTokenRequest(max_lifetime_ms=HOUR)).expiry_timestamp_ms == NOW + HOUR
        assert harness.create(CreateDelegationTokenRequest(max_lifetime_ms=2**62)).max_timestamp_ms == NOW + 7 * DAY

    def test_token_can_be_issued_to_another_owner(self) -> None:
        created = DelegationTokenHarness().create(CreateDelegationTokenRequest("User", "someone"))
        assert (created.principal_name, created.token_requester_principal_name) == ("someone", "owner")

    def test_renewers_must_be_users(self) -> None:
        request = CreateDelegationTokenRequest(renewers=[CreatableRenewers("Group", "g")])
        assert refusal(DelegationTokenHarness().create, request) is ErrorCode.INVALID_PRINCIPAL_TYPE

    def test_tokens_need_a_secret_and_the_metadata_version(self) -> None:
        without = DelegationTokenHarness(settings=replace(SETTINGS, tokens=TokenSettings()))
        below = DelegationTokenHarness(level=MetadataVersion.IV_3_6_1)
        for harness, code in (
            (without, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
            (below, ErrorCode.UNSUPPORTED_VERSION),
        ):
            assert {refusal(harness.create), refusal(harness.renew, b""), refusal(harness.expire, b"", 1)} == {code}


class TestRenew:
    def test_owner_and_renewers_extend_expiry_up_to_maximum_lifetime(self) -> None:
        harness = DelegationTokenHarness()
        token = harness.create().hmac
        harness.now += HOUR
        assert harness.renew(token, 2 * HOUR, RENEWER) == NOW + 3 * HOUR
        assert harness.renew(token) == NOW + HOUR + DAY
        ends = []
        for _ in range(13):
            harness.now += DAY // 2
            ends.append(harness.renew(token))
        assert ends[-1] == NOW + 7 * DAY
        harness.now = NOW + 7 * DAY + 1
        assert refusal(harness.renew, token) is ErrorCode.DELEGATION_TOKEN_EXPIRED

    def test_other_principals_cannot_renew(self) -> None:
        harness = DelegationTokenHarness()
        assert refusal(harness.renew, b"unknown") is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert (
            refusal(harness.renew, harness.create().hmac, -1, OTHER_USER) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        )


class TestExpire:
    def test_expire_shortens_or_ends_the_lifetime(self) -> None:
        harness = DelegationTokenHarness()
        token = harness.create().hmac
        assert harness.expire(token, HOUR) == NOW + HOUR
        assert harness.expire(token, -1, RENEWER) == NOW
        assert harness.tokens == {}
        assert refusal(harness.expire, token, -1) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    def test_expired_token_can_only_be_removed(self) -> None:
        harness = DelegationTokenHarness()
        token = harness.create().hmac
        assert refusal(harness.expire, token, 1, OTHER_USER) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        harness.now += 2 * DAY
        assert refusal(harness.expire, token, HOUR) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert harness.expire(token, -1) == harness.now


def test_expired_tokens_are_removed_by_log_time() -> None:
    harness = DelegationTokenHarness()
    short = harness.create(CreateDelegationTokenRequest(max_lifetime_ms=HOUR)).token_id
    long = harness.create().token_id
    harness.cluster.now_ms = NOW + HOUR + 1  # the log's timestamps follow this clock
    harness.create()
    assert {short, long} < harness.tokens.keys()
    harness.cluster.run_periodic_tasks()
    assert short not in harness.tokens
    assert long in harness.tokens
