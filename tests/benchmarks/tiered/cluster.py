"""Topics with remote segments, in clusters of Ottla or Apache Kafka: settings, creation, and waits.

Ottla keeps segments on a real S3 server. Apache Kafka ships only the remote storage of its own tests, which copies
files into a directory: no network, no checksums, no manifest. No better one is available for the comparison.
"""

import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.benchmarks.wire import METADATA_VERSION, Wire
from tests.support.kafka.apache_kafka import JARS
from tests.support.kafka.kraft_nodes import Make
from tests.support.processes.s3_server import S3Server

LIST_OFFSETS_VERSION = 9
LATEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -4, -5
POLL_S = 0.05
PATIENCE_S = 120.0

KAFKAS_STORAGE = "org.apache.kafka:kafka-storage:4.2.0:jar:test"
_KAFKAS_JARS = JARS.parent / "tiered"

FAST = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.manager.task.retry.backoff.max.ms": "2000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "0",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
}
"""Short intervals of copies and local deletion, so that measurements need not wait for them."""


def s3_settings(server: S3Server) -> dict[str, str]:
    """Return the store settings of an Ottla node, with the default part size."""
    told = {key: value for key, value in server.node_settings().items() if not key.endswith(".part.size")}
    return {**FAST, "remote.log.storage.manager.class.name": "s3", **told}


def tier_settings(make: Make, server: S3Server, directory: Path) -> dict[str, str]:
    """Return the settings of a node; `directory` holds Apache Kafka's objects."""
    if make is Make.OTTLA:
        return s3_settings(server)
    return {
        **FAST,
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": f"{_KAFKAS_JARS}/*",
        "rsm.config.dir": str(directory),
    }


@cache
def kafkas_storage_missing() -> str | None:
    """Return the reason why Apache Kafka has no remote storage on this machine, or None once it is in `build/`."""
    if list(_KAFKAS_JARS.glob("*.jar")):
        return None
    command = ["mvn", "--batch-mode", "--quiet", "dependency:copy"]
    command += [f"-Dartifact={KAFKAS_STORAGE}", f"-DoutputDirectory={_KAFKAS_JARS}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"Maven could not get {KAFKAS_STORAGE}: {done.stdout[-300:]}" if done.returncode else None


# ---- topics


def tiered(segment_bytes: int, local_bytes: int | None = None) -> dict[str, str]:
    """Return the configuration of a tiered topic whose local retention is `local_bytes` per partition, or unlimited."""
    config = {"remote.storage.enable": "true", "segment.bytes": str(segment_bytes), "retention.ms": "-1"}
    return config if local_bytes is None else {**config, "local.retention.bytes": str(local_bytes)}


def alter_topic(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    """Set configurations of a topic."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its calls end when it is deleted
    admin.incremental_alter_configs([resource])[resource].result(30)


def offsets(bootstrap: str, topic: str, which: int) -> dict[int, int]:
    """Return by partition the offset `which` of its leader, without partitions that have no leader or an error."""
    found: dict[int, int] = {}
    for leader, partitions in _led(bootstrap.split(",")[0], topic).items():
        asked = [ListOffsetsPartition(number, -1, which) for number in partitions]
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, asked)])
        with Wire(leader) as wire:
            answer = wire.call(request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
        found |= {one.partition_index: one.offset for one in answer.topics[0].partitions if not one.error_code}
    return found


def _led(address: str, topic: str) -> Mapping[str, Sequence[int]]:
    """Return the partitions by the address of their leader."""
    with Wire(address) as wire:
        wanted = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = wire.call(wanted, MetadataResponse, METADATA_VERSION)
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    led: dict[str, list[int]] = {}
    for partition in answer.topics[0].partitions:
        if partition.leader_id in brokers:
            led.setdefault(brokers[partition.leader_id], []).append(partition.partition_index)
    return led


def await_shrunk(bootstrap: str, topic: str, partitions: int, local_records: int) -> None:
    """Wait until no partition has more than `local_records` in its leader's local log."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        starts, ends = offsets(bootstrap, topic, EARLIEST_LOCAL), offsets(bootstrap, topic, LATEST)
        left = [ends[number] - start for number, start in starts.items() if number in ends]
        if len(left) == partitions and max(left) <= local_records:
            return
        assert time.monotonic() < deadline, f"{topic} still has {left} records on disk"
        time.sleep(POLL_S)
