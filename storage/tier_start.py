"""What a log begins with whose first records are in remote storage alone (KIP-405, "BuildingRemoteLogAux").

Such a log has a start, but no records there that could be read again. What a log otherwise learns from its records, it
must be given: which leader wrote which offsets, and what the producers had sent. A replica that began without would cut
at the wrong place, forget aborted transactions, and take a producer's retry for something new.

So the log takes it over in an order in which a crash leaves either the old log, or nothing, or all of it
(`Log.start_from_tier`):

    what is on the disk                                      what a start makes of it
    -------------------                                      ------------------------
 1. the old log, the recovery point lowered below the cut    the old log
 2. the new log start in the checkpoint                      the old log, which begins later; or an empty one
 3. the newest part of the old log is gone                   a shorter old log
 4. all of it is gone, snapshots too                         an empty log at its start: the follower is sent to the tier
 5. the producers, the epochs                                again, and builds everything anew
 6. the segment that the new log begins with                 the new log: everything else was durable before
"""

from dataclasses import dataclass

from storage.directories.checkpoints import EpochEntry
from storage.producer_state import ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStart:
    """`next_offset` is where the log goes on, empty so far; what lies between `log_start_offset` and it is remote.

    `epochs` are those that wrote it; `producers` is the state before `next_offset`. Raises ValueError where these do
    not go together.
    """

    next_offset: int
    log_start_offset: int
    epochs: tuple[EpochEntry, ...]
    producers: ProducerState

    def __post_init__(self) -> None:
        if not 0 <= self.log_start_offset < self.next_offset:
            raise ValueError(f"nothing is remote from {self.log_start_offset} to {self.next_offset}")
        if not self.epochs or self.epochs[-1].start_offset >= self.next_offset:
            raise ValueError(f"the leader epochs {self.epochs} are not those before {self.next_offset}")
        if self.producers.end_offset != self.next_offset:
            raise ValueError(f"producers at {self.producers.end_offset} instead of {self.next_offset}")
