"""CreateMetadataSnapshot (key 10000, not in Kafka), version 0: cut a snapshot of this node's metadata now.

Kafka's nodes cut snapshots by their own rules alone. Every node cuts its own snapshots, so the request concerns the
node that receives it and is never forwarded. The message has a schema, a version and a route like any other, but a key
in a range that Kafka will not reach. ApiVersions leaves it out, so that clients print no unknown key. The alternatives
are worse: a config key that acts on a write would act again at every restart, HTTP needs another address and other
permissions, and a signal reaches local nodes only.
"""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from broker.api.serving.context import RequestContext
from broker.quorum.identity import SnapshotId
from broker.runtime.quorum.snapshot_generator import SnapshotImpossible
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_metadata_snapshot import CreateMetadataSnapshotRequest, CreateMetadataSnapshotResponse

MAX_WAIT_MS = 600_000


class SnapshotCutter(Protocol):
    """Cuts snapshots of this node's metadata."""

    def generate_now(self) -> Awaitable[SnapshotId]:
        """Return the snapshot of all metadata committed and applied now, once it is in place.

        Return the newest snapshot if no record followed it. Raises SnapshotImpossible, and OSError if the snapshot
        cannot be written.
        """
        ...


class CreateMetadataSnapshotHandler:
    """Answers CreateMetadataSnapshot."""

    def __init__(self, cutter: SnapshotCutter) -> None:
        self._cutter = cutter

    async def __call__(
        self, request: CreateMetadataSnapshotRequest, context: RequestContext
    ) -> CreateMetadataSnapshotResponse:
        wait_s = min(max(request.timeout_ms, 0), MAX_WAIT_MS) / 1000
        try:
            async with asyncio.timeout(wait_s):
                snapshot_id = await self._cutter.generate_now()
        except TimeoutError as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the snapshot is still being written") from error
        except SnapshotImpossible as error:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND, str(error)) from error
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the snapshot was not written: {error.strerror}"
            ) from error
        return CreateMetadataSnapshotResponse(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
