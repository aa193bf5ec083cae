"""Throttles of a reassignment (KIP-73), as kafka-reassign-partitions sets and clears them.

The replicas that give and those that get are listed with their topics, the rate with every broker that takes part.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from broker.cli.reassignment.json_files import Assignment
from broker.client import Client, raise_for
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
"""By topic, the values of both keys."""


def throttled_replicas(
    wanted: Assignment, current: Assignment, moving: Mapping[TopicPartition, list[int]]
) -> ThrottledReplicas:
    """What to list for a reassignment; `moving` are the replicas of partitions that are on their way already."""
    listed: defaultdict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for partition, replicas in sorted(wanted.items()):
        sources = moving.get(partition, current.get(partition, []))
        giving, getting = listed[partition.topic]
        giving += (f"{partition.partition}:{broker}" for broker in sources)
        getting += (f"{partition.partition}:{broker}" for broker in replicas if broker not in sources)
    return {
        topic: {key: ",".join(each) for key, each in ((LEADER_REPLICAS, giving), (FOLLOWER_REPLICAS, getting)) if each}
        for topic, (giving, getting) in listed.items()
    }


def set_throttle(client: Client, rate: int, listed: ThrottledReplicas, brokers: Iterable[int]) -> None:
    """Raises KafkaError."""
    for topic, values in listed.items():
        _change(client, _TOPIC, topic, [AlterableConfig(key, _SET, value) for key, value in values.items()])
    for broker in sorted(brokers):
        _change(client, _BROKER, str(broker), [AlterableConfig(key, _SET, str(rate)) for key in RATES])


def clear_throttles(client: Client, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Whether there were any or not. Raises KafkaError."""
    for broker in sorted(brokers):
        _change(client, _BROKER, str(broker), [AlterableConfig(key, _DELETE, None) for key in RATES])
    for topic in sorted(topics):
        _change(
            client, _TOPIC, topic, [AlterableConfig(key, _DELETE, None) for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
        )


def _change(client: Client, resource_type: int, name: str, changes: list[AlterableConfig]) -> None:
    """A broker's own settings are for that broker to change."""
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, changes)])
    connection = client.node(int(name)) if resource_type == _BROKER else client.any()
    for result in connection.call(request, IncrementalAlterConfigsResponse).responses:
        raise_for(result.error_code, f"the throttle of {name}", result.error_message)
