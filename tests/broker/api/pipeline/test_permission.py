"""Permissions that the routes of every listener require."""

from typing import Any, cast

import pytest

from broker.api.pipeline import permission as needs
from broker.api.pipeline.permission import AclOperation, AclResourceType, Permission, Requirement, Unrestricted
from broker.api.serving.route import Route
from broker.api.serving.routes import BrokerServices, broker_routes
from broker.build_form import COMPILED, build_form
from broker.config.load import load_config
from protocol.api_keys import API_BY_KEY, ApiKey
from tests.broker.api.metadata_harness import LiveCluster
from tests.broker.api.serving.test_controller_routes import Node

if build_form() == COMPILED:
    pytest.skip("compiled constructors refuse a Collaborator", allow_module_level=True)

STATIC = load_config(None, (), {})[0]


class Collaborator:
    """Stands in for the collaborators that handlers only keep; every attribute is another one."""

    def __getattr__(self, name: str) -> "Collaborator":
        return Collaborator()


def broker_table() -> dict[ApiKey, Route]:
    cluster = LiveCluster()
    given = {name: cast(Any, Collaborator()) for name in BrokerServices.__dataclass_fields__}
    given |= {"config": lambda: STATIC, "kraft_version": lambda: 1, "cluster_id": "test", "node_id": 1}
    given |= {"metadata": cluster, "controller": cluster, "kraft_upgrade": None, "authorizer": None}
    rows = broker_routes(BrokerServices(**given))
    table = {row.key: row for row in rows}
    assert len(table) == len(rows)
    return table


def controller_table() -> dict[ApiKey, Route]:
    return {row.key: row for row in Node().rows}


@pytest.mark.parametrize("table", [broker_table(), controller_table()], ids=["broker", "controller"])
def test_every_route_has_a_permission_or_a_reason_for_none(table: dict[ApiKey, Route]) -> None:
    for row in table.values():
        match row.permission:
            case Requirement(clauses):
                assert clauses, row.key.name
                assert all(clauses), row.key.name
            case Unrestricted(reason):
                assert reason, row.key.name


@pytest.mark.parametrize(
    ("key", "requirement"),
    [
        (ApiKey.PRODUCE, needs.WRITE_TOPIC),
        (ApiKey.METADATA, needs.DESCRIBE_TOPIC),
        (ApiKey.CREATE_TOPICS, needs.CREATE_CLUSTER | needs.CREATE_TOPIC),
        (ApiKey.OFFSET_COMMIT, needs.READ_GROUP & needs.READ_TOPIC),
        (ApiKey.CREATE_ACLS, needs.ALTER_CLUSTER),
        (ApiKey.DESCRIBE_QUORUM, needs.DESCRIBE_CLUSTER),
    ],
)
def test_broker_routes_require_what_kafka_requires(key: ApiKey, requirement: Requirement) -> None:
    assert broker_table()[key].permission == requirement


def test_fetch_requires_cluster_action_on_controllers_alone() -> None:
    assert controller_table()[ApiKey.FETCH].permission == needs.CLUSTER_ACTION
    assert broker_table()[ApiKey.FETCH].permission == needs.READ_TOPIC | needs.CLUSTER_ACTION


def test_forwarded_routes_require_the_same_on_both_listeners() -> None:
    broker, controller = broker_table(), controller_table()
    forwarded = {key for key, row in broker.items() if row.is_forwarded}
    assert forwarded == {key for key, row in controller.items() if row.is_forwarded}
    assert all(broker[key].permission == controller[key].permission for key in forwarded)
    assert ApiKey.ALTER_CONFIGS in forwarded


def test_broker_serves_no_api_of_controllers_but_public_snapshots() -> None:
    declared = {ApiKey(key) for key, api in API_BY_KEY.items() if "broker" in api.listeners}
    assert set(broker_table()) - declared == {ApiKey.FETCH_SNAPSHOT}


def test_stage_decides_clauses_that_name_the_cluster_alone() -> None:
    cluster = Permission(AclOperation.ALTER, AclResourceType.CLUSTER)
    assert (needs.READ_TOPIC & needs.ALTER_CLUSTER).cluster_clauses == ((cluster,),)
    assert (needs.READ_TOPIC | needs.ALTER_CLUSTER).cluster_clauses == ()
