"""Quotas, SCRAM credentials, ACLs and delegation tokens: described entries and refused requests."""

from collections.abc import Sequence

import pytest

from broker.api.configs.describe_client_quotas import DescribeClientQuotasHandler
from broker.api.pipeline.authorization import AllowAll, Authorizer
from broker.api.quorum.controller_commands import COMMANDS, CommandHandler, authorizer_check
from broker.api.security.create_delegation_token import CreateDelegationTokenHandler
from broker.api.security.describe_acls import DescribeAclsHandler
from broker.api.security.describe_delegation_token import DescribeDelegationTokenHandler
from broker.api.security.describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from broker.api.security.expire_delegation_token import ExpireDelegationTokenHandler
from broker.api.security.renew_delegation_token import RenewDelegationTokenHandler
from broker.api.serving.errors import error_response
from broker.metadata.controller.state import ControllerSettings, TokenSettings
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from protocol.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.api.metadata_harness import LiveCluster, context
from tests.broker.metadata.images import CLUSTER_ID

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
ALLOW_ALL = AllowAll()
ANY, LITERAL, READ, ALLOW, TOPIC = 1, 3, 3, 3, 2


def command(key: ApiKey, cluster: LiveCluster, authorizer: Authorizer | None = ALLOW_ALL) -> CommandHandler:
    """Return the handler of an API that is a controller command."""
    api = COMMANDS[key]
    return CommandHandler(api, cluster, authorizer_check(authorizer) if api.needs_authorizer else None)


class TestClientQuotas:
    ENTITIES: Sequence[dict[str, str | None]] = (
        {"user": "u"},
        {"user": None},
        {"client-id": "c"},
        {"user": "u", "client-id": "c"},
        {"ip": "10.0.0.1"},
    )

    async def describe(self, *components: ComponentData, strict: bool = False) -> list[dict[str, str | None]]:
        cluster = LiveCluster()
        entries = [
            AlterClientQuotasRequestEntryData(
                [AlterClientQuotasRequestEntityData(*part) for part in entity.items()],
                [OpData("connection_creation_rate" if "ip" in entity else "consumer_byte_rate", 5.0)],
            )
            for entity in self.ENTITIES
        ]
        await command(ApiKey.ALTER_CLIENT_QUOTAS, cluster)(AlterClientQuotasRequest(entries), context(1))
        request = DescribeClientQuotasRequest(list(components), strict)
        response = DescribeClientQuotasHandler(cluster)(request, context(1))
        if response.error_code:
            assert response.entries is None
            raise KafkaError(ErrorCode(response.error_code))
        assert {each.values[0].value for each in response.entries or ()} <= {5.0}
        return [{part.entity_type: part.entity_name for part in each.entity} for each in response.entries or ()]

    @pytest.mark.parametrize(
        ("components", "strict", "found"),
        [
            ([], False, [0, 1, 2, 3, 4]),
            ([], True, []),
            ([ComponentData("user", EXACT, "u")], False, [0, 3]),
            ([ComponentData("user", EXACT, "u")], True, [0]),
            ([ComponentData("user", DEFAULT, None)], False, [1]),
            ([ComponentData("user", SPECIFIED, None)], False, [0, 1, 3]),
            ([ComponentData("user", SPECIFIED, None), ComponentData("client-id", EXACT, "c")], True, [3]),
            ([ComponentData("ip", SPECIFIED, None)], False, [4]),
        ],
    )
    async def test_quota_filter_matches_entities(
        self, components: list[ComponentData], strict: bool, found: list[int]
    ) -> None:
        answers = await self.describe(*components, strict=strict)
        assert {frozenset(each.items()) for each in answers} == {frozenset(self.ENTITIES[i].items()) for i in found}
        assert len(answers) == len(found)

    @pytest.mark.parametrize(
        ("components", "code"),
        [
            ([ComponentData("", EXACT, "u")], ErrorCode.INVALID_REQUEST),
            ([ComponentData("user", EXACT, "u")] * 2, ErrorCode.INVALID_REQUEST),
            ([ComponentData("group", EXACT, "u")], ErrorCode.UNSUPPORTED_VERSION),
            ([ComponentData("user", 3, None)], ErrorCode.INVALID_REQUEST),
            ([ComponentData("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
            ([ComponentData("user", DEFAULT, "u")], ErrorCode.INVALID_REQUEST),
            ([ComponentData("user", SPECIFIED, "u")], ErrorCode.INVALID_REQUEST),
            ([ComponentData("user", EXACT, "u"), ComponentData("ip", EXACT, "h")], ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_invalid_filters_are_refused(self, components: list[ComponentData], code: ErrorCode) -> None:
        with pytest.raises(KafkaError) as caught:
            await self.describe(*components)
        assert caught.value.code is code


class TestScram:
    async def describe(self, users: Sequence[str] | None) -> dict[str, list[tuple[int, int]] | ErrorCode]:
        cluster = LiveCluster()
        for user, mechanism in (("u", 2), ("u", 1), ("v", 1)):
            upsertion = ScramCredentialUpsertion(user, mechanism, 4096, b"salt", b"salted")
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            await command(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, cluster)(request, context(0))
        describe_request = DescribeUserScramCredentialsRequest(
            None if users is None else [UserName(user) for user in users]
        )
        response = DescribeUserScramCredentialsHandler(cluster)(describe_request, context(0))
        return {
            each.user: ErrorCode(each.error_code)
            if each.error_code
            else [(info.mechanism, info.iterations) for info in each.credential_infos]
            for each in response.results
        }

    @pytest.mark.parametrize("users", [None, []])
    async def test_missing_users_mean_all(self, users: Sequence[str] | None) -> None:
        assert await self.describe(users) == {"u": [(1, 4096), (2, 4096)], "v": [(1, 4096)]}

    async def test_requested_users_are_described(self) -> None:
        assert await self.describe(["v", "x", "u", "u"]) == {
            "v": [(1, 4096)],
            "x": ErrorCode.RESOURCE_NOT_FOUND,
            "u": ErrorCode.DUPLICATE_RESOURCE,
        }


class TestAcls:
    CREATION = AclCreation(TOPIC, "t", LITERAL, "User:u", "*", READ, ALLOW)
    FILTER = DeleteAclsFilter(TOPIC, None, ANY, None, None, ANY, ANY)
    EVERYTHING = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)

    async def test_acl_apis_are_disabled_without_an_authorizer(self) -> None:
        cluster = LiveCluster()
        creation, deletion = CreateAclsRequest([self.CREATION]), DeleteAclsRequest([self.FILTER])
        for call in (
            lambda: command(ApiKey.CREATE_ACLS, cluster, None)(creation, context(3)),
            lambda: command(ApiKey.DELETE_ACLS, cluster, None)(deletion, context(3)),
            lambda: DescribeAclsHandler(cluster, None)(self.EVERYTHING, context(3)),
        ):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code is ErrorCode.SECURITY_DISABLED

    def test_disabled_acl_apis_report_every_item(self) -> None:
        created = error_response(
            CreateAclsResponse, CreateAclsRequest([self.CREATION] * 2), ErrorCode.SECURITY_DISABLED, "so"
        )
        deleted = error_response(
            DeleteAclsResponse, DeleteAclsRequest([self.FILTER]), ErrorCode.SECURITY_DISABLED, "so"
        )
        assert isinstance(created, CreateAclsResponse)
        assert isinstance(deleted, DeleteAclsResponse)
        assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        assert [(each.error_code, each.matching_acls) for each in deleted.filter_results] == [
            (ErrorCode.SECURITY_DISABLED, [])
        ]

    async def test_entries_are_described_by_resource_with_an_authorizer(self) -> None:
        cluster = LiveCluster()
        other = AclCreation(TOPIC, "t", LITERAL, "User:v", "*", READ, ALLOW)
        request = CreateAclsRequest([self.CREATION, other])
        await command(ApiKey.CREATE_ACLS, cluster)(request, context(3))
        described = DescribeAclsHandler(cluster, ALLOW_ALL)(self.EVERYTHING, context(3))
        assert [(each.resource_name, [acl.principal for acl in each.acls]) for each in described.resources] == [
            ("t", ["User:u", "User:v"])
        ]
        deleted = await command(ApiKey.DELETE_ACLS, cluster)(DeleteAclsRequest([self.FILTER]), context(3))
        assert isinstance(deleted, DeleteAclsResponse)
        assert len(deleted.filter_results[0].matching_acls) == 2
        assert not cluster.image.acls.entries


class TestDelegationTokens:
    async def test_anonymous_principal_gets_no_token(self) -> None:
        cluster, refused = LiveCluster(), ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        created = await CreateDelegationTokenHandler(cluster)(CreateDelegationTokenRequest("User", "o"), context(3))
        assert (created.error_code, created.issue_timestamp_ms, created.principal_name) == (refused, -1, "o")
        renewed = await RenewDelegationTokenHandler(cluster)(RenewDelegationTokenRequest(), context(2))
        expired = await ExpireDelegationTokenHandler(cluster)(ExpireDelegationTokenRequest(), context(2))
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (refused, -1)
        assert (expired.error_code, expired.expiry_timestamp_ms) == (refused, -1)
        with pytest.raises(KafkaError) as caught:
            DescribeDelegationTokenHandler(cluster, secret="s")(DescribeDelegationTokenRequest(), context(3))
        assert caught.value.code is refused

    async def test_token_is_created_renewed_and_expired(self) -> None:
        tokens = TokenSettings("s")
        cluster = LiveCluster(ControllerSettings(CLUSTER_ID, node_id=1, auto_leader_rebalance=False, tokens=tokens))
        known = context(3)
        known.connection.principal = "User:u"
        created = await CreateDelegationTokenHandler(cluster)(CreateDelegationTokenRequest(), known)
        describe = DescribeDelegationTokenHandler(cluster, secret="s")
        (described,) = describe(DescribeDelegationTokenRequest(None), known).tokens
        assert (described.token_id, described.hmac, described.principal_name) == (created.token_id, created.hmac, "u")
        others = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "v")])
        assert describe(others, known).tokens == []
        renewed = await RenewDelegationTokenHandler(cluster)(RenewDelegationTokenRequest(created.hmac, 5), known)
        assert renewed.expiry_timestamp_ms == 5
        await ExpireDelegationTokenHandler(cluster)(ExpireDelegationTokenRequest(created.hmac, -1), known)
        assert describe(DescribeDelegationTokenRequest(None), known).tokens == []

    def test_tokens_need_a_secret(self) -> None:
        known = context(3)
        known.connection.principal = "User:u"
        with pytest.raises(KafkaError) as caught:
            DescribeDelegationTokenHandler(LiveCluster(), secret=None)(DescribeDelegationTokenRequest(), known)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
