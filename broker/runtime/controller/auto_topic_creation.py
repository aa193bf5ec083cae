"""Automatic creation of topics: topics that clients name in Metadata requests, and internal topics.

A request returns at once while the creation runs in the background; the caller retries until the topic exists. At most
one creation per name is in flight.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol

from broker.config.broker_config import BrokerConfig
from broker.config.internal_topics import internal_min_isr, internal_replication_factor
from broker.logs import EventLog
from broker.metadata.controller.state import MIN_INSYNC_REPLICAS
from broker.metadata.image.topic_names import (
    CLUSTER_METADATA_TOPIC,
    GROUP_OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.controller.metadata_cache import ImageSource
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

# Bound the memory that a client can claim by naming topics.
MAX_CREATIONS_UNDER_WAY: Final = 10_000

_log: Final = EventLog("broker.topics")


class TopicCreationChannel(Protocol):
    """CreateTopics requests to the active controller. Raises KafkaError, ControllerUnavailable."""

    def create_topics(self, request: CreateTopicsRequest) -> Awaitable[CreateTopicsResponse]: ...


class AutoTopicCreation:
    """Creates topics in the background.

    `spawn` starts a coroutine that ends with the node. `voter_count` returns the size of the quorum, which limits the
    replication factor of internal topics on a single machine.
    """

    def __init__(
        self,
        channel: TopicCreationChannel,
        metadata: ImageSource,
        config: BrokerConfig,
        *,
        voter_count: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._channel = channel
        self._metadata = metadata
        self._config = config
        self._voter_count = voter_count
        self._spawn = spawn
        self._under_way: set[str] = set()

    def request_topic(self, name: str) -> None:
        """Create a topic that a client named, with this broker's defaults; internal topics have settings of their own.

        Topics in `_CREATED_ELSEWHERE` are ignored.
        """
        if name in _CREATED_ELSEWHERE:
            return
        if name in _SHAPES:
            self.ensure_internal_topic(name)
        else:
            self._begin(CreatableTopic(name, self._config.num_partitions, self._config.default_replication_factor))

    def ensure_internal_topic(self, name: str) -> None:
        """Create an internal topic unless it exists, regardless of auto.create.topics.enable."""
        if self._metadata.image.topics.by_name(name) is None:
            self._begin(self._internal(name))

    def _begin(self, topic: CreatableTopic) -> None:
        if topic.name not in self._under_way and len(self._under_way) < MAX_CREATIONS_UNDER_WAY:
            self._under_way.add(topic.name)
            self._spawn(self._create(topic))

    async def _create(self, topic: CreatableTopic) -> None:
        request = CreateTopicsRequest([topic], timeout_ms=self._config.request_timeout_ms)
        try:
            _report(await self._channel.create_topics(request))
        except (KafkaError, ControllerUnavailable) as error:
            _log.warning("A topic could not be created", topic=topic.name, reason=str(error))
        finally:
            self._under_way.discard(topic.name)

    def _internal(self, name: str) -> CreatableTopic:
        """Return the request that creates an internal topic. Raises KafkaError for any other name."""
        if name not in _SHAPES:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f'topic "{name}" is not an internal topic')
        shape = _SHAPES[name](self._config)
        brokers = len(self._metadata.image.brokers.alive())
        factor = internal_replication_factor(
            shape.replication_factor, voter_count=self._voter_count(), broker_count=brokers
        )
        settings = dict(shape.settings)
        if shape.min_isr is not None:
            settings[MIN_INSYNC_REPLICAS] = str(internal_min_isr(shape.min_isr, factor))
        configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
        return CreatableTopic(name, shape.partition_count, factor, configs=configs)


_CREATED_ELSEWHERE: Final = frozenset({CLUSTER_METADATA_TOPIC, "__remote_log_metadata"})


class _Shape(NamedTuple):
    """The settings of an internal topic; `min_isr` None leaves min.insync.replicas to the cluster's default."""

    partition_count: int
    replication_factor: int
    min_isr: int | None
    settings: Mapping[str, str]


def _offsets_shape(config: BrokerConfig) -> _Shape:
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return _Shape(config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, None, settings)


def _transactions_shape(config: BrokerConfig) -> _Shape:
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    return _Shape(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        config.transaction_state_log_min_isr,
        settings,
    )


def _share_state_shape(config: BrokerConfig) -> _Shape:
    settings = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        "retention.ms": "-1",
    }
    return _Shape(
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        config.share_coordinator_state_topic_min_isr,
        settings,
    )


_SHAPES: Final[Mapping[str, Callable[[BrokerConfig], _Shape]]] = {
    GROUP_OFFSETS_TOPIC: _offsets_shape,
    TRANSACTION_STATE_TOPIC: _transactions_shape,
    SHARE_STATE_TOPIC: _share_state_shape,
}


def _report(response: CreateTopicsResponse) -> None:
    for result in response.topics:
        if result.error_code == ErrorCode.NONE:
            _log.info("Created a topic automatically", topic=result.name, partitions=result.num_partitions)
        elif result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            reason = ErrorCode(result.error_code).name
            _log.warning("A topic could not be created", topic=result.name, reason=reason, detail=result.error_message)
