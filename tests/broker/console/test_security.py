"""The views of ACLs, quotas and users: all operations, no secrets, rights."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, AclOperation, AclResourceType
from broker.console.request import ConsoleError, ConsoleRequest, Json
from broker.console.security import SecurityViews
from protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    EntityData,
    UserScramCredentialRecord,
)
from tests.broker.metadata.images import image_of, image_with, uuid
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

ALL, READ, DESCRIBE = 2, 3, 8
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4


def acl(
    number: int, principal: str, name: str, operation: int, permission: int, pattern: int
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=uuid(number),
        resource_type=2,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def image_with_security() -> Any:
    return image_of(
        [
            acl(1, "User:bob", "orders", ALL, ALLOW, LITERAL),
            acl(2, "User:<i>eve</i>", "pay", READ, DENY, PREFIXED),
            acl(3, "User:bob", "archive", DESCRIBE, ALLOW, LITERAL),
            ClientQuotaRecord(entity=[EntityData("user", "bob")], key="producer_byte_rate", value=1_000.0),
            ClientQuotaRecord(
                entity=[EntityData("user", None), EntityData("client-id", "app")], key="request_percentage", value=5.0
            ),
            UserScramCredentialRecord("bob", 1, b"the-salt", b"stored-key", b"server-key", 4_096),
            UserScramCredentialRecord("bob", 2, b"the-salt", b"stored-key", b"server-key", 8_192),
        ],
        image_with(),
    )


def views(authorizer: GrantedPermissions | None = None) -> SecurityViews:
    return SecurityViews(ConsoleHarness(image_with_security(), authorizer).cluster)


async def test_acls_of_every_operation_are_named() -> None:
    answer = await views().acls(asked())
    assert [
        (each["principal"], each["permission"], each["operation"], each["resource_name"], each["pattern_type"])
        for each in answer["items"]
    ] == [
        ("User:<i>eve</i>", "DENY", "READ", "pay", "PREFIXED"),
        ("User:bob", "ALLOW", "DESCRIBE", "archive", "LITERAL"),
        ("User:bob", "ALLOW", "ALL", "orders", "LITERAL"),
    ]


async def test_acls_are_searched_and_sorted() -> None:
    own = views()
    found = await own.acls(asked(search="BOB", sort="-resource_name"))
    assert [each["resource_name"] for each in found["items"]] == ["orders", "archive"]
    assert (await own.acls(asked(search="pay")))["total"] == 1


async def test_new_image_replaces_the_list() -> None:
    harness = ConsoleHarness(image_with_security())
    own = SecurityViews(harness.cluster)
    assert (await own.acls(asked()))["total"] == 3
    harness.image = image_of([acl(4, "User:carol", "x", READ, ALLOW, LITERAL)], harness.image)
    assert (await own.acls(asked()))["total"] == 4


async def test_quotas_name_their_entity() -> None:
    answer = await views().quotas(asked())
    assert answer["items"] == [
        {"entity": [{"type": "user", "name": "bob"}], "values": {"producer_byte_rate": 1_000.0}},
        {
            "entity": [{"type": "user", "name": None}, {"type": "client-id", "name": "app"}],
            "values": {"request_percentage": 5.0},
        },
    ]
    assert (await views().quotas(asked(search="default")))["total"] == 1


async def test_users_have_no_secrets() -> None:
    answer = await views().users(asked())
    assert answer["items"] == [
        {
            "name": "bob",
            "mechanisms": [
                {"mechanism": "SCRAM-SHA-256", "iterations": 4_096},
                {"mechanism": "SCRAM-SHA-512", "iterations": 8_192},
            ],
        }
    ]
    assert "salt" not in str(answer)
    assert "key" not in str(answer)


View = Callable[[ConsoleRequest], Awaitable[Json]]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("acls", AclOperation.DESCRIBE),
        ("users", AclOperation.DESCRIBE),
        ("quotas", AclOperation.DESCRIBE_CONFIGS),
    ],
)
async def test_each_view_needs_the_right_of_its_api(name: str, operation: AclOperation) -> None:
    right = (ALICE, operation, AclResourceType.CLUSTER, CLUSTER_RESOURCE_NAME)
    authorizer = GrantedPermissions([right])
    view: View = getattr(views(authorizer), name)
    assert (await view(asked()))["total"] > 0
    authorizer.granted.clear()
    with pytest.raises(ConsoleError, match="User:alice is not authorized to describe") as refused:
        await view(asked())
    assert refused.value.status == 403
