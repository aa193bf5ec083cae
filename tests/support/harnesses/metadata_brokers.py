"""Brokers that keep remote log metadata in one `MetadataTopic`."""

import asyncio
from collections.abc import Awaitable, Mapping

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.remote_metadata.settings import parse_remote_metadata_settings
from broker.runtime.remote_metadata.snapshots import MetadataSnapshots
from broker.runtime.remote_metadata.topic import TopicRemoteMetadata
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.metadata_topic import LedLogs, MetadataTopic, TopicClient

DIRECTORY = "data/remote-log-metadata"


class CountedCreation:
    """Implements AutoTopicCreation and counts calls."""

    def __init__(self) -> None:
        self.wanted = 0

    def ensure(self) -> None:
        self.wanted += 1

    def close(self) -> None:
        """Do nothing: no creation is running."""


class MetadataBroker:
    """One broker. `restart` replaces `manager`; the disk stays unless it is wiped."""

    def __init__(self, topic: MetadataTopic, broker_id: int, settings: Mapping[str, str] | None = None) -> None:
        self._topic = topic
        self.broker_id = broker_id
        self._settings = parse_remote_metadata_settings(
            {"remote.log.metadata.topic.num.partitions": str(len(topic.partitions)), **(settings or {})}
        )
        self.fs = MemoryFileSystem()
        self.creation = CountedCreation()
        self.manager = self._make()

    def _make(self) -> TopicRemoteMetadata:
        loop = self._topic.loop
        self.deadlines = Deadlines(loop)
        self._client = TopicClient(self._topic)
        return TopicRemoteMetadata(
            self._client,
            self.creation,
            MetadataSnapshots(self.fs, DIRECTORY, InlineIo(loop)),
            LedLogs(self._topic, self.broker_id),
            loop,
            self.deadlines,
            self._settings,
        )

    def see(self) -> None:
        """Apply the present metadata."""
        self.manager.on_metadata(MetadataDelta(EMPTY_IMAGE), self._topic.image)

    def crash(self) -> None:
        """Stop; only data already on the disk stays."""
        self._client.close()
        self.deadlines.close()

    def restart(self, *, wiped: bool = False) -> None:
        if wiped:
            self.fs = MemoryFileSystem()
        self.manager = self._make()
        self.see()


def future_of(begun: Awaitable[None]) -> "asyncio.Future[None]":
    """Return the manager's future, for tests without an asyncio loop."""
    assert isinstance(begun, asyncio.Future)
    return begun
