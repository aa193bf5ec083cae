"""Questions to one node on a connection of its own, so that a node that hangs delays no other."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from broker.cli.diagnosis.facts import (
    BrokerFacts,
    CertificateFacts,
    GroupFacts,
    LogDirFacts,
    NodeFacts,
    TrafficFacts,
    UncheckedFact,
)
from broker.client import ClientConfig, ClientError, Connection, Endpoint, UnsupportedVersion, raise_for
from broker.metadata.image.metadata_version import METADATA_VERSION
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import Message
from protocol.messages.describe_cluster import DescribeClusterBroker
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.messages.describe_node import DescribedLogDir, DescribeNodeRequest, DescribeNodeResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

R = TypeVar("R", bound=Message)
T = TypeVar("T")

BROKER_RESOURCE: Final = 4
CONFIGS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
PRIVATE_KEY_REFUSED: Final = "closed the connection"


class BrokerSurvey:
    """One broker. `take` asks it for everything; the connection is kept for the next time."""

    def __init__(
        self, broker: DescribeClusterBroker, config: ClientConfig, *, detailed: bool = True, topics_max: int = 0
    ) -> None:
        self.broker = broker
        self._config = config
        self._detailed = detailed
        self._topics_max = topics_max
        self._connection: Connection | None = None
        self._describes_itself = True
        self.groups: Sequence[GroupFacts] = ()
        self.unchecked: list[UncheckedFact] = []

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.broker.host, self.broker.port)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def take(self) -> BrokerFacts:
        """Return the facts about the broker; those about a broker that does not answer say why."""
        self.unchecked = []
        self.groups = ()
        broker = self.broker
        facts = BrokerFacts(broker.broker_id, str(self.endpoint), broker.is_fenced, rack=broker.rack)
        if broker.is_fenced:
            return facts
        try:
            return self._ask()
        except ClientError as error:
            self.close()
            return BrokerFacts(facts.id, facts.address, failure=str(error), rack=broker.rack)

    def _ask(self) -> BrokerFacts:
        node = self._node()
        directories = None if node is None else node.log_dirs
        if directories is None:
            directories = self._part("log directories", self._log_dirs) or ()
        self.groups = self._part("groups", self._list_groups) or ()
        configs = (self._part("configuration", self._configs) or {}) if self._detailed else {}
        versions = self._open().api_versions.supported_features
        level = next((each.max_version for each in versions if each.name == METADATA_VERSION), None)
        broker = self.broker
        return BrokerFacts(
            broker.broker_id,
            str(self.endpoint),
            node=node,
            log_dirs=directories,
            metadata_level=level,
            configs=configs,
            rack=broker.rack,
        )

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = Connection.open(self.endpoint, self._config)
        return self._connection

    def _part(self, subject: str, ask: Callable[[], T]) -> T | None:
        """Return the answer; note a refusal. Raises ConnectionLost."""
        try:
            return ask()
        except (KafkaError, UnsupportedVersion) as error:
            if isinstance(error, KafkaError):
                self.unchecked.append(UncheckedFact(f"{subject} of broker {self.broker.broker_id}", error.message))
            return None

    def _node(self) -> NodeFacts | None:
        """Return DescribeNode; None for a broker of another kind, which closes the connection. Raises ClientError."""
        if not self._describes_itself:
            return None
        self._open()
        try:
            return self._part("state", self._describe_node)
        except ClientError as error:
            self.close()
            if PRIVATE_KEY_REFUSED not in str(error):
                raise
            self._open()  # a node that is down does not accept the next connection
            self._describes_itself = False
            return None

    def _describe_node(self) -> NodeFacts:
        request = DescribeNodeRequest(include_log_dirs=True, include_health=self._detailed, max_topics=self._topics_max)
        connection, sent_s, sent_ms = self._open(), time.monotonic(), time.time() * 1000
        answer = connection.call(request, DescribeNodeResponse)
        round_trip_ms = (time.monotonic() - sent_s) * 1000
        raise_for(answer.error_code, f"broker {self.broker.broker_id}", answer.error_message)
        ahead_ms = answer.time_ms - (sent_ms + round_trip_ms / 2)
        return node_facts(answer, int(ahead_ms), int(round_trip_ms))

    def _log_dirs(self) -> Sequence[LogDirFacts]:
        answer = self._open().call(DescribeLogDirsRequest(None), DescribeLogDirsResponse)
        raise_for(answer.error_code, "log directories")
        return [
            LogDirFacts(
                each.log_dir,
                ErrorCode(each.error_code).message if each.error_code else None,
                each.total_bytes,
                each.usable_bytes,
                sum(partition.partition_size for topic in each.topics for partition in topic.partitions),
            )
            for each in answer.results
        ]

    def _list_groups(self) -> Sequence[GroupFacts]:
        answer = self._open().call(ListGroupsRequest(), ListGroupsResponse)
        if answer.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            raise_for(answer.error_code, "groups")
        return [
            GroupFacts(each.group_id, each.group_type.lower() or "classic", each.group_state, self.broker.broker_id)
            for each in answer.groups
        ]

    def _configs(self) -> dict[str, str]:
        resource = DescribeConfigsResource(BROKER_RESOURCE, str(self.broker.broker_id), list(CONFIGS))
        (answer,) = self._open().call(DescribeConfigsRequest([resource]), DescribeConfigsResponse).results
        raise_for(answer.error_code, "configuration", answer.error_message)
        return {each.name: each.value for each in answer.configs if each.value is not None}


def node_facts(answer: DescribeNodeResponse, ahead_ms: int, round_trip_ms: int) -> NodeFacts:
    """Return the facts of a DescribeNode response."""
    return NodeFacts(
        release=answer.release,
        uptime_ms=answer.uptime_ms,
        clock_ahead_ms=ahead_ms,
        round_trip_ms=round_trip_ms,
        cpu_ms=answer.cpu_ms,
        memory_bytes=answer.memory_bytes,
        connections=answer.connections,
        loop_lag_micros=answer.loop_lag_micros,
        requests=answer.requests,
        bytes_in=answer.bytes_in,
        bytes_out=answer.bytes_out,
        messages_in=answer.messages_in,
        isr_shrinks=answer.isr_shrinks,
        isr_expands=answer.isr_expands,
        unclean_elections=answer.unclean_elections,
        has_remote_storage=answer.has_remote_storage,
        remote_copy_bytes=answer.remote_copy_bytes,
        remote_copy_errors=answer.remote_copy_errors,
        remote_fetch_errors=answer.remote_fetch_errors,
        remote_copy_lag_bytes=answer.remote_copy_lag_bytes,
        remote_copy_lag_segments=answer.remote_copy_lag_segments,
        log_dirs=[_log_dir(each) for each in answer.log_dirs],
        certificates=[CertificateFacts(each.listener, each.subject, each.not_after_ms) for each in answer.certificates],
        config_warnings=answer.config_warnings,
        traffic=[
            TrafficFacts(each.topic_name, each.bytes_in, each.bytes_out, each.messages_in) for each in answer.traffic
        ],
    )


def _log_dir(each: DescribedLogDir) -> LogDirFacts:
    return LogDirFacts(each.path, each.failure, each.total_bytes, each.usable_bytes, each.size_bytes)
