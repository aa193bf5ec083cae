"""The source of remote segments for followers: metadata is read on the loop, the store on threads.

Loaded only on brokers with remote storage.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial

from broker.replication.fetch_state import FetchedReplica
from broker.replication.remote_log_aux_state_machine import Load, leader_epoch_entries
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.loop.waiters import Loop
from broker.runtime.replication.remote_log_aux_state import RemoteLogUnavailable
from protocol.ids import LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.errors import CorruptCheckpoint
from storage.remote_log_start import RemoteLogStart
from storage.tiered.catalog.lineage import Lineage, decode_epochs
from storage.tiered.errors import RemoteMetadataNotReady, RemoteStorageError
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from storage.tiered.segments.producers import producers_before


class RemoteSegmentSource:
    """Implements RemoteLogSource; `skips_remote` is the present `follower.fetch.last.tiered.offset.enable`."""

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        pool: WorkPool,
        loop: Loop,
        *,
        skips_remote: Callable[[], bool] = lambda: False,
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._pool = pool
        self._loop = loop
        self._skips_remote = skips_remote

    @property
    def skips_remote(self) -> bool:
        return self._skips_remote()

    def segment_for(self, replica: FetchedReplica, epoch: LeaderEpoch, offset: int) -> "Future[RemoteSegment | None]":
        found: Future[RemoteSegment | None] = self._loop.create_future()
        try:
            found.set_result(self._metadata.segment_for(_partition(replica), epoch, offset))
        except RemoteMetadataNotReady as error:
            found.set_exception(RemoteLogUnavailable(str(error), is_failure=False))
        except Exception as error:  # noqa: BLE001  an error of a plug-in concerns this replica alone
            found.set_exception(error)
        return found

    def load(self, replica: FetchedReplica, load: Load[RemoteSegment]) -> "Future[RemoteLogStart]":
        refused: Future[RemoteLogStart] = self._loop.create_future()
        try:
            return self._pool.submit(partial(self._load, load, self._others(replica, load)))
        except (PoolFull, RemoteMetadataNotReady) as error:
            refused.set_exception(RemoteLogUnavailable(str(error), is_failure=False))
        except Exception as error:  # noqa: BLE001  as above
            refused.set_exception(error)
        return refused

    def _others(self, replica: FetchedReplica, load: Load[RemoteSegment]) -> Sequence[RemoteSegment]:
        """Return the segments that end right before the segment, or between its start and the offset.

        They are needed only if the leader does not agree with the whole segment.
        """
        if load.next_offset > load.segment.end_offset:
            return ()
        known = self._metadata.known(_partition(replica))
        return known.ending_within(load.segment.start_offset - 1, load.next_offset - 1)

    def _load(self, load: Load[RemoteSegment], others: Sequence[RemoteSegment]) -> RemoteLogStart:
        """Load the state at the offset; runs on a pool thread."""
        segment, offset = load.segment, load.next_offset
        try:
            epochs = leader_epoch_entries(
                decode_epochs(self._storage.read_index(segment, IndexKind.LEADER_EPOCH)), load
            )
            producers = producers_before(offset, segment, others, Lineage(epochs, offset), self._storage)
            return RemoteLogStart(
                next_offset=offset,
                log_start_offset=load.log_start_offset,
                epochs=tuple(LeaderEpochEntry(*entry) for entry in epochs),
                producers=producers,
            )
        except (RemoteStorageError, CorruptCheckpoint, ValueError) as error:
            raise RemoteLogUnavailable(str(error)) from error


def _partition(replica: FetchedReplica) -> TopicIdPartition:
    return TopicIdPartition(replica.topic_id, replica.topic, replica.index)
