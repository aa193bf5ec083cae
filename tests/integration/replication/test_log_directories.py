"""Log directories that fail, share the partitions of a broker, or hold logs that the metadata no longer assign."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.clients.partition_states import (
    PartitionState,
    partition_states,
    until,
    wait_for_state,
    wait_until_whole,
)
from tests.support.clients.replicated_load import admin_of, consume_all, create_topic, produce
from tests.support.processes.broker_cluster import BrokerCluster
from tests.support.processes.small_disk import SmallDisk, unavailable_reason

pytestmark = pytest.mark.integration

OFFLINE_DIRECTORIES = "kafka_log_logmanager_offlinelogdirectorycount"
OFFLINE_REPLICAS = "kafka_server_replicamanager_offlinereplicacount"
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
IMAGE_OF_T_0 = "/image/topics/byName/t/0"
VALUE = bytes(100_000)


def partitions_in(directory: Path, topic: str) -> list[int]:
    """Return the indexes of the topic's partitions that have a log in the directory."""
    return sorted(
        int(path.name.rpartition("-")[2]) for path in directory.glob(f"{topic}-*") if path.name.count(".") == 0
    )


def wait_for_partitions(topic: str, wanted: Mapping[Path, int]) -> None:
    """Wait until each directory holds so many logs. Topic creation is acknowledged before the logs exist."""
    until(lambda: {directory: len(partitions_in(directory, topic)) for directory in wanted} == wanted)


def states(admin: AdminClient, topic: str, indexes: Sequence[int]) -> list[PartitionState]:
    found = partition_states(admin, topic)
    return [found[index]._replace(isr=sorted(found[index].isr)) for index in indexes]


def directory_id(directory: Path) -> str:
    lines = (directory / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("directory.id=")).partition("=")[2].replace("\\", "")


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
def test_failed_directory_of_one_broker_keeps_all_partitions_available(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", "12m") as disk:
        large, small = tmp_path / "large", disk.path / "data"
        own = {1: {"log.dirs": f"{large},{small}"}}
        with BrokerCluster(tmp_path, each=own, prefixes={1: disk.enter}) as cluster:
            create_topic(cluster.bootstrap, "led", 0, assignment=[[1, 2, 3]] * 4, min_insync_replicas="2")
            create_topic(cluster.bootstrap, "followed", 0, assignment=[[2, 3, 1]] * 4, min_insync_replicas="2")
            seen_small = disk.seen_from_here / "data"
            for topic in ("led", "followed"):
                wait_for_partitions(topic, {large: 2, seen_small: 2})
            lost = {topic: partitions_in(seen_small, topic) for topic in ("led", "followed")}
            kept = [index for index in range(4) if index not in lost["led"]]
            for index in range(4):
                produce(cluster.bootstrap, "followed", [VALUE] * 40, partition=index)
                produce(cluster.bootstrap, "led", [VALUE] * 40, partition=index)
            until(lambda: cluster[1].metric(OFFLINE_DIRECTORIES) == 1)
            until(lambda: cluster[1].metric(OFFLINE_REPLICAS) == 4)
            for topic in lost:
                for index in range(4):
                    assert consume_all(cluster.bootstrap, topic, index) == [VALUE] * 40
            admin = admin_of(cluster.bootstrap)
            until(lambda: all(each.leader == 2 and each.isr == [2, 3] for each in states(admin, "led", lost["led"])))
            until(lambda: all(each.leader == 1 and len(each.isr) == 3 for each in states(admin, "led", kept)))
            until(lambda: all(each.isr == [2, 3] for each in states(admin, "followed", lost["followed"])))
            others = [index for index in range(4) if index not in lost["followed"]]
            until(lambda: all(1 in each.isr for each in states(admin, "followed", others)))
            assert cluster[1].is_running


def test_logs_are_spread_over_the_log_directories(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in ("a", "b", "c")]
    with BrokerCluster(tmp_path, brokers=1, each={1: {"log.dirs": ",".join(map(str, dirs))}}) as cluster:
        create_topic(cluster.bootstrap, "t", 9, 1)
        wait_for_partitions("t", dict.fromkeys(dirs, 3))
        output = cluster.ottla("log-dirs", "--describe", "--topic-list", "t")
        assert all(str(directory) in output for directory in dirs)


def test_duplicate_log_is_kept_in_the_directory_named_by_the_metadata(tmp_path: Path) -> None:
    """Simulate a disk that failed, lost its replica to the other directory, and came back."""
    dirs = [tmp_path / name for name in ("a", "b")]
    with BrokerCluster(tmp_path, brokers=1, each={1: {"log.dirs": ",".join(map(str, dirs))}}) as cluster:
        create_topic(cluster.bootstrap, "t", 2, 1)
        for index in range(2):
            produce(cluster.bootstrap, "t", [b"kept"], partition=index)
        wait_for_partitions("t", dict.fromkeys(dirs, 1))
        ((home, other),) = [(home, other) for home, other in (dirs, dirs[::-1]) if (home / "t-0").exists()]
        identity = re.escape(directory_id(home))
        until(lambda: re.search(f"directories=.{identity}", cluster.ottla("metadata-shell", "cat", IMAGE_OF_T_0)))
        cluster[1].terminate()
        shutil.copytree(home / "t-0", other / "t-0")
        cluster.start(1)
        assert "set aside an outdated log" in cluster[1].log_text
        assert consume_all(cluster.bootstrap, "t", 0) == consume_all(cluster.bootstrap, "t", 1) == [b"kept"]
        assert partitions_in(home, "t") == [0]
        assert partitions_in(other, "t") == [1]
        assert len(list(other.glob("t-0.*-stray"))) == 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    quick = {"log.segment.delete.delay.ms": "100", "log.initial.task.delay.ms": "100"}
    with BrokerCluster(tmp_path, brokers=3, settings=quick) as running:
        yield running


def test_logs_unassigned_while_the_broker_was_down_are_set_aside(cluster: BrokerCluster, tmp_path: Path) -> None:
    """Delete a topic, re-create another under its name, and move a replica away while the broker is down."""
    for topic in ("deleted", "renewed", "moved"):
        create_topic(cluster.bootstrap, topic, 0, assignment=[[1, 2]])
        produce(cluster.bootstrap, topic, [b"old", b"older"])
    cluster[1].kill()
    wait_for_state(cluster.bootstrap, "moved", lambda state: state.isr == [2])
    for topic in ("deleted", "renewed"):
        cluster.ottla("topics", "--delete", "--topic", topic)
    create_topic(cluster.bootstrap, "renewed", 0, assignment=[[2, 1]])
    wait_for_state(cluster[2].bootstrap, "renewed", lambda state: state.replicas == [2, 1])  # not the deleted topic
    produce(cluster.bootstrap, "renewed", [b"new"])
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2, 3]}]}')
    cluster.ottla("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    wait_for_state(cluster.bootstrap, "moved", lambda state: state.replicas == [2, 3] and state.is_whole)
    until(lambda: cluster[2].metric(UNDER_REPLICATED) == 1)  # only the re-created topic
    cluster.start(1)
    wait_until_whole(cluster.bootstrap, "renewed", "moved")
    until(lambda: cluster[2].metric(UNDER_REPLICATED) == 0)
    until(lambda: partitions_in(cluster[1].data, "moved") == partitions_in(cluster[1].data, "deleted") == [])
    assert consume_all(cluster.bootstrap, "renewed", 0) == [b"new"]
    assert consume_all(cluster.bootstrap, "moved", 0) == [b"old", b"older"]
    aside = sorted(path.name.partition(".")[0] for path in cluster[1].data.glob("*-stray"))
    assert aside == ["deleted-0", "moved-0", "renewed-0"], "stray logs are kept for the operator, as in Kafka"
