"""What a list of replicas must be, whoever asks: topics with manual assignments, new partitions, reassignments."""

from collections.abc import Sequence

from broker.metadata.image.cluster_image import ClusterImage
from protocol.errors import ErrorCode, KafkaError


def check_assignment(replicas: Sequence[int], brokers: ClusterImage) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT unless these are registered brokers, each once."""
    if not replicas:
        raise bad_assignment("a partition is assigned to no broker")
    for broker in replicas:
        if broker not in brokers:
            raise bad_assignment(f"broker {broker} is not registered")
    if len(set(replicas)) != len(replicas):
        raise bad_assignment("a partition is assigned to the same broker twice")


def check_same_factor(replicas: Sequence[int], factor: int) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT unless these are as many as the topic's other partitions have."""
    if len(replicas) != factor:
        raise bad_assignment(f"a partition is assigned to {len(replicas)} brokers, others have {factor}")


def bad_assignment(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)
