"""AlterClientQuotas: entities, limits, and records of differences only (KIP-546, KIP-612)."""

from collections.abc import Mapping

import pytest

from broker.metadata.image.quota_image import quota_entity
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from tests.broker.metadata.images import Cluster

Entity = Mapping[str, str | None]
Limits = Mapping[str, float | None]


def entry(entity: Entity, limits: Limits) -> AlterClientQuotasRequestEntryData:
    parts = [AlterClientQuotasRequestEntityData(kind, name) for kind, name in entity.items()]
    return AlterClientQuotasRequestEntryData(
        parts, [OpData(key, value or 0.0, value is None) for key, value in limits.items()]
    )


def alter(
    cluster: Cluster, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[ErrorCode]:
    request = AlterClientQuotasRequest(list(entries), validate_only)
    response = cluster.write(cluster.controller.alter_client_quotas(request))
    assert all((each.error_code == 0) == (each.error_message is None) for each in response.entries)
    return [ErrorCode(each.error_code) for each in response.entries]


def stored(cluster: Cluster, entity: Entity) -> dict[str, float]:
    return dict(cluster.image.client_quotas.of(quota_entity(entity)))


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({"user": "u"}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        ({"user": None, "client-id": "c"}, {"consumer_byte_rate": 1.0}),
        ({"client-id": None}, {"controller_mutation_rate": 0.25}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
        ({"ip": "::1"}, {"connection_creation_rate": 5.0}),
        ({"ip": "host-1.example.org"}, {"connection_creation_rate": 5.0}),
        ({"ip": None}, {"connection_creation_rate": 5.0}),
        ({"user": "u"}, {"consumer_byte_rate": 10.0000001}),
    ],
)
def test_limits_are_stored(entity: Entity, limits: dict[str, float]) -> None:
    cluster = Cluster()
    assert alter(cluster, entry(entity, limits)) == [ErrorCode.NONE]
    cluster.fail_over()
    assert stored(cluster, entity) == limits


def test_removing_the_last_limit_removes_the_entity() -> None:
    cluster = Cluster()
    alter(cluster, entry({"user": "u"}, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}))
    alter(cluster, entry({"user": "u"}, {"producer_byte_rate": None}))
    assert stored(cluster, {"user": "u"}) == {"consumer_byte_rate": 2.0}
    alter(cluster, entry({"user": "u"}, {"consumer_byte_rate": None}))
    assert not cluster.image.client_quotas.entities


def test_only_differences_are_written() -> None:
    cluster = Cluster()
    same = entry({"user": "u"}, {"producer_byte_rate": 1.0})
    alter(cluster, same)
    before = cluster.controller.last_offset
    assert alter(cluster, same, entry({"user": "v"}, {"producer_byte_rate": None})) == [ErrorCode.NONE] * 2
    assert cluster.controller.last_offset == before


def test_validate_only_writes_nothing() -> None:
    cluster = Cluster()
    assert alter(cluster, entry({"user": "u"}, {"producer_byte_rate": 1.0}), validate_only=True) == [ErrorCode.NONE]
    assert stored(cluster, {"user": "u"}) == {}


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1", "user": "u"}, {"connection_creation_rate": 1.0}),
        ({"ip": "not an address"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2.0**31}),
        ({"user": "u"}, {"connection_creation_rate": 1.0}),
        ({"user": "u"}, {"producer_byte_rate": 0.0001}),
        ({"user": "u"}, {"producer_byte_rate": 1.5}),
        ({"user": "u"}, {"producer_byte_rate": -1.0}),
        ({"user": "u"}, {"producer_byte_rate": 2.0**64}),
        ({"user": "u"}, {"request_percentage": float("nan")}),
        ({"user": "u"}, {"request_percentage": float("inf")}),
    ],
)
def test_invalid_entities_and_limits_are_refused(entity: Entity, limits: Limits) -> None:
    cluster = Cluster()
    fine = entry({"user": "fine"}, {"consumer_byte_rate": 1.0})
    assert alter(cluster, fine, entry(entity, limits)) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert stored(cluster, {"user": "fine"}) == {"consumer_byte_rate": 1.0}
    assert len(cluster.image.client_quotas.entities) == 1


def test_repeated_names_are_refused() -> None:
    cluster = Cluster()
    one = entry({"user": "u"}, {"producer_byte_rate": 1.0})
    assert alter(cluster, one, entry({"user": "u"}, {"consumer_byte_rate": 1.0})) == [ErrorCode.INVALID_REQUEST]
    twice = AlterClientQuotasRequestEntryData(one.entity, [*one.ops, OpData("producer_byte_rate", 2.0)])
    assert alter(cluster, twice) == [ErrorCode.INVALID_REQUEST]
    parts = [*one.entity, AlterClientQuotasRequestEntityData("user", "v")]
    assert alter(cluster, AlterClientQuotasRequestEntryData(parts, one.ops)) == [ErrorCode.INVALID_REQUEST]
    assert not cluster.image.client_quotas.entities
