"""A share coordinator with the product's state of a share partition, fenced by leader epochs."""

from broker.share.partition import PersistedState, StateWrite
from broker.share.records import DeliveryBatch, RecordState
from broker.share_state.state import ShareState, StateBatch
from protocol.errors import ErrorCode


class CoordinatorModel:
    """The state of one share partition, durable at once. Fences writes and reads as ShareStateShard does."""

    def __init__(self) -> None:
        self._state = ShareState(snapshot_epoch=0, state_epoch=0, leader_epoch=0, start_offset=0)

    def read(self, leader_epoch: int) -> PersistedState | None:
        """Return the state for a leader, and fence earlier ones; None for a leader that is fenced itself."""
        if leader_epoch < self._state.leader_epoch:
            return None
        state = self._state = self._state.updated(leader_epoch, -1, -1, ())
        batches = [DeliveryBatch(first, last, RecordState(kind), count) for first, last, kind, count in state.batches]
        return PersistedState(state.state_epoch, state.start_offset, batches)

    def write(self, write: StateWrite) -> ErrorCode:
        """Apply a write, unless a later leader has read the state."""
        if self.is_fenced(write.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        batches = [StateBatch(first, last, int(state), count) for first, last, state, count in write.batches]
        self._state = self._state.updated(-1, write.start_offset, write.delivery_complete_count, batches)
        return ErrorCode.NONE

    def is_fenced(self, leader_epoch: int) -> bool:
        """Whether a later leader has read the state."""
        return leader_epoch < self._state.leader_epoch
