"""The remote metadata as one broker knows them: a copy that follows the common log late."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Final

from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.segment_metadata import PartitionDelete, RemoteSegment, SegmentUpdate, TopicIdPartition
from tests.simulation.replication.process import TaskProcess
from tests.support.fakes.memory_remote_metadata import Event, MemoryRemoteMetadata, RemoteMetadataLog

_LAGS_S: Final = (0.001, 0.001, 0.02, 0.4)
"""Mean delays of a consumer; each process draws one."""
_LOADING_S: Final = 0.1
"""Mean time to load a partition."""


class LaggingRemoteMetadata(MemoryRemoteMetadata):
    """One process's RemoteLogMetadataManager. A write is done once this process has read it, as in KIP-405."""

    def __init__(
        self, log: RemoteMetadataLog, process: TaskProcess, random: Random, is_disturbed: Callable[[], bool]
    ) -> None:
        """`is_disturbed` tells whether the faults last."""
        super().__init__(log, make_future=process.create_future)
        self._process = process
        self._random = random
        self._lag_s = random.choice(_LAGS_S)
        self._is_disturbed = is_disturbed
        self._due_s = 0.0
        self._copies: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
        self._read = 0
        """Number of events read."""
        self._unread_writes: list[tuple[int, asyncio.Future[None]]] = []
        for event in log.events:
            self._take(event)
        log.observers[:] = [each for each in log.observers if not _is_of_dead(each)]
        log.observers.append(self._on_event)

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    def assign(self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]) -> None:
        leading, following = set(leaders), set(followers)
        new = sorted((leading | following) - self.leaders - self.followers, key=lambda each: each.partition)
        self.not_ready.update(new)
        super().assign(leading, following)
        for partition in new:
            self._process.call_later(self._random.expovariate(1.0 / _LOADING_S), self.become_ready, partition)

    def _on_event(self, event: Event) -> None:
        if self.is_alive:
            now_s, lag_s = self._process.time(), self._lag_s if self._is_disturbed() else _LAGS_S[0]
            self._due_s = max(self._due_s, now_s + self._random.expovariate(1.0 / lag_s))
            self._process.call_later(self._due_s - now_s, self._take_next)

    def _take_next(self) -> None:
        self._take(self.log.events[self._read])

    def _take(self, event: Event) -> None:
        self._read += 1
        match event:
            case RemoteSegment():
                self._shared(event.id.partition).add(event)
            case SegmentUpdate():
                self._shared(event.id.partition).update(event)
            case PartitionDelete():
                self._shared(event.partition).delete_partition(event)
        while self._unread_writes and self._unread_writes[0][0] <= self._read:
            _, done = self._unread_writes.pop(0)
            if not done.done():
                done.set_result(None)

    def _shared(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        copy = self._copies.get(partition)
        if copy is None:
            copy = self._copies[partition] = RemoteLogMetadataCache(partition)
        return copy

    def _publish(self, partition: TopicIdPartition, event: Event) -> Awaitable[None]:
        written = super()._publish(partition, event)
        done: asyncio.Future[None] = self._process.create_future()
        assert isinstance(written, asyncio.Future)
        written.add_done_callback(lambda future: self._on_written(future, done))
        return done

    def _on_written(self, written: "asyncio.Future[None]", done: "asyncio.Future[None]") -> None:
        if done.done():
            return
        error = written.exception()
        if error is not None:
            done.set_exception(error)
        elif self._read >= len(self.log.events):
            done.set_result(None)
        else:
            self._unread_writes.append((len(self.log.events), done))


def _is_of_dead(observer: object) -> bool:
    owner = getattr(observer, "__self__", None)
    return isinstance(owner, LaggingRemoteMetadata) and not owner.is_alive
