"""Apache Kafka's kafka-acls and `ottla acls` on one Ottla node with the standard authorizer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.authorizer.standard import STANDARD_AUTHORIZER
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.interop

KAFKA_ACLS = "org.apache.kafka.tools.AclCommand"
CONSUMER = ("--consumer", "--topic", "orders", "--group", "readers", "--allow-principal", "User:alice")
DENIED = ("--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--operation", "Write", "--topic", "ord")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with OttlaNode(tmp_path, settings) as running:
        yield running


def blocks(listing: str) -> dict[str, set[str]]:
    """Return the lines of each resource of a listing; Kafka's tool has no order."""
    found: dict[str, set[str]] = {}
    for block in listing.split("Current ACLs for resource ")[1:]:
        resource, *lines = block.splitlines()
        found[resource] = {line for line in lines if line.strip()}
    return found


def test_both_tools_add_list_and_remove_the_same_acls(node: OttlaNode) -> None:
    at = ("--bootstrap-server", node.bootstrap)
    added = run_tool(KAFKA_ACLS, *at, "--add", *CONSUMER)
    assert "Adding ACLs for resource" in added
    assert run_ottla("acls", *at, "--add", *DENIED, "--resource-pattern-type", "prefixed").returncode == 0
    again = run_ottla("acls", *at, "--add", *CONSUMER)
    assert again.stdout.count("already exists") == 3, again
    theirs, ours = run_tool(KAFKA_ACLS, *at, "--list"), run_ottla("acls", *at, "--list").stdout
    assert blocks(ours) == blocks(theirs)
    assert len(blocks(ours)) == 3
    assert len(ours) == len(theirs)
    run_tool(KAFKA_ACLS, *at, "--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
    assert [*blocks(run_ottla("acls", *at, "--list").stdout)] == [
        "`ResourcePattern(resourceType=GROUP, name=readers, patternType=LITERAL)`:"
    ]
