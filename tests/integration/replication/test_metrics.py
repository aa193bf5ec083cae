"""Replica gauges of `/metrics` while brokers hang, stop and come back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients.partition_states import until, wait_for_state, wait_until_whole
from tests.support.clients.replicated_load import create_topic, produce
from tests.support.processes.broker_cluster import BrokerCluster
from tests.support.processes.suspension import resume, suspend

pytestmark = pytest.mark.integration

REPLICAS = "kafka_server_replicamanager_"
PARTITION = "kafka_cluster_partition_"
FETCHERS = "kafka_server_replicafetchermanager_"
OFFLINE_PARTITIONS = "kafka_controller_kafkacontroller_offlinepartitionscount"
IMBALANCE = "kafka_controller_kafkacontroller_preferredreplicaimbalancecount"
PARTITIONS = 3


def gauges(cluster: BrokerCluster, broker_id: int) -> tuple[int, ...]:
    """Return the broker's numbers of led, under-replicated, under-min-ISR and at-min-ISR partitions."""
    names = ("leadercount", "underreplicatedpartitions", "underminisrpartitioncount", "atminisrpartitioncount")
    return tuple(int(cluster[broker_id].metric(REPLICAS + name)) for name in names)


def partition_gauges(cluster: BrokerCluster, broker_id: int) -> tuple[int, ...]:
    """Return assigned and in-sync replicas of partition 0, and whether it is under-replicated and at min ISR."""
    names = ("replicascount", "insyncreplicascount", "underreplicated", "atminisr")
    return tuple(int(cluster[broker_id].metric(PARTITION + name, topic="t", partition="0")) for name in names)


def test_gauges_follow_the_isr(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "2000"}
    with BrokerCluster(tmp_path, settings=settings) as cluster:

        def wait_for_isr(*isr: int) -> None:
            wait_for_state(cluster.bootstrap, "t", lambda state: sorted(state.isr) == list(isr))

        def until_led_from_1(*wanted: int) -> None:
            until(equal(lambda: gauges(cluster, 1), wanted))

        create_topic(cluster.bootstrap, "t", 0, assignment=[[1, 2, 3]] * PARTITIONS, min_insync_replicas="2")
        until_led_from_1(PARTITIONS, 0, 0, 0)
        until(lambda: cluster[2].metric(f"{REPLICAS}partitioncount") == PARTITIONS)
        until(equal(lambda: gauges(cluster, 2), (0, 0, 0, 0)))
        assert partition_gauges(cluster, 1) == (3, 3, 0, 0)
        assert partition_gauges(cluster, 2) == (0, 0, 0, 0), "only the leader knows"

        suspend(cluster[3].pid)
        for index in range(PARTITIONS):
            produce(cluster.bootstrap, "t", [b"without 3"], partition=index)
        wait_for_isr(1, 2)
        until_led_from_1(PARTITIONS, PARTITIONS, 0, PARTITIONS)
        assert partition_gauges(cluster, 1) == (3, 2, 1, 1)
        assert cluster[1].metric(f"{REPLICAS}isrshrinks_total") >= PARTITIONS
        resume(cluster[3].pid)
        wait_until_whole(cluster.bootstrap, "t")
        until_led_from_1(PARTITIONS, 0, 0, 0)
        assert cluster[1].metric(f"{REPLICAS}isrexpands_total") >= PARTITIONS
        assert cluster[3].metric(f"{FETCHERS}failedpartitionscount", clientid="Replica") == 0
        until(lambda: cluster[3].metric(f"{FETCHERS}maxlag", clientid="Replica") == 0)

        cluster[2].terminate()
        cluster[3].terminate()
        wait_for_isr(1)
        until_led_from_1(PARTITIONS, PARTITIONS, PARTITIONS, 0)
        with pytest.raises(AssertionError, match="in-sync"):
            produce(cluster.bootstrap, "t", [b"too few"], retries=0)
        until(lambda: cluster.controller.metric(OFFLINE_PARTITIONS) == 0)
        cluster[1].kill()
        until(lambda: cluster.controller.metric(OFFLINE_PARTITIONS) == PARTITIONS)

        cluster.start(1, 2, 3)
        wait_until_whole(cluster.bootstrap, "t")
        until(lambda: cluster.controller.metric(OFFLINE_PARTITIONS) == 0)
        until(lambda: cluster.controller.metric(IMBALANCE) == PARTITIONS - gauges(cluster, 1)[0])
        until(equal(lambda: sums(cluster), [PARTITIONS, 0, 0, 0]))


def sums(cluster: BrokerCluster) -> list[int]:
    """Return the sums of the gauges over all brokers."""
    return [sum(each) for each in zip(*(gauges(cluster, broker_id) for broker_id in (1, 2, 3)), strict=True)]


def equal(found: Callable[[], object], wanted: object) -> Callable[[], bool]:
    return lambda: found() == wanted
