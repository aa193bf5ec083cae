"""Remote log metadata managers in this process over real sockets, with the metadata topic on a node."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from immutables import Map

from broker.client import Client, ClientConfig
from broker.clock import SystemClock
from broker.metadata.image.cluster_image import BrokerRegistration, ClusterImage, RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicImage, TopicsImage
from broker.net.peer import TcpConnect
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.loop.io_thread import IoThread
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.remote_metadata.client import NetworkMetadataClient
from broker.runtime.remote_metadata.settings import TOPIC, parse_remote_metadata_settings
from broker.runtime.remote_metadata.snapshots import MetadataSnapshots
from broker.runtime.remote_metadata.topic import TopicRemoteMetadata
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.primitives import ZERO_UUID
from storage.files import OsFileSystem
from storage.tiered.segment_metadata import SegmentState
from tests.broker.runtime.remote_metadata.test_topic import PARTITION, segment, update
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.metadata_topic import LedLogs, MetadataTopic
from tests.support.harnesses.metadata_brokers import CountedCreation
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

COUNT = 2
TIMEOUT_S = 60.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    with OttlaNode(tmp_path) as running:
        ottla("topics", running, "--create", "--topic", TOPIC, "--partitions", str(COUNT))
        yield running


def ottla(command: str, node: OttlaNode, *arguments: str) -> None:
    line = [sys.executable, "-m", "broker", command, "--bootstrap-server", node.bootstrap, *arguments]
    subprocess.run(line, check=True, capture_output=True)


def prune_everything(node: OttlaNode) -> None:
    """Move the log starts of the metadata topic to the log ends while the node is down.

    DeleteRecords refuses the topic, and its retention is not applied.
    """
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "watcher"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=TIMEOUT_S)[1] for number in range(COUNT)
    ]
    consumer.close()
    node.terminate()
    lines = "".join(f"{TOPIC} {number} {end}\n" for number, end in enumerate(ends))
    (node.data / "log-start-offset-checkpoint").write_text(f"0\n{COUNT}\n{lines}")
    node.start()


def image_of(node: OttlaNode) -> MetadataImage:
    """Return a metadata image that holds the topic, as a broker would have it."""
    with Client(ClientConfig.parse(node.bootstrap)) as client:
        (found,) = client.metadata([TOPIC]).topics
    registrations = {
        one.partition_index: PartitionRegistration(
            (1,), (1,), BrokerId(one.leader_id), LeaderEpoch(one.leader_epoch), 0
        )
        for one in found.partitions
    }
    topic = TopicImage(TOPIC, found.topic_id, Map(registrations))
    broker = BrokerRegistration(
        BrokerId(1),
        BrokerEpoch(1),
        ZERO_UUID,
        {"INTERNAL": RegisteredEndpoint("127.0.0.1", node.port)},
        {},
        None,
        False,
        False,
        (),
    )
    return EMPTY_IMAGE._replace(
        topics=TopicsImage(Map({TOPIC: topic}), Map({topic.id: topic}), COUNT), brokers=ClusterImage(Map({1: broker}))
    )


class Manager:
    """One broker's remote log metadata manager on the running event loop."""

    def __init__(self, node: OttlaNode, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        settings = parse_remote_metadata_settings({"remote.log.metadata.topic.num.partitions": str(COUNT)})
        self._metadata = MetadataCache()
        self._io = IoThread(loop)
        client = NetworkMetadataClient(
            7, self._metadata, settings, SystemClock(), loop, TcpConnect(loop), listener="INTERNAL"
        )
        self.metadata = TopicRemoteMetadata(
            client,
            CountedCreation(),
            MetadataSnapshots(OsFileSystem(), str(directory), self._io),
            LedLogs(MetadataTopic(ManualLoop(), COUNT, [99]), 7),
            loop,
            Deadlines(loop),
            settings,
        )
        image = image_of(node)
        self._metadata.on_metadata(MetadataDelta(EMPTY_IMAGE), image)
        self.metadata.on_metadata(MetadataDelta(EMPTY_IMAGE), image)

    async def close(self) -> None:
        await self.metadata.close()
        await self._io.stop()


def test_managers_share_metadata_through_the_topic(node: OttlaNode, tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Manager(node, tmp_path / "here"), Manager(node, tmp_path / "there")
        for manager in (here.metadata, there.metadata):
            manager.assign([PARTITION], [])
            await asyncio.wait_for(manager.wait_until_ready(PARTITION), TIMEOUT_S)
        await asyncio.wait_for(here.metadata.add(segment(1)), TIMEOUT_S)
        await asyncio.wait_for(here.metadata.update(update(segment(1), SegmentState.COPY_FINISHED)), TIMEOUT_S)
        await asyncio.wait_for(there.metadata.add(segment(2)), TIMEOUT_S)
        known = there.metadata.segments(PARTITION)
        assert [one.state for one in known] == [SegmentState.COPY_FINISHED, SegmentState.COPY_STARTED]
        await here.close()
        restarted = Manager(node, tmp_path / "here")
        restarted.metadata.assign([PARTITION], [])
        await asyncio.wait_for(restarted.metadata.wait_until_ready(PARTITION), TIMEOUT_S)
        assert restarted.metadata.segments(PARTITION) == known
        await restarted.close()
        await there.close()

    asyncio.run(run())


def test_reader_behind_the_log_start_rereads_from_the_log_start(node: OttlaNode, tmp_path: Path) -> None:
    async def run() -> None:
        first = Manager(node, tmp_path / "first")
        first.metadata.assign([PARTITION], [])
        await asyncio.wait_for(first.metadata.wait_until_ready(PARTITION), TIMEOUT_S)
        await asyncio.wait_for(first.metadata.add(segment(1)), TIMEOUT_S)
        await asyncio.wait_for(first.metadata.add(segment(2)), TIMEOUT_S)
        await first.close()
        await asyncio.to_thread(prune_everything, node)
        restarted = Manager(node, tmp_path / "first")
        restarted.metadata.assign([PARTITION], [])
        await asyncio.wait_for(restarted.metadata.wait_until_ready(PARTITION), TIMEOUT_S)
        second = Manager(node, tmp_path / "second")
        second.metadata.assign([PARTITION], [])
        await asyncio.wait_for(second.metadata.wait_until_ready(PARTITION), TIMEOUT_S)
        assert second.metadata.segments(PARTITION) == []
        await asyncio.wait_for(second.metadata.add(segment(3)), TIMEOUT_S)
        assert second.metadata.segments(PARTITION) == [segment(3)]
        await asyncio.wait_for(restarted.metadata.add(segment(4)), TIMEOUT_S)
        assert len(restarted.metadata.segments(PARTITION)) == 4
        await restarted.close()
        await second.close()

    asyncio.run(run())
