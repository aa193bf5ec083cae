"""The command acls: options, requests and output of kafka-acls."""

import json

import pytest
from click.testing import CliRunner

from broker.cli.acls import acls
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker

TOPIC, GROUP, CLUSTER, USER = 2, 3, 4, 7
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
DENY, ALLOW = 2, 3
ALL, READ, WRITE, CREATE, DESCRIBE, IDEMPOTENT_WRITE = 2, 3, 4, 5, 8, 12
ALICE = "User:alice"


@pytest.fixture(autouse=True)
def answers(broker: FakeBroker) -> None:
    described = [
        DescribeAclsResource(TOPIC, "t", LITERAL, [AclDescription(ALICE, "*", READ, ALLOW)]),
        DescribeAclsResource(GROUP, "g", PREFIXED, [AclDescription("User:bob", "10.0.0.1", ALL, DENY)]),
    ]
    broker.answer(ApiKey.DESCRIBE_ACLS, lambda _: DescribeAclsResponse(error_message=None, resources=described))
    broker.answer(
        ApiKey.CREATE_ACLS,
        lambda request: CreateAclsResponse(results=[AclCreationResult(0, None) for _ in request.creations]),
    )
    broker.answer(
        ApiKey.DELETE_ACLS,
        lambda request: DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(0, None) for _ in request.filters]),
    )


def created(broker: FakeBroker) -> list[AclCreation]:
    return [creation for request in broker.received(CreateAclsRequest) for creation in request.creations]


def test_list_prints_as_kafka_does(ottla: Ottla) -> None:
    assert ottla("acls", "--list").out == (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`:\n"
        "\t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)\n\n"
        "Current ACLs for resource `ResourcePattern(resourceType=GROUP, name=g, patternType=PREFIXED)`:\n"
        "\t(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)\n\n"
    )


def test_list_of_a_principal_leaves_others_out(ottla: Ottla) -> None:
    lines = ottla("acls", "--list", "--principal", ALICE).lines
    assert lines[0] == "ACLs for principal `User:alice`"
    assert [line for line in lines if "principal=" in line] == [
        "\t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
    ]
    (document,) = json.loads(ottla("acls", "--list", "--principal", ALICE, "--json").out)
    assert (document["name"], document["acls"][0]["operation"]) == ("t", "READ")


def test_list_filters_by_resource_and_pattern(broker: FakeBroker, ottla: Ottla) -> None:
    ottla("acls", "--list", "--topic", "abc", "--cluster", "--resource-pattern-type", "match")
    ottla("acls", "--list", "--cluster")
    asked = broker.received(DescribeAclsRequest)
    fields = [(each.resource_type_filter, each.resource_name_filter, each.pattern_type_filter) for each in asked]
    assert fields == [(TOPIC, "abc", MATCH), (CLUSTER, "kafka-cluster", LITERAL)]
    assert {(each.principal_filter, each.host_filter, each.operation) for each in asked} == {(None, None, ANY)}


def test_add_makes_one_entry_for_each_principal_host_and_operation(broker: FakeBroker, ottla: Ottla) -> None:
    who = ("--allow-principal", ALICE, "--allow-principal", "User:bob", "--deny-principal", "User:eve")
    what = ("--operation", "read", "--operation", "DescribeConfigs", "--allow-host", "10.0.0.1")
    outcome = ottla("acls", "--add", *who, *what, "--topic", "new")
    assert outcome.code == 0
    assert outcome.lines[0] == (
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=new, patternType=LITERAL)`: "
    )
    entries = {(each.principal, each.host, each.operation, each.permission_type) for each in created(broker)}
    allowed = {(who, "10.0.0.1", what, ALLOW) for who in (ALICE, "User:bob") for what in (READ, 10)}
    assert entries == allowed | {("User:eve", "*", what, DENY) for what in (READ, 10)}


def test_add_leaves_present_entries_out(broker: FakeBroker, ottla: Ottla) -> None:
    outcome = ottla("acls", "--add", "--allow-principal", ALICE, "--operation", "Read", "--topic", "t")
    assert outcome.out == (
        "Acl (pattern=ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL), "
        "entry=(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)) already exists.\n"
    )
    assert created(broker) == []


def test_producer_and_consumer_stand_for_several_operations(broker: FakeBroker, ottla: Ottla) -> None:
    who = ("--allow-principal", ALICE)
    ottla("acls", "--add", *who, "--producer", "--consumer", "--idempotent", "--topic", "x", "--group", "y")
    operations = {(each.resource_type, each.resource_name, each.operation) for each in created(broker)}
    topic = {(TOPIC, "x", operation) for operation in (READ, WRITE, CREATE, DESCRIBE)}
    assert operations == topic | {(GROUP, "y", READ), (CLUSTER, "kafka-cluster", IDEMPOTENT_WRITE)}


def test_remove_with_force_sends_exact_filters(broker: FakeBroker, ottla: Ottla) -> None:
    chosen = ("--allow-principal", ALICE, "--operation", "CreateTokens", "--user-principal", "User:bob")
    assert ottla("acls", "--remove", *chosen, "--force").code == 0
    (request,) = broker.received(DeleteAclsRequest)
    assert request.filters == [DeleteAclsFilter(USER, "User:bob", LITERAL, ALICE, "*", 13, ALLOW)]


@pytest.mark.parametrize(("answer", "removals"), [("y\n", 1), ("n\n", 0), ("", 0)])
def test_remove_asks_first(broker: FakeBroker, answer: str, removals: int) -> None:
    arguments = ["--bootstrap-server", broker.address, "--remove", "--topic", "t", "--resource-pattern-type", "any"]
    outcome = CliRunner().invoke(acls, arguments, input=answer)
    pattern = "ResourcePattern(resourceType=TOPIC, name=t, patternType=ANY)"
    assert outcome.output == f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)\n"
    assert len(broker.received(DeleteAclsRequest)) == removals


def test_refusal_of_the_broker_is_one_sentence(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(
        ApiKey.DESCRIBE_ACLS, lambda _: DescribeAclsResponse(0, ErrorCode.SECURITY_DISABLED, "no authorizer", [])
    )
    outcome = ottla("acls", "--list")
    assert outcome.code == 1
    assert "Error while executing ACL command: " in outcome.err
    assert "no authorizer" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--topic t", "exactly one action"),
        ("--add --list", "exactly one action"),
        ("--add --allow-principal User:a", "at least one resource"),
        ("--add --topic t", "--allow-principal, --deny-principal"),
        ("--add --topic t --allow-principal a", "principalType:principalName but got a"),
        ("--add --topic t --allow-principal User:a --operation CreateTokens", "ResourceType TOPIC only supports"),
        ("--add --topic t --allow-principal User:a --operation describe_configs", "only supports operations Read"),
        ("--add --topic t --allow-principal User:a --resource-pattern-type match", "value of 'MATCH' is not valid"),
        ("--list --allow-principal User:a", '"[list]" can\'t be used with option "[allow-principal]"'),
        ("--add --producer --operation Read --topic t", '"[producer]" can\'t be used with option "[operation]"'),
        ("--add --consumer --topic t", "With --consumer"),
        ("--add --consumer --topic t --group g --cluster", "With --consumer"),
        ("--add --producer --group g", "With --producer"),
        ("--add --idempotent --topic t", "--idempotent option"),
        ("--add --principal User:a --topic t", "--principal option"),
    ],
)
def test_wrong_usage_is_refused_before_a_request(
    arguments: str, sentence: str, broker: FakeBroker, ottla: Ottla
) -> None:
    outcome = ottla("acls", *arguments.split())
    assert outcome.code == 2
    assert sentence in outcome.err
    assert broker.requests == []
