"""The reader of the metadata topic: fetches the partitions that this broker needs from their leaders.

Theory of operation
-------------------
Each leader gets up to three requests at a time: a *poll*, a long poll for all partitions that have been read to their
end; a *load*, which returns at once, for those that are behind; and a look-up of start or end offsets. So neither a
long load nor a dead leader delays the rest. Consumers receive committed records only.

- A partition may be in a poll and a load at once; records that arrive twice are skipped by their offset.
- Records are applied in slices, so that a million of them do not block the loop.
- A log that was pruned beyond the position, or that has diverged after an unclean election, is read again from its
  start: the start of the log holds the complete state.
- An undecodable record, written by a later version or by mistake, is logged and skipped. An event that does not follow
  from the state, usually a repetition, is skipped as well, by every reader alike.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.logs import EventLog
from broker.runtime.loop.waiters import Deadline, Deadlines, Loop
from broker.runtime.remote_metadata.client import (
    EARLIEST,
    LATEST,
    MetadataOffsetRequest,
    MetadataOffsetResult,
    MetadataReadPosition,
    MetadataReadResult,
    MetadataTopicClient,
    error_name,
)
from broker.runtime.remote_metadata.settings import RemoteMetadataSettings
from broker.runtime.remote_metadata.tail import NO_EPOCH, RemoteMetadataPartition
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_records import UndecodableEvent
from storage.tiered.catalog.segment_state import PastState
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import TopicIdPartition

SLICE_RECORDS: Final = 200
"""Records applied in one turn of the loop; most take 4 microseconds each, none more than 20."""

_log: Final = EventLog("broker.tiered.metadata")


class MetadataLeader(NamedTuple):
    """The leader of a partition of the metadata topic, and its epoch."""

    broker_id: int
    epoch: LeaderEpoch


class ReadObserver(Protocol):
    """Receives what is read. Methods are called synchronously and must not wait."""

    def on_value(self, value: bytes, error: Exception | None) -> None:
        """Handle a record that was applied, or refused because of `error`."""
        ...

    def on_ready(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Handle user partitions that are known up to the time of their assignment."""
        ...

    def on_progress(self, tail: RemoteMetadataPartition) -> None:
        """Handle progress of a metadata partition up to `tail.next_offset`."""
        ...


class _RequestKind(Enum):
    POLL = "poll"
    LOAD = "load"
    OFFSETS = "offsets"


class _SentPosition(NamedTuple):
    """The state of a partition when a request was sent; the response applies while the state is the same."""

    tail: RemoteMetadataPartition
    generation: int
    offset: int
    seeks: bool
    waiting: Sequence[TopicIdPartition]


_A = TypeVar("_A", MetadataReadResult, MetadataOffsetResult)


class RemoteMetadataReader:
    """All reading of a node."""

    def __init__(
        self,
        client: MetadataTopicClient,
        loop: Loop,
        deadlines: Deadlines,
        settings: RemoteMetadataSettings,
        observer: ReadObserver,
    ) -> None:
        self._client = client
        self._loop = loop
        self._deadlines = deadlines
        self._settings = settings
        self._observer = observer
        self._tails: dict[int, RemoteMetadataPartition] = {}
        self._leaders: Mapping[int, MetadataLeader] = {}
        self._busy: set[tuple[int, _RequestKind]] = set()
        self._timer: Deadline | None = None
        self._turn: asyncio.Handle | None = None
        self._is_closed = False

    # ---- interface

    def add(self, tail: RemoteMetadataPartition) -> None:
        """Read a partition as soon as its position is known."""
        self._tails[tail.partition] = tail
        self.wake()

    def remove(self, partition: int) -> None:
        self._tails.pop(partition, None)

    def set_leaders(self, leaders: Mapping[int, MetadataLeader]) -> None:
        """Set the leaders to fetch from; partitions without a leader wait."""
        for number, tail in self._tails.items():
            if self._leaders.get(number) != leaders.get(number):
                tail.failures, tail.retry_at_s = 0, 0.0
        self._leaders = leaders
        self.wake()

    def wake(self) -> None:
        """Send requests that are due, in the next turn of the loop."""
        if self._turn is None and not self._is_closed:
            self._turn = self._loop.call_soon(self._pump)

    def close(self) -> None:
        """Stop sending requests; ignore responses."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # ---- requests

    def _pump(self) -> None:
        self._turn = None
        if self._is_closed:
            return
        for (leader, kind), tails in self._plan().items():
            if (leader, kind) not in self._busy:
                self._busy.add((leader, kind))
                self._send(leader, kind, tails)

    def _plan(self) -> dict[tuple[int, _RequestKind], list[RemoteMetadataPartition]]:
        now_s, next_s = self._loop.time(), None
        plan: dict[tuple[int, _RequestKind], list[RemoteMetadataPartition]] = {}
        for tail in self._tails.values():
            leader = self._leaders.get(tail.partition)
            if leader is None or not tail.is_open or tail.is_applying:
                continue
            if tail.retry_at_s > now_s:
                next_s = tail.retry_at_s if next_s is None else min(next_s, tail.retry_at_s)
                continue
            for kind in _request_kinds(tail):
                plan.setdefault((leader.broker_id, kind), []).append(tail)
        self._set_timer(next_s)
        return plan

    def _set_timer(self, moment_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if moment_s is None else self._deadlines.at(moment_s, self.wake)

    def _send(self, leader: int, kind: _RequestKind, tails: Sequence[RemoteMetadataPartition]) -> None:
        sent = {
            tail.partition: _SentPosition(tail, tail.generation, tail.next_offset, tail.must_seek, tail.waiting())
            for tail in tails
        }
        if kind is _RequestKind.OFFSETS:
            requests = [
                MetadataOffsetRequest(tail.partition, self._epoch(tail), EARLIEST if tail.must_seek else LATEST)
                for tail in tails
            ]
            self._client.offsets(leader, requests, partial(self._on_response, leader, kind, sent, self._take_offset))
            return
        positions = [
            MetadataReadPosition(tail.partition, self._epoch(tail), tail.next_offset, tail.last_epoch) for tail in tails
        ]
        done = partial(self._on_response, leader, kind, sent, self._take_records)
        self._client.read(leader, positions, waits=kind is _RequestKind.POLL, done=done)

    def _epoch(self, tail: RemoteMetadataPartition) -> LeaderEpoch:
        return self._leaders[tail.partition].epoch

    # ---- responses

    def _on_response(
        self,
        leader: int,
        kind: _RequestKind,
        sent: dict[int, _SentPosition],
        take: Callable[[_SentPosition, _A], None],
        outcome: Sequence[_A] | Unanswered,
    ) -> None:
        self._busy.discard((leader, kind))
        if self._is_closed:
            return
        if isinstance(outcome, Unanswered):
            reason = outcome.reason
        else:
            reason = "the response omits the partition"
            for result in outcome:
                position = sent.pop(result.partition, None)
                if position is not None and self._is_current(position):
                    take(position, result)
        for position in sent.values():
            if self._is_current(position):
                self._back_off(position.tail, reason)
        self.wake()

    def _is_current(self, sent: _SentPosition) -> bool:
        tail = sent.tail
        return self._tails.get(tail.partition) is tail and sent.generation == tail.generation and not tail.is_applying

    def _take_offset(self, sent: _SentPosition, result: MetadataOffsetResult) -> None:
        tail = sent.tail
        if result.error:
            self._back_off(tail, error_name(result.error))
        elif sent.seeks:
            _log.info("Remote metadata are read again from the start", partition=tail.partition, offset=result.offset)
            tail.begin(MaterializedMetadata(), max(0, result.offset), NO_EPOCH)
        elif not tail.must_seek:
            tail.failures = 0
            tail.on_end(sent.waiting, result.offset)
            self._report_ready(tail)

    def _take_records(self, sent: _SentPosition, result: MetadataReadResult) -> None:
        tail = sent.tail
        if result.error or result.has_diverged:
            if sent.offset == tail.next_offset:
                self._on_refused(tail, result)
            return
        if len(result.records):
            tail.is_applying = True
            self._apply_some(tail, tail.generation, self._applied(tail, result.records))
        elif tail.is_behind:
            self._back_off(tail, "the log ends before its former end offset")
        else:
            tail.failures = 0

    def _on_refused(self, tail: RemoteMetadataPartition, result: MetadataReadResult) -> None:
        if result.has_diverged or result.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._back_off(tail, "the log has diverged or was pruned")
            tail.must_seek = True
            _log.warning(
                "The metadata topic has diverged or was pruned",
                partition=tail.partition,
                offset=tail.next_offset,
                diverged=result.has_diverged,
            )
        else:
            self._back_off(tail, error_name(result.error))

    def _back_off(self, tail: RemoteMetadataPartition, reason: str) -> None:
        tail.failures += 1
        delay_ms = min(
            self._settings.retry_backoff_max_ms, self._settings.retry_backoff_ms * 2.0 ** min(tail.failures - 1, 16)
        )
        tail.retry_at_s = self._loop.time() + delay_ms / 1000
        if tail.failures == 1:
            _log.info("Remote metadata cannot be read now", partition=tail.partition, reason=reason)

    # ---- records

    def _apply_some(self, tail: RemoteMetadataPartition, generation: int, applied: Iterator[int]) -> None:
        """Apply records for a slice of time, and continue in the next turn of the loop."""
        if self._is_closed or tail.generation != generation or self._tails.get(tail.partition) is not tail:
            return
        count = 0
        try:
            for some in applied:
                count += some
                if count >= SLICE_RECORDS:
                    self._loop.call_soon(partial(self._apply_some, tail, generation, applied))
                    return
        except MalformedBatch as error:
            self._finish(tail)
            self._back_off(tail, str(error))
            return
        tail.failures = 0
        self._finish(tail)

    def _finish(self, tail: RemoteMetadataPartition) -> None:
        tail.is_applying = False
        self._report_ready(tail)
        self._observer.on_progress(tail)
        self.wake()

    def _report_ready(self, tail: RemoteMetadataPartition) -> None:
        ready = tail.take_ready()
        if ready:
            self._observer.on_ready(ready)

    def _applied(self, tail: RemoteMetadataPartition, records: Buffer) -> Iterator[int]:
        """Apply a batch per step, or a slice of a long one, and yield its number of records.

        Raises MalformedBatch for a batch with a wrong checksum, which will be read again.
        """
        for position, header in iter_headers(records):
            if header.next_offset <= tail.next_offset:
                continue
            if not crc_is_valid(records, position, header.size):
                raise MalformedBatch("a batch arrived with a wrong checksum")
            if not header.is_control:
                yield from self._applied_batch(tail, records, position, header)
            tail.next_offset, tail.last_epoch = header.next_offset, header.leader_epoch

    def _applied_batch(
        self, tail: RemoteMetadataPartition, records: Buffer, position: int, header: BatchHeader
    ) -> Iterator[int]:
        count, first_offset, apply = 0, tail.next_offset, self._apply
        try:
            for record in iter_records(records, position):
                if record.offset >= first_offset:
                    apply(tail, record.offset, record.value)
                count += 1
                if count == SLICE_RECORDS:
                    yield count
                    count = 0
        except MalformedRecords as error:
            _log.error(
                "A batch of the metadata topic is skipped", error, partition=tail.partition, at=header.base_offset
            )
        yield count

    def _apply(self, tail: RemoteMetadataPartition, offset: int, value: bytes | None) -> None:
        failure: InvalidSegmentTransition | None = None
        try:
            tail.folding.apply(value)
        except UndecodableEvent as error:
            _log.warning(
                "A record of the metadata topic is skipped", partition=tail.partition, offset=offset, reason=str(error)
            )
            return
        except InvalidSegmentTransition as error:
            failure = error
            log = _log.debug if isinstance(error, PastState) or not tail.has_been_read else _log.warning
            log("An event of a remote segment is ignored", partition=tail.partition, offset=offset, reason=error)
        assert value is not None
        self._observer.on_value(value, failure)


def _request_kinds(tail: RemoteMetadataPartition) -> Iterator[_RequestKind]:
    """Yield the kinds of requests that are due for a partition."""
    if tail.must_seek:
        yield _RequestKind.OFFSETS
        return
    if tail.end_is_sought:
        yield _RequestKind.OFFSETS
    if tail.is_behind:
        yield _RequestKind.LOAD
    elif tail.has_been_read:
        yield _RequestKind.POLL
