"""Replication of internal topics where the cluster has fewer brokers than their default needs."""


def internal_replication_factor(configured: int, *, voter_count: int, broker_count: int) -> int:
    """Return the replication factor for creating an internal topic.

    A quorum of one voter is usually a development machine: the default of 3 is limited to the number of brokers, so
    that offsets and transactions work at once. With more voters the configured number applies, as in Kafka.
    """
    if voter_count > 1:
        return configured
    return max(1, min(configured, broker_count))


def internal_min_isr(configured: int, replication_factor: int) -> int:
    """Return ``min.insync.replicas`` for a replication factor that may have been limited."""
    return min(configured, replication_factor)
