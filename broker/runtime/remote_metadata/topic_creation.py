"""Creation of the metadata topic: requests to the controller, repeated until the cluster metadata show the topic.

The brokers of a cluster may start in any order, and a replication factor of three needs three brokers, so every failure
is retried. Users of the topic wait for it.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from broker.config.internal_topics import internal_min_isr, internal_replication_factor
from broker.logs import EventLog
from broker.metadata.controller.state import MIN_INSYNC_REPLICAS
from broker.runtime.controller.auto_topic_creation import TopicCreationChannel
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.controller.metadata_cache import ImageSource
from broker.runtime.loop.waiters import Deadlines, Loop
from broker.runtime.remote_metadata.client import error_name
from broker.runtime.remote_metadata.settings import TOPIC, RemoteMetadataSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

_LONGEST_WAIT_MS: Final = 10_000
_DONE: Final = frozenset({int(ErrorCode.NONE), int(ErrorCode.TOPIC_ALREADY_EXISTS)})

_log: Final = EventLog("broker.tiered.metadata")


class RequestedTopicCreator(Protocol):
    """Creates topics that clients request by name."""

    def request_topic(self, name: str) -> None: ...


class MetadataTopicCreator:
    """A RequestedTopicCreator that creates the metadata topic, with its required configuration, on a client's request.

    Tools request the topic before any topic is tiered. Requests for other topics go to `others`, if given.
    """

    def __init__(self, ensure: Callable[[], None], others: RequestedTopicCreator | None) -> None:
        self._ensure = ensure
        self._others = others

    def request_topic(self, name: str) -> None:
        """See RequestedTopicCreator."""
        if name == TOPIC:
            self._ensure()
        elif self._others is not None:
            self._others.request_topic(name)


class MetadataTopicCreation:
    """Creates the metadata topic. `spawn` starts a background task; `voter_count` returns the size of the quorum."""

    def __init__(
        self,
        channel: TopicCreationChannel,
        metadata: ImageSource,
        settings: RemoteMetadataSettings,
        loop: Loop,
        deadlines: Deadlines,
        *,
        voter_count: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._channel = channel
        self._metadata = metadata
        self._settings = settings
        self._loop = loop
        self._deadlines = deadlines
        self._voter_count = voter_count
        self._spawn = spawn
        self._failures = 0
        self._began_s: float | None = None
        self._is_closed = False

    def ensure(self) -> None:
        """Create the topic unless it exists or is being created."""
        if self._began_s is None and not self._exists():
            self._began_s = self._loop.time()
            self._failures = 0
            self._try()

    def close(self) -> None:
        self._is_closed = True

    def _exists(self) -> bool:
        return self._metadata.image.topics.by_name(TOPIC) is not None

    def _try(self) -> None:
        if self._is_closed or self._exists():
            self._began_s = None
            return
        self._spawn(self._create())

    async def _create(self) -> None:
        try:
            response = await self._channel.create_topics(
                CreateTopicsRequest([self._topic()], timeout_ms=self._settings.request_timeout_ms)
            )
        except (KafkaError, ControllerUnavailable) as error:
            self._retry_later(str(error))
            return
        refusals = [result for result in response.topics if result.error_code not in _DONE]
        if refusals:
            reason = error_name(refusals[0].error_code)
            self._retry_later(f"{reason}: {refusals[0].error_message}" if refusals[0].error_message else reason)
        else:
            self._retry_later(None)

    def _retry_later(self, reason: str | None) -> None:
        """Check again later, and request the topic unless it exists: the controller has it before this broker does."""
        if reason is not None:
            self._log_failure(reason)
        delay_ms = min(
            _LONGEST_WAIT_MS, self._settings.initialization_retry_interval_ms * 2.0 ** min(self._failures, 16)
        )
        self._failures += 1
        self._deadlines.after_ms(delay_ms, self._try)

    def _broker_count(self) -> int:
        """Return the number of brokers that the replication factor may count on.

        Registered brokers that are down usually return: a cluster that starts must not place all remote metadata on its
        first broker. They count until creation has taken `initialization.retry.max.timeout.ms`.
        """
        brokers = self._metadata.image.brokers
        return len(brokers.alive()) if self._is_taking_long else len(brokers.all())

    @property
    def _is_taking_long(self) -> bool:
        assert self._began_s is not None
        return (self._loop.time() - self._began_s) * 1000 > self._settings.initialization_retry_max_timeout_ms

    def _log_failure(self, reason: str) -> None:
        if self._failures == 0:
            _log.info("The metadata topic cannot be created yet", topic=TOPIC, reason=reason)
        elif self._is_taking_long:
            _log.error("The metadata topic still cannot be created", topic=TOPIC, reason=reason)

    def _topic(self) -> CreatableTopic:
        settings = self._settings
        factor = internal_replication_factor(
            settings.topic_replication_factor,
            voter_count=self._voter_count(),
            broker_count=self._broker_count(),
        )
        configs = {
            "retention.ms": "-1",
            "cleanup.policy": "delete",
            "remote.storage.enable": "false",
            MIN_INSYNC_REPLICAS: str(internal_min_isr(settings.topic_min_isr, factor)),
        }
        return CreatableTopic(
            TOPIC,
            settings.topic_num_partitions,
            factor,
            configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
        )
