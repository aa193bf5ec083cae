"""The commands cluster cluster-id, unregister and list-endpoints."""

import json

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.broker.cli.conftest import Outcome
from tests.support.fakes.fake_broker import FakeBroker


@pytest.fixture(autouse=True)
def _cluster(broker: FakeBroker) -> None:
    def describe(request: DescribeClusterRequest) -> DescribeClusterResponse:
        brokers = [DescribeClusterBroker(1, "127.0.0.1", broker.port, "r1")]
        if request.include_fenced_brokers:
            brokers.append(DescribeClusterBroker(12, "a-rather-long-name", 9092, None, is_fenced=True))
        return DescribeClusterResponse(cluster_id="c1", controller_id=1, brokers=brokers)

    def unregister(request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        if request.broker_id == 9:
            return UnregisterBrokerResponse(0, ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 9 is not registered")
        return UnregisterBrokerResponse()

    broker.answer(ApiKey.DESCRIBE_CLUSTER, describe)
    broker.answer(ApiKey.UNREGISTER_BROKER, unregister)


class Cluster:
    """Runs `ottla cluster ACTION …` against the broker."""

    def __init__(self, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys

    def __call__(self, action: str, *more: str, via: str = "--bootstrap-server") -> Outcome:
        code = run(["cluster", action, via, self._broker.address, *more])
        return Outcome(code, *self._capsys.readouterr())


@pytest.fixture
def cluster(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Cluster:
    return Cluster(broker, capsys)


def test_cluster_id(cluster: Cluster) -> None:
    assert cluster("cluster-id").lines == ["Cluster ID: c1"]
    assert cluster("cluster-id", via="--bootstrap-controller").lines == ["Cluster ID: c1"]
    assert json.loads(cluster("cluster-id", "--json").out) == {"clusterId": "c1"}


def test_endpoints_of_brokers(cluster: Cluster, broker: FakeBroker) -> None:
    assert cluster("list-endpoints", "--include-fenced-brokers").lines == [
        "ID         HOST               PORT       RACK       STATE      ENDPOINT_TYPE  ",
        f"1          127.0.0.1          {broker.port:<10} r1         unfenced   broker         ",
        "12         a-rather-long-name 9092       null       fenced     broker         ",
    ]
    (node,) = json.loads(cluster("list-endpoints", "--json").out)
    assert (node["id"], node["state"], node["endpointType"]) == (1, "unfenced", "broker")


def test_endpoints_of_controllers_have_no_state(cluster: Cluster, broker: FakeBroker) -> None:
    assert cluster("list-endpoints", via="--bootstrap-controller").lines == [
        "ID         HOST      PORT       RACK       ENDPOINT_TYPE  ",
        f"1          127.0.0.1 {broker.port:<10} r1         controller     ",
    ]
    assert cluster("list-endpoints", "--include-fenced-brokers", via="--bootstrap-controller").code == 2


def test_unregister(cluster: Cluster) -> None:
    assert cluster("unregister", "--id", "3").lines == ["Broker 3 is no longer registered."]
    refused = cluster("unregister", "--id", "9")
    assert (refused.code, refused.err) == (1, "Error: broker 9 is not registered\n")
    assert cluster("unregister").code == 2


def test_options_of_the_local_cluster_do_not_go_with_queries(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "--nodes", "3", "cluster-id"]) == 2
    assert "--nodes starts a local cluster and does not go with cluster-id." in capsys.readouterr().err
