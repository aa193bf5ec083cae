"""Apache Kafka's unmodified admin tools: elections, reassignments, features, quotas, credentials and ACLs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.interop

CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with OttlaNode(tmp_path_factory.mktemp("tools")) as running:
        run_tool("org.apache.kafka.tools.TopicCommand", *at(running), "--create", "--topic", "t", "--partitions", "2")
        yield running


def at(node: OttlaNode) -> tuple[str, str]:
    return "--bootstrap-server", node.bootstrap


def test_configs_tool_sets_quotas_and_credentials_of_users(node: OttlaNode) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    for settings in ("consumer_byte_rate=1024", "SCRAM-SHA-256=[iterations=8192,password=secret]"):
        run_tool(CONFIGS, *at(node), *user, "--alter", "--add-config", settings)
    described = run_tool(CONFIGS, *at(node), *user, "--describe")
    assert "consumer_byte_rate=1024.0" in described
    assert "SCRAM-SHA-256=iterations=8192" in described
    for key in ("consumer_byte_rate", "SCRAM-SHA-256"):
        run_tool(CONFIGS, *at(node), *user, "--alter", "--delete-config", key)
    assert "alice" not in run_tool(CONFIGS, *at(node), "--entity-type", "users", "--describe")


def test_election_tool_reports_elected_leaders(node: OttlaNode) -> None:
    elected = run_tool(
        "org.apache.kafka.tools.LeaderElectionCommand",
        *at(node),
        "--election-type",
        "preferred",
        "--all-topic-partitions",
    )
    assert "Error" not in elected
    one = ("--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "already elected" in run_tool("org.apache.kafka.tools.LeaderElectionCommand", *at(node), *one)


def test_reassignment_tool_completes_a_reassignment_to_the_same_replicas(node: OttlaNode, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    move = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    run_tool(tool, *at(node), "--execute", "--reassignment-json-file", str(plan))
    assert "is completed" in run_tool(tool, *at(node), "--verify", "--reassignment-json-file", str(plan))
    assert "No partition reassignments found" in run_tool(tool, *at(node), "--list")


def test_feature_tool_describes_and_changes_levels(node: OttlaNode) -> None:
    tool = "org.apache.kafka.tools.FeatureCommand"
    assert "Feature: metadata.version" in run_tool(tool, *at(node), "describe")
    assert "group.version was downgraded to 0" in run_tool(tool, *at(node), "downgrade", "--feature", "group.version=0")
    assert "group.version was upgraded to 1" in run_tool(tool, *at(node), "upgrade", "--feature", "group.version=1")
    with pytest.raises(AssertionError, match=r"group\.version"):
        run_tool(tool, *at(node), "upgrade", "--feature", "group.version=9")


def test_acl_tool_gets_security_disabled_error(node: OttlaNode) -> None:
    acl = ("--add", "--allow-principal", "User:u", "--operation", "Read", "--topic", "t")
    for arguments in (acl, ("--list",)):
        try:
            printed = run_tool("org.apache.kafka.tools.AclCommand", *at(node), *arguments)
        except AssertionError as error:
            printed = str(error)
        assert "authorizer" in printed.lower()
