"""Snapshots cut by a node and loaded by its next life, on a real log in memory."""

import errno

import pytest

from broker.metadata.image.records import VersionedRecord
from broker.metadata.snapshot.codec import image_batches, snapshot_batches
from broker.metrics.snapshots import SnapshotMetrics, snapshot_families
from broker.quorum.identity import SnapshotId
from broker.quorum.snapshots.rules import SnapshotTrigger, TriggerSettings
from broker.runtime.controller.driver import UnusableSnapshot
from broker.runtime.quorum.snapshot_generator import RETRY_MS, SnapshotGenerator, SnapshotImpossible
from protocol.messages.metadata_records import TopicRecord
from protocol.records.compression import Codec
from protocol.records.quorum_control import ControlState
from storage.files import join, read_file, write_file
from tests.broker.metadata.images import uuid
from tests.broker.runtime.controller.test_driver import DriverNode, creating
from tests.broker.runtime.quorum.quorum_node import DIRECTORY
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.runtimes import make_runtime


class CuttingNode(DriverNode):
    """A node that cuts snapshots as `settings` say; by default only on demand."""

    def __init__(
        self,
        fs: MemoryFileSystem | None = None,
        *,
        life: int = 1,
        ratio: float = 0.5,
        min_bytes: int = 1_000_000,
        interval_ms: int = 0,
        codec: Codec = Codec.NONE,
    ) -> None:
        super().__init__(fs, life=life)
        node = self.node
        self.metrics = SnapshotMetrics(node.clock.monotonic_ms())
        settings = TriggerSettings(min_changed_ratio=ratio, min_bytes=min_bytes, interval_ms=interval_ms)
        self.generator = SnapshotGenerator(
            node.quorum,
            SnapshotTrigger(settings, node.clock.monotonic_ms()),
            self.metrics,
            make_runtime(node.loop, clock=node.clock, io=node.io),
            codec=codec,
        )
        self.driver.add_log_read_listener(self.generator)
        self.driver.add_publisher(self.generator)

    def cut(self) -> SnapshotId:
        future = self.generator.generate_now()
        self.node.settle()
        return future.result()

    @staticmethod
    def path(id: SnapshotId) -> str:
        return join(DIRECTORY, f"{id.end_offset:020d}-{id.epoch:010d}.checkpoint")

    def content(self, id: SnapshotId) -> bytes:
        return read_file(checked(self.node.fs), self.path(id))


def populated(*, ratio: float = 0.5, min_bytes: int = 1_000_000, interval_ms: int = 0) -> CuttingNode:
    node = CuttingNode(ratio=ratio, min_bytes=min_bytes, interval_ms=interval_ms)
    node.start()
    node.register_broker()
    for name in ("a", "b", "c"):
        node.run(creating(name))
    return node


class TestOnDemand:
    def test_snapshot_contains_the_image_and_the_voters(self) -> None:
        node = populated()
        id = node.cut()
        image = node.driver.image
        assert id == SnapshotId(image.offset + 1, image.epoch)
        control = node.node.quorum.control_before(id.end_offset)
        state = ControlState(control.kraft_version, control.voters.to_record())
        assert state.kraft_version == 1
        assert node.content(id) == b"".join(image_batches(image, state))

    def test_request_without_changes_returns_the_latest_id(self) -> None:
        node = populated()
        assert node.cut() == node.cut()
        assert node.metrics.generation_ms.count == 1

    def test_request_waits_for_the_first_image(self) -> None:
        node = CuttingNode()
        future = node.generator.generate_now()
        node.start()
        node.node.settle()
        assert future.result().end_offset == node.driver.image.offset + 1

    def test_appends_during_generation_are_not_in_the_snapshot(self) -> None:
        node = populated()
        node.node.io.is_held = True
        future = node.generator.generate_now()
        node.node.loop.run_soon()
        assert node.generator.is_running
        end_offset = node.driver.image.offset + 1
        pending = node.driver.submit(creating("later"))
        second = node.generator.generate_now()
        node.node.io.release()
        node.node.settle()
        node.node.settle()
        assert pending.done()
        assert future.result().end_offset == end_offset
        assert second.result().end_offset == node.driver.image.offset + 1 > end_offset

    def test_closed_generator_refuses_requests(self) -> None:
        node = populated()
        node.generator.close()
        with pytest.raises(SnapshotImpossible, match="stopping"):
            node.generator.generate_now().result()

    def test_close_abandons_a_snapshot_in_progress(self) -> None:
        node = populated()
        node.node.io.is_held = True
        future = node.generator.generate_now()
        node.node.loop.run_soon()
        node.node.io.run_all()
        node.node.loop.run_soon()
        node.generator.close()
        node.node.loop.run_soon()
        node.node.io.release()
        node.node.settle()
        with pytest.raises(SnapshotImpossible):
            future.result()
        names = checked(node.node.fs).list(DIRECTORY)
        assert not [name for name in names if name.endswith(".part")]


class TestByItself:
    def test_first_snapshot_is_generated_by_bytes_alone(self) -> None:
        node = populated(min_bytes=1)
        node.node.settle()
        assert node.metrics.generation_ms.count >= 1

    def test_changes_count_and_additions_do_not(self) -> None:
        node = populated(min_bytes=100, ratio=0.3)
        node.cut()
        before = node.metrics.generation_ms.count
        for name in ("d", "e", "f"):
            node.run(creating(name))
        assert node.metrics.generation_ms.count == before
        gone = [topic.id for topic in node.driver.image.topics if topic.name in "ab"]
        node.run(lambda controller, _now: controller.delete_topics(gone))
        node.node.settle()
        assert node.metrics.generation_ms.count == before + 1

    def test_interval_triggers_a_snapshot(self) -> None:
        node = populated(interval_ms=10_000)
        node.pass_time(8_000)
        node.run(creating("d"))
        assert node.metrics.generation_ms.count == 0
        node.pass_time(3_000)
        node.run(creating("e"))
        node.node.settle()
        assert node.metrics.generation_ms.count == 1

    def test_interval_triggers_a_snapshot_without_further_records(self) -> None:
        node = populated(interval_ms=10_000)
        node.pass_time(9_000)
        assert node.metrics.generation_ms.count == 0
        node.pass_time(1_100)
        assert node.metrics.generation_ms.count == 1
        node.pass_time(100_000)
        assert node.metrics.generation_ms.count == 1  # nothing new

    def test_full_disk_is_retried_without_further_records(self) -> None:
        node = populated(interval_ms=1_000)
        node.node.fs.fail("write", errno.ENOSPC, path_part=".checkpoint")
        node.pass_time(1_100)
        assert (node.metrics.failures, node.metrics.generation_ms.count) == (1, 0)
        node.pass_time(int(RETRY_MS))
        assert (node.metrics.failures, node.metrics.generation_ms.count) == (1, 1)

    def test_closed_generator_has_no_timer(self) -> None:
        node = populated(interval_ms=10_000)
        node.generator.close()
        node.pass_time(20_000)
        assert node.metrics.generation_ms.count == 0

    def test_full_disk_is_retried_after_the_delay(self) -> None:
        node = populated(interval_ms=1_000)
        node.node.fs.fail("write", errno.ENOSPC, path_part=".checkpoint")
        with pytest.raises(OSError, match="No space"):
            node.cut()
        assert node.metrics.failures == 1
        node.pass_time(2_000)
        node.run(creating("d"))
        assert node.metrics.generation_ms.count == 0
        node.pass_time(int(RETRY_MS))
        node.run(creating("e"))
        node.node.settle()
        assert node.metrics.generation_ms.count == 1
        assert node.node.failures == []


class TestLoading:
    def test_restart_loads_the_snapshot_and_then_the_log(self) -> None:
        first = populated()
        id = first.cut()
        first.run(creating("later"))
        second = CuttingNode(first.node.fs, life=2)
        second.start()
        second.node.settle()
        assert second.metrics.load_count == 1
        assert second.metrics.end_offset == id.end_offset
        assert second.driver.image.topics.names() == ["a", "b", "c", "later"]
        assert second.driver.is_active
        assert len(second.publisher.images) == 1

    def test_image_from_a_snapshot_equals_the_image_from_the_log(self) -> None:
        first = populated()
        first.cut()
        first.run(creating("later"))
        second = CuttingNode(first.node.fs, life=2)
        second.start()
        second.node.settle()
        assert list(second.driver.image.write()) == list(first.driver.image.write())

    def test_registration_offsets_equal_the_snapshots_end_offset(self) -> None:
        first = populated()
        id = first.cut()
        second = CuttingNode(first.node.fs, life=2)
        second.start()
        second.node.settle()
        offsets = second.driver._controller._state.registration_offsets
        assert offsets == {1: id.end_offset - 1}

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_snapshot_loads_with_any_compression(self, codec: Codec) -> None:
        first = CuttingNode(codec=codec)
        first.start()
        first.register_broker()
        first.run(creating("a"))
        first.cut()
        second = CuttingNode(first.node.fs, life=2)
        second.start()
        second.node.settle()
        assert second.metrics.load_count == 1
        assert second.driver.image.topics.names() == ["a"]

    def test_inconsistent_snapshot_stops_the_node(self) -> None:
        first = populated()
        id = first.cut()
        twice = [VersionedRecord(TopicRecord(name="a", topic_id=uuid(number)), 0) for number in (1, 2)]
        voters = first.node.quorum.control_before(id.end_offset).voters.to_record()
        batches = snapshot_batches(
            twice, epoch=id.epoch, last_timestamp_ms=5, batch_timestamp_ms=5, control=ControlState(1, voters)
        )
        write_file(checked(first.node.fs), first.path(id), b"".join(batches), sync=True)
        second = CuttingNode(first.node.fs, life=2)
        second.start()
        second.node.settle()
        assert [type(each) for each in second.node.failures] == [UnusableSnapshot]


def test_metric_families_have_kafkas_names() -> None:
    metrics = SnapshotMetrics(0.0)
    metrics.on_generated(100, 5_000, 12.0, 1_000.0)
    metrics.on_loaded(90, 4_000, 30.0)
    families = snapshot_families(
        metrics,
        high_watermark=lambda: 130,
        metadata_version=lambda: 29,
        controller_id=lambda: 1,
        monotonic_ms=lambda: 1_500.0,
    )
    values = {family.name: [sample.value for sample in family.read()][-1] for family in families}
    assert values["kafka_controller_kafkacontroller_gensnapshotlatencyms"] == 12
    assert values["kafka_controller_kafkacontroller_loadsnapshotlatencyms"] == 30
    assert values["kafka_controller_kafkacontroller_snapshotsizebytes"] == 5_000
    assert values["kafka_controller_kafkacontroller_snapshotlag"] == 30
    assert values["kafka_server_snapshotemitter_latestsnapshotgeneratedbytes"] == 5_000
    assert values["kafka_server_snapshotemitter_latestsnapshotgeneratedagems"] == 500
    assert values["kafka_server_metadataloader_handleloadsnapshotcount"] == 1
