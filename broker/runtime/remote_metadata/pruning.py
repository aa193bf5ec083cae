"""Keeps the metadata topic from growing for ever: who leads a partition says again what counts, and cuts off the rest.

Theory of operation
-------------------
The topic is not compacted: its records have no keys, and an update means nothing without the record that made its
segment. So the leader of a partition *retells* it when most of its records are of the past:

1. It has read its own log to the very end, P. It notes all partitions that are told of.
2. For some of their segments at a time it appends what leads a reader who knows nothing to their present state, as one
   batch. It does so only in a moment at which everything in the log has been applied here, and in the turn of the loop
   in which it looked: nothing gets between the look and the batch. So what is retold is true where it stands.
3. When the last batch is committed and read, records below P are deleted.

Every segment is then told of at P or above, from its beginning: those made since P by their own records, the others by
the retelling. A reader that begins at P may meet updates of segments it does not know yet; it skips them, and the
retelling further on has their outcome. A reader that was behind P finds the log cut off and begins anew at its start,
and so does a replica with an empty disk. Nobody's snapshot has to be waited for. A leader that is deposed or dies on
the way has only told what is true; the next one begins at step 1. Readers that knew everything skip it as repetition
(Kafka's own do so too, with a line in their log).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from broker.logs import EventLog
from broker.runtime.remote_metadata.settings import RemoteMetadataSettings
from broker.runtime.remote_metadata.tail import MetadataTail
from protocol.errors import KafkaError
from storage.tiered.catalog.metadata_records import encode_event

_NEEDED_PART: Final = 2
"""Retell when the records are so many times those that are needed: then it costs no more than the past did."""

_ROWS_AT_ONCE: Final = 10
_ROWS_A_BATCH: Final = 200
"""Of segments: some 4 milliseconds on the loop."""

_log: Final = EventLog("broker.tiered.metadata")


class LedMetadataLog(Protocol):
    """A partition of the metadata topic that this broker leads. Methods raise KafkaError when it does no longer."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def max_batch_bytes(self) -> int: ...

    def append(self, values: list[bytes]) -> None:
        """One batch, at once, with acks=all: refused where too few replicas are in sync."""
        ...

    def delete_records(self, offset: int) -> None:
        """Raise the start of the log, up to the high watermark."""
        ...


class LedMetadataLogs(Protocol):
    def led(self) -> Iterable[int]:
        """The partitions of the metadata topic that this broker leads."""
        ...

    def log(self, partition: int) -> LedMetadataLog | None:
        """One of them; None if another broker leads it."""
        ...


class _Retelling:
    """One run over one partition. `step` is called whenever more was read; it is over when `is_over`."""

    def __init__(self, tail: MetadataTail, log: LedMetadataLog, batch_bytes: int) -> None:
        self._tail = tail
        self._life = tail.life
        self._epoch = log.leader_epoch
        self._first_offset = log.end_offset
        self._partitions = deque(tail.metadata.partitions())
        self._row = 0  # of the first of them
        self._batch_bytes = batch_bytes
        self.is_over = False

    def step(self, log: LedMetadataLog | None) -> None:
        """Append the next batch if this is the moment for it."""
        tail = self._tail
        if log is None or log.leader_epoch != self._epoch or tail.life != self._life:
            self.is_over = True
        elif tail.next_offset == log.end_offset and not tail.is_applying:
            self._go_on(log)

    def _go_on(self, log: LedMetadataLog) -> None:
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
        """Nothing only when all is told: rows may be empty."""
        values: list[bytes] = []
        size_bytes = rows = 0
        while self._partitions and (not values or (size_bytes < self._batch_bytes and rows < _ROWS_A_BATCH)):
            events, next_row = self._tail.metadata.retold(self._partitions[0], self._row, _ROWS_AT_ONCE)
            if next_row is None:
                self._partitions.popleft()
            self._row = next_row or 0
            rows += _ROWS_AT_ONCE
            values += map(encode_event, events)
            size_bytes = sum(map(len, values))
        return values


class RemoteMetadataPruning:
    """Looks after the partitions that this broker leads.

    `want(partition, wanted)` is to see that a partition is read here although no user partition is assigned that needs
    it; `tail(partition)` gives it while it is.
    """

    def __init__(
        self,
        logs: LedMetadataLogs,
        settings: RemoteMetadataSettings,
        tail: Callable[[int], MetadataTail | None],
        want: Callable[[int, bool], None],
    ) -> None:
        self._logs = logs
        self._settings = settings
        self._tail = tail
        self._want = want
        self._wanted: set[int] = set()
        self._retellings: dict[int, _Retelling] = {}

    def check(self) -> None:
        """Begin where it is worth it. To be called now and then."""
        large = {number for number in self._logs.led() if self._is_large(number)} if self._settings.is_pruned else set()
        for number in self._wanted - large:
            if number not in self._retellings:
                self._wanted.discard(number)
                self._want(number, False)
        for number in large - self._wanted:
            self._wanted.add(number)
            self._want(number, True)
        for number in large:
            tail = self._tail(number)
            if tail is not None:
                self.on_progress(tail)

    def on_progress(self, tail: MetadataTail) -> None:
        """More of a partition was read."""
        number = tail.partition
        if number not in self._wanted:
            return
        log = self._logs.log(number)
        retelling = self._retellings.get(number)
        try:
            if retelling is None and log is not None and self._is_due(tail, log):
                retelling = self._retellings[number] = _Retelling(tail, log, self._batch_bytes(log))
            if retelling is not None:
                retelling.step(log)
        except KafkaError as error:
            _log.info("Remote metadata could not be retold now", partition=number, reason=str(error))
            retelling = None
            self._retellings.pop(number, None)
        if retelling is not None and retelling.is_over:
            del self._retellings[number]

    def _batch_bytes(self, log: LedMetadataLog) -> int:
        """Half of what a batch may have, for what comes on top."""
        return min(self._settings.producer_batch_bytes, log.max_batch_bytes // 2)

    def _is_large(self, number: int) -> bool:
        log = self._logs.log(number)
        try:
            return log is not None and log.end_offset - log.start_offset >= self._settings.prune_min_records
        except KafkaError:
            return False

    def _is_due(self, tail: MetadataTail, log: LedMetadataLog) -> bool:
        count = log.end_offset - log.start_offset
        if not tail.is_open or tail.is_applying or tail.next_offset != log.end_offset:
            return False
        return count >= max(self._settings.prune_min_records, _NEEDED_PART * tail.metadata.records_needed)
