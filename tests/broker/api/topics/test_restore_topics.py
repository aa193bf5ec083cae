"""RestoreTopics: checks before the controller."""

import pytest

from broker.api.topics.restore_topics import RestoreTopicsHandler
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.restore_topics import RestorableTopic, RestoreTopicsRequest
from protocol.primitives import Uuid
from tests.broker.api.metadata_harness import LiveCluster, context


@pytest.fixture
def cluster() -> LiveCluster:
    cluster = LiveCluster()
    cluster.start_brokers(1)
    return cluster


def topic(name: str, number: int, *epochs: int) -> RestorableTopic:
    return RestorableTopic(name, Uuid(bytes(15) + bytes([number])), 1, list(epochs))


async def test_topics_are_restored(cluster: LiveCluster) -> None:
    request = RestoreTopicsRequest([topic("a", 5, 3), topic("b", 6, 0, 1)])
    response = await RestoreTopicsHandler(cluster)(request, context(0))
    assert [(each.name, each.error_code) for each in response.topics] == [("a", 0), ("b", 0)]
    assert cluster.image.topics.names() == ["a", "b"]


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ([topic("a", 5, 1), topic("a", 6, 1)], ErrorCode.INVALID_REQUEST),
        ([topic("a", 5, 1), topic("b", 5, 1)], ErrorCode.INVALID_REQUEST),
        ([topic("__cluster_metadata", 5, 1)], ErrorCode.INVALID_REQUEST),
        ([topic("a", 5)], ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_invalid_requests_are_refused(
    cluster: LiveCluster, topics: list[RestorableTopic], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        await RestoreTopicsHandler(cluster)(RestoreTopicsRequest(topics), context(0))
    assert refused.value.code == code
    assert cluster.image.topics.names() == []
