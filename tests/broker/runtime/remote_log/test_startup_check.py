"""The start-up check of brokers without remote storage (`broker.runtime.remote_log.startup_check`)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from broker.config.errors import ConfigError
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.runtime.remote_log.startup_check import check_nothing_is_cut_off, check_nothing_is_remote
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import ConfigRecord, TopicRecord
from protocol.primitives import ONE_UUID
from storage.config import LogConfig
from storage.directories.checkpoints import LOG_START_OFFSET_FILE, TopicPartition, write_offsets
from storage.files import join, write_file
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_snapshot import (
    DIRECTORY,
    SnapshotPosition,
    pack_snapshot,
    snapshot_path,
    write_snapshot,
)
from storage.tiered.segment_metadata import TopicIdPartition
from tests.broker.metadata.images import image_of, uuid
from tests.storage.tiered.sample_segments import segment
from tests.support.fakes.memory_files import MemoryFileSystem


def record(topic: str, value: str, kind: ResourceType = ResourceType.TOPIC) -> ConfigRecord:
    return ConfigRecord(kind, topic, "remote.storage.enable", value)


def test_broker_without_tiered_topics_starts() -> None:
    check_nothing_is_remote(EMPTY_IMAGE)
    check_nothing_is_remote(
        image_of(
            [
                record("off", "false"),
                record("__consumer_offsets", "true"),
                record("no-topic", "true", ResourceType.GROUP),
                ConfigRecord(ResourceType.TOPIC, "other", "retention.ms", "1"),
            ]
        )
    )


def test_tiered_topic_prevents_the_start_with_advice() -> None:
    with pytest.raises(ConfigError, match=r"^remote\.log\.storage\.system\.enable must stay on .* as a: first"):
        check_nothing_is_remote(image_of([record("a", "true")]))
    with pytest.raises(ConfigError, match="as a and 2 more: "):
        check_nothing_is_remote(image_of([record(name, "True") for name in "cba"]))


LOCAL = LogConfig()
TOPIC = "t"


class Disk:
    """A disk with one log that begins at 0 by its checkpoint and at 20 by its files."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.image = image_of([TopicRecord(TOPIC, uuid(7))])
        self.has(20, checkpoint=0)
        self.knows_of(TopicIdPartition(uuid(7), TOPIC, 0))

    def has(self, first: int, *, checkpoint: int) -> None:
        self.fs = MemoryFileSystem()
        for base in (first, first + 10):
            self.fs.make_directory(f"d/{TOPIC}-0")
            write_file(self.fs, f"d/{TOPIC}-0/{base:020}.log", b"", sync=False)
        write_offsets(self.fs, join("d", LOG_START_OFFSET_FILE), {TopicPartition(TOPIC, 0): checkpoint})

    def knows_of(self, partition: TopicIdPartition) -> None:
        metadata = MaterializedMetadata()
        metadata.apply(segment(100, partition=partition))
        directory = join("d", DIRECTORY)
        self.fs.make_directory(directory)
        body = pack_snapshot(SnapshotPosition(ONE_UUID, 3, 1, LeaderEpoch(0)), metadata)
        write_snapshot(self.fs, snapshot_path(directory, 3), body)

    def check(self, configs: Mapping[str, LogConfig] | None = None) -> None:
        check_nothing_is_cut_off(self.fs, ["d"], self.image, lambda topic: (configs or {}).get(topic, LOCAL))


def test_topic_tiered_by_a_removed_default_prevents_the_start() -> None:
    with pytest.raises(ConfigError, match=r"^ottla\.log\.remote\.storage\.enable must stay on .* such as t: first set"):
        Disk().check()


@pytest.mark.parametrize(
    "config", [replace(LOCAL, remote_storage_enable=True), replace(LOCAL, remote_log_delete_on_disable=True)]
)
def test_topic_with_an_explicit_setting_allows_the_start(config: LogConfig) -> None:
    Disk().check({TOPIC: config})


def test_local_log_with_an_old_checkpoint_allows_the_start() -> None:
    disk = Disk()
    disk.has(20, checkpoint=0)
    disk.check()
    disk.knows_of(TopicIdPartition(uuid(8), TOPIC, 0))  # an earlier topic of the same name
    disk.check()


def test_complete_local_log_allows_the_start() -> None:
    disk = Disk()
    disk.has(20, checkpoint=20)
    disk.knows_of(TopicIdPartition(uuid(7), TOPIC, 0))
    disk.check()
