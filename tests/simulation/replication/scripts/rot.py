"""Scripted histories of rotten bytes in a segment: a replica may have them, but no other replica takes them over."""

from protocol.records.batch import crc_is_valid
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.scripts.scripted import ScriptedCluster

_NAME = ReplicaName("clean", 0)


def rotten_record_of_a_leader(seed: int) -> None:
    """Broker 3 lacks two records of broker 1, which has the first of them rotten. Broker 3 must neither take the record
    over nor skip it, and leaves the in-sync set. It catches up once broker 2, whose records are intact, leads.
    """
    cluster = ScriptedCluster(seed)
    try:
        cluster.begin()
        cluster.append(1)
        cluster.until(lambda: all(cluster.partition(node_id).log.high_watermark == 1 for node_id in (1, 2, 3)))
        cluster.cut((1, 3), (3, 1))
        cluster.wait_ms(50.0)
        cluster.append(1)
        cluster.append(1)
        cluster.until(lambda: cluster.partition(2).log.high_watermark == 3 and cluster.isr == {1, 2})
        cluster.node(1).disk.rot(_NAME, 1)
        cluster.cut()
        cluster.wait_ms(3_000.0)
        _check_intact(cluster, 2, 3)
        assert (cluster.partition(3).log.log_end_offset, cluster.isr) == (1, {1, 2})
        cluster.elect(2)
        cluster.until(lambda: cluster.partition(2).is_leader)
        cluster.append(2)
        cluster.end_alike()
        _check_intact(cluster, 2, 3)
    finally:
        cluster.simulation.close()


def rotten_record_of_the_last_replica(seed: int) -> None:
    """Broker 1, the last in-sync replica, stops cleanly. A flushed record rots and the index is lost, so the next start
    cuts the log. Broker 2, which has the record and is eligible, must lead.
    """
    cluster = ScriptedCluster(seed)
    try:
        cluster.begin()
        for _ in range(3):
            cluster.append(1)
        cluster.until(lambda: all(cluster.partition(node_id).log.high_watermark == 3 for node_id in (1, 2, 3)))
        for node_id in (3, 2):
            cluster.kill(node_id)
            cluster.until(lambda: cluster.isr == set(range(1, node_id)))  # noqa: B023  called before the next round
        cluster.stop(1)
        disk = cluster.node(1).disk
        disk.rot(_NAME, 1)
        disk.lose_indexes(_NAME)
        cluster.start(1)
        cluster.until(lambda: cluster.is_active(1))
        assert cluster.partition(1).log.log_end_offset == 1
        cluster.start(2, 3)
        cluster.until(lambda: cluster.is_led(1, 2, 3))
        cluster.end_alike()
        _check_intact(cluster, 1, 2, 3)
    finally:
        cluster.simulation.close()


def _check_intact(cluster: ScriptedCluster, *node_ids: int) -> None:
    """Check the CRC of every batch of these brokers' logs."""
    for node_id in node_ids:
        for offset, batch in cluster.node(node_id).disk.batches(_NAME):
            if not crc_is_valid(batch, 0, len(batch)):
                cluster.simulation.checker.fail("RotDoesNotSpread", f"node {node_id} has a rotten batch at {offset}")
