"""CreateMetadataSnapshot (key 10000, our own), version 0: this node cuts a snapshot of its metadata now.

Kafka has no such request: its nodes cut snapshots by their own rules alone. Every node cuts its own, so the request is
for the node it reaches and is never forwarded. It is a message like all others, with a schema, a version and a place in
the table of routes, but in a range of keys that Kafka will not come near, and left out of ApiVersions: a client that
prints what a broker serves shows no stranger. The alternatives are worse: a setting that acts when it is written would
act again at every restart, HTTP is another address and another set of rights, and a signal reaches local nodes only.
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
        """The snapshot of everything that is committed and applied now, once it is in place; the newest one where
        nothing came after it. Raises SnapshotImpossible, and OSError if it cannot be written."""
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
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"it cannot be written: {error.strerror}") from error
        return CreateMetadataSnapshotResponse(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
