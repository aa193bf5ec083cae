"""Pruning of the metadata topic: the leader of a partition rewrites the present state and deletes older records.

Theory of operation
-------------------
The topic is not compacted: its records have no keys, and an update is meaningless without the record that created its
segment. So the leader of a partition *rewrites* the state when most records are obsolete:

1. The leader has read its own log to the end, P. It notes all user partitions in it.
2. For some of their segments at a time, it appends one batch of events that lead an empty reader to their present
   state. It appends only when everything in the log has been applied here, in the same turn of the loop as the check,
   so that no record comes between the check and the batch. The batch is therefore correct at its position.
3. When the last batch is committed and read, the leader deletes the records below P.

Every segment then has its complete history at P or above: segments created since P by their own records, the others by
the rewrite. A reader that begins at P may meet updates of segments that it does not know yet; it skips them, and the
rewrite that follows has their outcome. A reader that was below P finds its position deleted and starts again at the log
start offset, and so does a replica with an empty disk. The leader need not wait for any snapshot. A leader that loses
its leadership or crashes meanwhile has only written correct events; the next leader begins at step 1. Readers that know
the state skip the rewrite as repetition (Kafka's readers do so, too, with a log line).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from broker.logs import EventLog
from broker.runtime.remote_metadata.settings import RemoteMetadataSettings
from broker.runtime.remote_metadata.tail import RemoteMetadataPartition
from protocol.errors import KafkaError
from storage.tiered.catalog.metadata_records import encode_event

_REWRITE_RATIO: Final = 2
"""Ratio of all records to needed records from which a rewrite is due; it costs no more than the obsolete ones did."""

_ROWS_AT_ONCE: Final = 10
_ROWS_A_BATCH: Final = 200
"""Rows of segments per batch: about 4 milliseconds on the loop."""

_log: Final = EventLog("broker.tiered.metadata")


class LedMetadataLog(Protocol):
    """A partition of the metadata topic that this broker leads. Methods raise KafkaError once another broker leads."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def max_batch_bytes(self) -> int: ...

    def append(self, values: list[bytes]) -> None:
        """Append one batch at once, with acks=all; refused if too few replicas are in sync."""
        ...

    def delete_records(self, offset: int) -> None:
        """Raise the log start offset, up to the high watermark."""
        ...


class LedMetadataLogs(Protocol):
    """The partitions of the metadata topic on this broker."""

    def led(self) -> Iterable[int]:
        """Return the partitions of the metadata topic that this broker leads."""
        ...

    def log(self, partition: int) -> LedMetadataLog | None:
        """Return one of them; None if another broker leads it."""
        ...


class _Rewrite:
    """One rewrite of one partition. Call `step` after every progress of reading until `is_over`."""

    def __init__(self, tail: RemoteMetadataPartition, log: LedMetadataLog, batch_bytes: int) -> None:
        self._tail = tail
        self._generation = tail.generation
        self._epoch = log.leader_epoch
        self._first_offset = log.end_offset
        self._partitions = deque(tail.metadata.partitions())
        self._row = 0  # of the first partition
        self._batch_bytes = batch_bytes
        self.is_over = False

    def step(self, log: LedMetadataLog | None) -> None:
        """Append the next batch if everything in the log has been applied."""
        tail = self._tail
        if log is None or log.leader_epoch != self._epoch or tail.generation != self._generation:
            self.is_over = True
        elif tail.next_offset == log.end_offset and not tail.is_applying:
            self._append_or_finish(log)

    def _append_or_finish(self, log: LedMetadataLog) -> None:
        values = self._next_values()
        if values:
            log.append(values)
            return
        self.is_over = True
        _log.info(
            "Remote metadata was pruned",
            partition=self._tail.partition,
            before=log.start_offset,
            start=self._first_offset,
            end=log.end_offset,
        )
        log.delete_records(self._first_offset)

    def _next_values(self) -> list[bytes]:
        """Return the events of the next batch; an empty list only at the end, since rows may be empty."""
        values: list[bytes] = []
        size_bytes = rows = 0
        while self._partitions and (not values or (size_bytes < self._batch_bytes and rows < _ROWS_A_BATCH)):
            events, next_row = self._tail.metadata.current_events(self._partitions[0], self._row, _ROWS_AT_ONCE)
            if next_row is None:
                self._partitions.popleft()
            self._row = next_row or 0
            rows += _ROWS_AT_ONCE
            values += map(encode_event, events)
            size_bytes = sum(map(len, values))
        return values


class RemoteMetadataPruning:
    """Prunes the partitions of the metadata topic that this broker leads.

    `set_needed(partition, needed)` makes the owner read a partition although no assigned user partition needs it;
    `tail(partition)` returns its state while it is read.
    """

    def __init__(
        self,
        logs: LedMetadataLogs,
        settings: RemoteMetadataSettings,
        tail: Callable[[int], RemoteMetadataPartition | None],
        set_needed: Callable[[int, bool], None],
    ) -> None:
        self._logs = logs
        self._settings = settings
        self._tail = tail
        self._set_needed = set_needed
        self._wanted: set[int] = set()
        self._rewrites: dict[int, _Rewrite] = {}

    def check(self) -> None:
        """Begin the rewrites that are due; to be called periodically."""
        large = {number for number in self._logs.led() if self._is_large(number)} if self._settings.is_pruned else set()
        for number in self._wanted - large:
            if number not in self._rewrites:
                self._wanted.discard(number)
                self._set_needed(number, False)
        for number in large - self._wanted:
            self._wanted.add(number)
            self._set_needed(number, True)
        for number in large:
            tail = self._tail(number)
            if tail is not None:
                self.on_progress(tail)

    def on_progress(self, tail: RemoteMetadataPartition) -> None:
        """Continue the rewrite of a partition after more of it was read."""
        number = tail.partition
        if number not in self._wanted:
            return
        log = self._logs.log(number)
        rewrite = self._rewrites.get(number)
        try:
            if rewrite is None and log is not None and self._is_due(tail, log):
                rewrite = self._rewrites[number] = _Rewrite(tail, log, self._batch_bytes(log))
            if rewrite is not None:
                rewrite.step(log)
        except KafkaError as error:
            _log.info("Remote metadata could not be rewritten now", partition=number, reason=str(error))
            rewrite = None
            self._rewrites.pop(number, None)
        if rewrite is not None and rewrite.is_over:
            del self._rewrites[number]

    def _batch_bytes(self, log: LedMetadataLog) -> int:
        """Return half of the maximum batch size, to leave room for overhead."""
        return min(self._settings.producer_batch_bytes, log.max_batch_bytes // 2)

    def _is_large(self, number: int) -> bool:
        log = self._logs.log(number)
        try:
            return log is not None and log.end_offset - log.start_offset >= self._settings.prune_min_records
        except KafkaError:
            return False

    def _is_due(self, tail: RemoteMetadataPartition, log: LedMetadataLog) -> bool:
        count = log.end_offset - log.start_offset
        if not tail.is_open or tail.is_applying or tail.next_offset != log.end_offset:
            return False
        return count >= max(self._settings.prune_min_records, _REWRITE_RATIO * tail.metadata.records_needed)
