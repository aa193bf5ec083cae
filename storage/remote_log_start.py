"""The state of a new log whose first records are in remote storage alone (KIP-405, "BuildingRemoteLogAux").

Such a log has a log start offset but no records there to read again. State that a log otherwise derives from its
records must be given: the leader epochs and the producers. A replica without them would truncate at the wrong offset,
forget aborted transactions, and append a producer's retry as a new batch.

The log installs the state in an order in which a crash leaves the old log, an empty log, or the new log
(`Log.start_behind_remote_log`):

    content of the disk                                      state after a restart
    -------------------                                      ---------------------
 1. the old log, the recovery point lowered below the cut    the old log
 2. the new log start offset in the checkpoint               the old log with a later start; or an empty log
 3. the newest part of the old log is removed                a shorter old log
 4. the whole old log is removed, with its snapshots         an empty log at its start: the follower starts over
 5. the producers, the epochs                                again an empty log, which is built anew
 6. the first segment of the new log                         the new log: everything else was durable before
"""

from protocol.lazy_dataclass import lazy_dataclass
from storage.directories.checkpoints import LeaderEpochEntry
from storage.producer_state import ProducerState


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogStart:
    """The state before `next_offset`, at which the empty log continues; offsets from `log_start_offset` on are remote.

    `epochs` are the leader epochs of the remote offsets; `producers` is the state before `next_offset`. Raises
    ValueError for fields that contradict each other.
    """

    next_offset: int
    log_start_offset: int
    epochs: tuple[LeaderEpochEntry, ...]
    producers: ProducerState

    def __post_init__(self) -> None:
        if not 0 <= self.log_start_offset < self.next_offset:
            raise ValueError(f"no offset is remote between {self.log_start_offset} and {self.next_offset}")
        if not self.epochs or self.epochs[-1].start_offset >= self.next_offset:
            raise ValueError(f"the leader epochs {self.epochs} do not begin before offset {self.next_offset}")
        if self.producers.end_offset != self.next_offset:
            raise ValueError(
                f"the producer state ends at offset {self.producers.end_offset} instead of {self.next_offset}"
            )
