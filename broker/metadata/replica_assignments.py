"""What a list of replicas must be, whoever asks: topics with manual assignments, new partitions, reassignments."""

from collections.abc import Sequence

from broker.metadata.cluster_image import ClusterImage
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


def check_replication_factor(count: int, limit: int | None) -> None:
    """Raises KafkaError INVALID_REPLICATION_FACTOR for more replicas than this version can keep (None: no limit)."""
    if limit is not None and count > limit:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication has not landed in this version yet: a partition has at most {limit} replica"
            f"{'s' if limit > 1 else ''}, {count} would be needed",
        )


def bad_assignment(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)
