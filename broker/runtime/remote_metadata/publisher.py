"""Publication of events to the metadata topic, confirmed when this broker reads them back.

An event is done when this broker's reader meets its bytes: then the event is committed, queries include it, and it is
known whether it was applied. So nothing depends on produce responses. A batch that is refused, lost or late is sent
again, and readers ignore the repetition: a segment's events carry its id and a timestamp, the state tables accept the
present state again and refuse a former one, and the events of one segment follow one another on one connection, each
after the former was read back. An idempotent producer is therefore not needed.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Final

from broker.logs import EventLog
from broker.runtime.loop.waiters import Deadline, Deadlines, Loop
from broker.runtime.remote_metadata.client import MetadataTopicClient, error_name
from broker.runtime.remote_metadata.reader import MetadataLeader
from broker.runtime.remote_metadata.settings import RemoteMetadataSettings
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from storage.tiered.errors import RemoteMetadataNotReady

_log: Final = EventLog("broker.tiered.metadata")


@lazy_dataclass(slots=True, eq=False)
class _Entry:
    value: bytes
    done: "asyncio.Future[None]"
    deadline: Deadline | None = None

    @property
    def is_settled(self) -> bool:
        return self.done.done()


@lazy_dataclass(slots=True)
class _Queue:
    """Events for one partition of the topic. One batch is in flight at a time, to keep their order."""

    waiting: deque[_Entry] = field(default_factory=deque)
    in_flight: list[_Entry] | None = None
    flight: int = 0  # counts batches: responses to a former one are ignored
    failures: int = 0
    retry: Deadline | None = None
    """The end of a pause after a failure, in which nothing is sent."""
    last_error: str = "it was not read back"


class RemoteMetadataPublisher:
    """All publication of a node."""

    def __init__(
        self, client: MetadataTopicClient, loop: Loop, deadlines: Deadlines, settings: RemoteMetadataSettings
    ) -> None:
        self._client = client
        self._loop = loop
        self._deadlines = deadlines
        self._settings = settings
        self._queues: dict[int, _Queue] = {}
        self._leaders: Mapping[int, MetadataLeader] = {}
        self._unread: dict[bytes, list[_Entry]] = {}
        self._pending = 0
        self._is_closed = False

    # ---- interface

    def publish(self, partition: int, value: bytes) -> "asyncio.Future[None]":
        """Publish an event; the future ends when `value` is read back, or with TimeoutError.

        The future raises InvalidSegmentTransition if the event was not applied. Raises RemoteMetadataNotReady if too
        many events wait.
        """
        if self._is_closed or self._pending >= self._settings.max_pending_events:
            raise RemoteMetadataNotReady("too many events wait for the metadata topic")
        entry = _Entry(value, self._loop.create_future())
        entry.deadline = self._deadlines.after_ms(
            self._settings.consume_wait_ms, partial(self._expire, partition, entry)
        )
        self._pending += 1
        self._unread.setdefault(value, []).append(entry)
        queue = self._queues.setdefault(partition, _Queue())
        queue.waiting.append(entry)
        if len(queue.waiting) == 1:
            self._loop.call_soon(partial(self._flush, partition))
        return entry.done

    def on_value(self, value: bytes, error: Exception | None) -> None:
        """Complete the events with this value: a record has been read."""
        if self._unread:
            for entry in self._unread.pop(value, ()):
                self._settle(entry, error)

    def set_leaders(self, leaders: Mapping[int, MetadataLeader]) -> None:
        """Set the leaders to send to."""
        changed = [number for number in self._queues if self._leaders.get(number) != leaders.get(number)]
        self._leaders = leaders
        for number in changed:
            queue = self._queues[number]
            if queue.retry is not None:
                queue.retry.cancel()
                queue.retry = None
            self._requeue(queue)  # the former leader may never respond
            self._flush(number)

    def close(self) -> None:
        """Stop sending; events that wait end with a TimeoutError."""
        self._is_closed = True
        for entries in tuple(self._unread.values()):
            for entry in entries:
                self._settle(entry, TimeoutError("the broker is shutting down"))
        self._unread.clear()

    # ---- sending

    def _flush(self, partition: int) -> None:
        queue = self._queues[partition]
        leader = self._leaders.get(partition)
        if self._is_closed or queue.in_flight is not None or queue.retry is not None or leader is None:
            return
        batch = self._next_batch(queue)
        if batch:
            queue.in_flight = batch
            queue.flight += 1
            values = [entry.value for entry in batch]
            done = partial(self._on_answer, partition, queue.flight)
            self._client.append(leader.broker_id, partition, values, done)

    def _next_batch(self, queue: _Queue) -> list[_Entry]:
        batch: list[_Entry] = []
        size_bytes = 0
        while queue.waiting:
            entry = queue.waiting[0]
            if not entry.is_settled:
                size_bytes += len(entry.value)
                if batch and size_bytes > self._settings.producer_batch_bytes:
                    break
                batch.append(entry)
            queue.waiting.popleft()
        return batch

    def _on_answer(self, partition: int, flight: int, outcome: int | Unanswered) -> None:
        queue = self._queues[partition]
        if flight != queue.flight or queue.in_flight is None:
            return
        if outcome == ErrorCode.NONE:
            queue.failures, queue.in_flight = 0, None
            self._flush(partition)
            return
        queue.last_error = outcome.reason if isinstance(outcome, Unanswered) else error_name(outcome)
        self._requeue(queue)
        self._back_off(partition, queue)

    def _requeue(self, queue: _Queue) -> None:
        """Put the batch in flight back in front of the queue, without events that were read back meanwhile."""
        batch, queue.in_flight = queue.in_flight or [], None
        queue.waiting.extendleft(entry for entry in reversed(batch) if not entry.is_settled)

    def _back_off(self, partition: int, queue: _Queue) -> None:
        queue.failures += 1
        if queue.failures == 1:
            _log.info("Remote metadata cannot be published now", partition=partition, reason=queue.last_error)
        delay_ms = min(
            self._settings.retry_backoff_max_ms, self._settings.retry_backoff_ms * 2.0 ** min(queue.failures - 1, 16)
        )
        # The end of the pause is an event and not a time, because a deadline may run slightly before its time.
        queue.retry = self._deadlines.after_ms(delay_ms, partial(self._resume, partition))

    def _resume(self, partition: int) -> None:
        self._queues[partition].retry = None
        self._flush(partition)

    # ---- completion

    def _settle(self, entry: _Entry, error: Exception | None) -> None:
        if entry.deadline is not None:
            entry.deadline.cancel()
            entry.deadline = None
            self._pending -= 1
        if entry.done.done():
            return
        if error is None:
            entry.done.set_result(None)
        else:
            entry.done.set_exception(error)

    def _expire(self, partition: int, entry: _Entry) -> None:
        entries = self._unread.get(entry.value, [])
        if entry in entries:
            entries.remove(entry)
        if not entries:
            self._unread.pop(entry.value, None)
        queue = self._queues[partition]
        waited, last_error = self._settings.consume_wait_ms, queue.last_error
        self._settle(entry, TimeoutError(f"an event was not read back within {waited} ms ({last_error})"))
        while queue.waiting and queue.waiting[0].is_settled:
            queue.waiting.popleft()
