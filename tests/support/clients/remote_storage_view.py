"""External view of tiered storage: metadata topic, objects, log offsets, disks of brokers.

A harness that runs brokers and a store derives from `RemoteStorageView` and names their locations.
"""

import contextlib
import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.cli.tiering.cluster import Cluster, PartitionLogBounds
from broker.cli.tiering.metadata_topic import RemoteMetadataTopic
from broker.client import Client, ClientConfig
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.support.processes.changing_directory import files_below, total_bytes
from tests.support.processes.ottla_node import run_ottla

KEY_PREFIX = "tier/"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Object keys by kind."""

    segments: frozenset[str]
    others: frozenset[str]


class RemoteStorageView(ABC):
    """View of a cluster whose objects have KEY_PREFIX."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Bootstrap servers of the running brokers."""

    @property
    @abstractmethod
    def objects(self) -> Path:
        """Directory of the objects, as files named by their keys."""

    @property
    @abstractmethod
    def tool_settings(self) -> Mapping[str, str]:
        """Store settings for tools, without the proxy."""

    @abstractmethod
    def data_directory(self, broker_id: int) -> Path:
        """Log directory of a broker."""

    # ---- topics

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        with Client(ClientConfig.parse(self.bootstrap)) as client:
            yield client

    def bounds(self, topic: str) -> dict[int, PartitionLogBounds]:
        """Return log start and end offsets by ListOffsets, from the leaders."""
        with self.client() as client:
            return dict(Cluster(client).bounds(topic))

    # ---- remote segments

    def segments(self, topic: str | None = None) -> list[RemoteSegment]:
        """Return the segments in the metadata topic, of one topic or of all, in any state."""
        with self.client() as client:
            metadata = RemoteMetadataTopic(client, lambda: time.time_ns() // 1_000_000)
            known = list(metadata.catch_up_all()) if metadata.exists() else []
        return [
            segment for each in known if topic in (None, each.partition.topic) for segment in each.segments.segments()
        ]

    def finished(self, topic: str, partition: int = 0) -> list[RemoteSegment]:
        """Return the finished segments by start offset."""
        found = [
            each
            for each in self.segments(topic)
            if each.state is SegmentState.COPY_FINISHED and each.id.partition.partition == partition
        ]
        return sorted(found, key=lambda each: each.start_offset)

    def bucket(self, topic: str | None = None) -> Bucket:
        """Return the bucket as read from the store's disk, without the proxy."""
        keys = ObjectKeys(KEY_PREFIX)
        found = (path.relative_to(self.objects).as_posix() for path in files_below(self.objects))
        mine = [key for key in found if key.startswith(KEY_PREFIX + ("" if topic is None else f"{topic}-"))]
        segments = frozenset(key for key in mine if keys.parse(key) is not None)
        return Bucket(segments, frozenset(mine) - segments)

    def expected_objects(self, topic: str | None = None) -> frozenset[str]:
        """Return the objects that must exist, three for each finished segment."""
        keys = ObjectKeys(KEY_PREFIX)
        finished = (each for each in self.segments(topic) if each.state is SegmentState.COPY_FINISHED)
        return frozenset(keys.key(each, suffix) for each in finished for suffix in ObjectSuffix)

    def remote(self, command: str, *arguments: str, check: bool = True) -> str:
        """Run `ottla remote` without the proxy and return its output."""
        done = self.run_remote(command, *arguments, check=check)
        return done.stdout + done.stderr

    def run_remote(self, command: str, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        overrides = [part for key, value in self.tool_settings.items() for part in ("--override", f"{key}={value}")]
        given = ("--bootstrap-server", self.bootstrap, *overrides, *arguments)
        return run_ottla("remote", command, *given, check=check, timeout_s=1800)

    def remote_json(self, command: str, *arguments: str) -> object:
        return json.loads(self.remote(command, "--json", *arguments))

    # ---- disks

    def partition_directory(self, broker_id: int, topic: str, partition: int = 0) -> Path:
        return self.data_directory(broker_id) / f"{topic}-{partition}"

    def local_bytes(self, broker_id: int, topic: str, partition: int = 0) -> int:
        """Return the size of a replica's segments; 0 if it is being deleted."""
        return total_bytes(self.partition_directory(broker_id, topic, partition).glob("*.log"))

    def leader_epochs(self, broker_id: int, topic: str, partition: int = 0) -> list[tuple[int, int]]:
        """Return epochs and start offsets from the replica's checkpoint."""
        text = (self.partition_directory(broker_id, topic, partition) / "leader-epoch-checkpoint").read_text()
        return [(int(epoch), int(offset)) for epoch, offset in (line.split() for line in text.splitlines()[2:])]


def clipped(epochs: list[tuple[int, int]], first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Return the epochs of the offsets from `first` to `last`, the first one starting at `first`."""
    ends = [start for _, start in epochs[1:]] + [last + 1]
    return tuple(
        (epoch, max(start, first))
        for (epoch, start), end in zip(epochs, ends, strict=True)
        if max(start, first) < min(end, last + 1)
    )
