"""`ottla doctor` against brokers that refuse, hang or are missing: findings, never a traceback."""

import json

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from protocol.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from protocol.messages.describe_node import DescribeNodeResponse
from protocol.messages.describe_quorum import DescribeQuorumResponse
from protocol.messages.list_groups import ListGroupsResponse
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import NODE_ID, FakeBroker, HangUp
from tests.support.processes.closed_port import closed_port


@pytest.fixture
def described(broker: FakeBroker) -> FakeBroker:
    """A broker that describes its cluster, and closes the connection at private APIs like Apache Kafka."""

    def refuse(_: object) -> DescribeNodeResponse:
        raise HangUp

    broker.answer(
        ApiKey.DESCRIBE_CLUSTER,
        lambda _: DescribeClusterResponse(
            cluster_id="c", brokers=[DescribeClusterBroker(NODE_ID, "127.0.0.1", broker.port)]
        ),
    )
    broker.answer(ApiKey.DESCRIBE_NODE, refuse)
    broker.answer(ApiKey.LIST_GROUPS, lambda _: ListGroupsResponse())
    broker.answer(
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda _: DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", [], 1_000, 900)]),
    )
    return broker


def codes(out: str) -> list[str]:
    return [each["code"] for each in json.loads(out)["findings"]]


def test_broker_without_private_apis_is_judged_by_the_others(described: FakeBroker, ottla: Ottla) -> None:
    outcome = ottla("doctor", "--sample-seconds", "0", "--json")
    assert (outcome.code, codes(outcome.out), outcome.err) == (0, [], "")


def test_full_disk_is_named_with_the_command_to_run(described: FakeBroker, ottla: Ottla) -> None:
    described.answer(
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda _: DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", [], 1_000, 20)]),
    )
    outcome = ottla("doctor", "--sample-seconds", "0")
    assert outcome.code == 1
    assert outcome.lines[0] == "1 finding: 1 critical."
    assert f"  Run: ottla log-dirs --bootstrap-server {described.address} --describe --broker-list 1" in outcome.lines


def test_broker_that_hangs_up_is_a_finding(described: FakeBroker, ottla: Ottla) -> None:
    def refuse(_: object) -> ListGroupsResponse:
        raise HangUp

    described.answer(ApiKey.LIST_GROUPS, refuse)
    outcome = ottla("doctor", "--sample-seconds", "0", "--json")
    assert (outcome.code, codes(outcome.out)) == (1, ["silent-broker"])


def test_quorum_without_leader_is_a_finding(described: FakeBroker, ottla: Ottla) -> None:
    described.answer(
        ApiKey.DESCRIBE_QUORUM, lambda _: DescribeQuorumResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    )
    outcome = ottla("doctor", "--sample-seconds", "0", "--json")
    assert (outcome.code, codes(outcome.out)) == (1, ["no-active-controller"])


def test_refused_description_is_named(described: FakeBroker, ottla: Ottla) -> None:
    described.answer(
        ApiKey.DESCRIBE_QUORUM, lambda _: DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    )
    outcome = ottla("doctor", "--sample-seconds", "0", "--json")
    assert (outcome.code, codes(outcome.out)) == (1, ["not-examined"])


def test_cluster_that_is_down_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    with closed_port() as port:
        code = run(["doctor", "--bootstrap-server", f"127.0.0.1:{port}", "--json"])
    assert (code, codes(capsys.readouterr().out)) == (1, ["no-broker-answers"])
