"""The disk and network of a replica of the metadata log, as the driver uses them."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from broker.quorum.identity import SnapshotId, SocketAddress
from broker.quorum.messages import Request, Response, SendFailure
from broker.quorum.ready import ElectionState
from broker.quorum.snapshots.imports import ImportOutcome, ImportStep
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from protocol.lazy_dataclass import lazy_dataclass

Done: TypeAlias = Callable[[Response | SendFailure], None]


class QuorumTransport(Protocol):
    """Sends requests to other replicas."""

    def send(
        self,
        to_id: int,
        to: SocketAddress,
        request: Request,
        timeout_ms: int,
        done: Callable[[Response | SendFailure], None],
    ) -> None:
        """Send a request and call `done` exactly once, later, on the loop. A negative `to_id` is an unknown node id."""
        ...


class SnapshotImports(Protocol):
    """Imports snapshots from an object store."""

    def perform(self, step: ImportStep, done: Callable[[ImportOutcome], None]) -> None:
        """Start a step; `done` is called on the loop, at most once."""
        ...

    def on_adopted(self, snapshot_id: SnapshotId, *, is_whole: bool) -> None:
        """Complete an import: the snapshot is installed, or it was invalid and deleted."""
        ...


class StateFile(Protocol):
    """The file of the election state."""

    def write(self, state: ElectionState) -> None:
        """Write the state durably. Blocks."""
        ...


@lazy_dataclass(frozen=True, slots=True)
class ReplicaIo:
    """The opened log and state file of a replica, and its connections to other nodes."""

    log: RaftMetadataLog
    state_file: StateFile
    transport: QuorumTransport
    election: ElectionState | None = None
    """The content of the state file at start."""
    imports: SnapshotImports | None = None
    """Required if the core's settings have an import timeout."""
    snapshot_io: BlockingIo | None = None
    """Runs what may take long beside the log's fsyncs: checks and pages of snapshots, cold reads. None: the runtime's
    `io`.
    """
