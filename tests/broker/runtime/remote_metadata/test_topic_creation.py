"""Creation of the metadata topic (`broker.runtime.remote_metadata.topic_creation`)."""

from collections.abc import Coroutine
from typing import Any

from immutables import Map

from broker.metadata.image.cluster_image import BrokerRegistration, ClusterImage
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.topic_image import TopicImage, TopicsImage
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.remote_metadata.settings import TOPIC, parse_remote_metadata_settings
from broker.runtime.remote_metadata.topic_creation import MetadataTopicCreation, MetadataTopicCreator
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.primitives import ONE_UUID
from tests.support.fakes.manual_loop import ManualLoop

Answer = int | Exception


class Controller:
    """Responds with one outcome after another; the last one is repeated."""

    def __init__(self, *outcomes: Answer) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[CreateTopicsRequest] = []

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self.requests.append(request)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=TOPIC, error_code=outcome)])


class Metadata:
    image: MetadataImage = EMPTY_IMAGE


def at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


class Harness:
    def __init__(self, *outcomes: Answer, voters: int = 3) -> None:
        self.loop = ManualLoop()
        self.controller = Controller(*outcomes)
        self.metadata = Metadata()
        self.creation = MetadataTopicCreation(
            self.controller,
            self.metadata,
            parse_remote_metadata_settings({}),
            self.loop,
            Deadlines(self.loop),
            voter_count=lambda: voters,
            spawn=at_once,
        )

    def show_topic(self) -> None:
        topic = TopicImage(TOPIC, ONE_UUID, Map())
        self.metadata.image = EMPTY_IMAGE._replace(topics=TopicsImage(Map({TOPIC: topic}), Map({ONE_UUID: topic}), 0))


def test_topic_is_created_with_kafkas_configuration() -> None:
    harness = Harness(ErrorCode.NONE)
    harness.creation.ensure()
    (topic,) = harness.controller.requests[0].topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (TOPIC, 50, 3)
    assert {config.name: config.value for config in topic.configs} == {
        "retention.ms": "-1",
        "cleanup.policy": "delete",
        "remote.storage.enable": "false",
        "min.insync.replicas": "2",
    }


def test_single_broker_cluster_creates_one_replica() -> None:
    harness = Harness(ErrorCode.NONE, voters=1)
    harness.creation.ensure()
    (topic,) = harness.controller.requests[0].topics
    assert topic.replication_factor == 1
    assert {config.name: config.value for config in topic.configs}["min.insync.replicas"] == "1"


def test_creation_is_retried_until_the_topic_exists() -> None:
    harness = Harness(
        ControllerUnavailable("no response"),
        KafkaError(ErrorCode.NOT_CONTROLLER),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    )
    harness.creation.ensure()
    harness.creation.ensure()
    assert len(harness.controller.requests) == 1
    harness.loop.advance(0.1 + 0.2 + 0.01)
    assert len(harness.controller.requests) == 3
    harness.loop.advance(200)
    tries = len(harness.controller.requests)
    assert 20 < tries < 40
    harness.show_topic()
    harness.loop.advance(200)
    assert len(harness.controller.requests) == tries
    harness.creation.ensure()
    assert len(harness.controller.requests) == tries
    harness.metadata.image = EMPTY_IMAGE
    harness.creation.ensure()
    assert len(harness.controller.requests) == tries + 1


def test_closed_creation_sends_no_request() -> None:
    harness = Harness(ErrorCode.INVALID_REPLICATION_FACTOR)
    harness.creation.ensure()
    harness.creation.close()
    harness.loop.advance(100)
    assert len(harness.controller.requests) == 1


def test_replication_factor_counts_down_brokers_for_a_while() -> None:
    """A count of live brokers alone would place all remote metadata on the first broker to return."""
    harness = Harness(ErrorCode.INVALID_REPLICATION_FACTOR, voters=1)
    brokers = {
        number: BrokerRegistration(BrokerId(number), BrokerEpoch(1), ONE_UUID, {}, {}, None, number > 1, False, ())
        for number in (1, 2, 3)
    }
    harness.metadata.image = EMPTY_IMAGE._replace(brokers=ClusterImage(Map(brokers)))
    harness.creation.ensure()
    harness.loop.advance(100)
    harness.loop.advance(60)
    factors = [request.topics[0].replication_factor for request in harness.controller.requests]
    assert factors[0] == 3
    assert factors[-1] == 1


def test_client_may_request_the_topic() -> None:
    requested: list[str] = []
    manager = RequestingManager(requested)
    creator = MetadataTopicCreator(lambda: requested.append("made"), manager)
    creator.request_topic(TOPIC)
    creator.request_topic("t")
    MetadataTopicCreator(lambda: requested.append("made"), None).request_topic("t")
    assert requested == ["made", "t"]


class RequestingManager:
    def __init__(self, requested: list[str]) -> None:
        self._asked = requested

    def request_topic(self, name: str) -> None:
        self._asked.append(name)
