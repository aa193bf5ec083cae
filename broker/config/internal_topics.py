"""How many replicas internal topics get where the cluster is too small for their default."""


def internal_replication_factor(configured: int, *, voter_count: int, broker_count: int) -> int:
    """The replication factor to create an internal topic with.

    A quorum of one voter is somebody's single machine: there the default of 3 is brought down to the brokers there
    are, so that offsets and transactions work at once. With more voters the operator's number stands, as in Kafka.
    """
    if voter_count > 1:
        return configured
    return max(1, min(configured, broker_count))


def internal_min_isr(configured: int, replication_factor: int) -> int:
    """``min.insync.replicas`` to go with a replication factor that may have been brought down."""
    return min(configured, replication_factor)
