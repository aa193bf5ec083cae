"""Checks of replica lists in topic creation, partition creation and reassignment."""

from collections.abc import Sequence

from broker.metadata.image.cluster_image import ClusterImage
from protocol.errors import ErrorCode, KafkaError


def check_assignment(replicas: Sequence[int], brokers: ClusterImage) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT unless the replicas are distinct registered brokers."""
    if not replicas:
        raise bad_assignment("a partition has an empty replica list")
    for broker in replicas:
        if broker not in brokers:
            raise bad_assignment(f"broker {broker} is not registered")
    if len(set(replicas)) != len(replicas):
        raise bad_assignment("a partition names the same broker twice in its replica list")


def check_same_factor(replicas: Sequence[int], factor: int) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT unless the list has as many replicas as the other partitions."""
    if len(replicas) != factor:
        raise bad_assignment(f"a partition has {len(replicas)} replicas, the other partitions have {factor}")


def bad_assignment(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)
