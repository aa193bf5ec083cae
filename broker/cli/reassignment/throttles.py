"""Throttles of a reassignment (KIP-73), as kafka-reassign-partitions sets and clears them.

Topic configs list the source and target replicas, broker configs the rate of every broker involved.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from broker.cli.reassignment.json_files import Assignment
from broker.cli.shared.target import AdminClient
from broker.client import raise_for
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from storage.directories.checkpoints import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1

ThrottledReplicas = dict[str, dict[str, str]]
"""Values of both config keys, by topic."""


def throttled_replicas(
    wanted: Assignment, current: Assignment, moving: Mapping[TopicPartition, list[int]]
) -> ThrottledReplicas:
    """Return the throttled replicas of a reassignment; `moving` are the replicas of ongoing reassignments."""
    listed: defaultdict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for partition, replicas in sorted(wanted.items()):
        sources = moving.get(partition, current.get(partition, []))
        leading, following = listed[partition.topic]
        leading += (f"{partition.partition}:{broker}" for broker in sources)
        following += (f"{partition.partition}:{broker}" for broker in replicas if broker not in sources)
    return {
        topic: {
            key: ",".join(each) for key, each in ((LEADER_REPLICAS, leading), (FOLLOWER_REPLICAS, following)) if each
        }
        for topic, (leading, following) in listed.items()
    }


def set_throttle(admin: AdminClient, rate: int, listed: ThrottledReplicas, brokers: Iterable[int]) -> None:
    """Set the throttles. Raises KafkaError."""
    for topic, values in listed.items():
        _change(admin, _TOPIC, topic, [AlterableConfig(key, _SET, value) for key, value in values.items()])
    for broker in sorted(brokers):
        _change(admin, _BROKER, str(broker), [AlterableConfig(key, _SET, str(rate)) for key in RATES])


def clear_throttles(admin: AdminClient, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Clear throttles, if any. Raises KafkaError."""
    for broker in sorted(brokers):
        _change(admin, _BROKER, str(broker), [AlterableConfig(key, _DELETE, None) for key in RATES])
    for topic in sorted(topics):
        _change(
            admin, _TOPIC, topic, [AlterableConfig(key, _DELETE, None) for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
        )


def _change(admin: AdminClient, resource_type: int, name: str, changes: list[AlterableConfig]) -> None:
    """Change dynamic configs; configs of a single broker are changed on that broker, or by the controller."""
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, changes)])
    if resource_type == _BROKER and not admin.is_controller:
        response = admin.call_node(int(name), request, IncrementalAlterConfigsResponse)
    else:
        response = admin.call(request, IncrementalAlterConfigsResponse)
    for result in response.responses:
        raise_for(result.error_code, f"the throttle of {name}", result.error_message)
