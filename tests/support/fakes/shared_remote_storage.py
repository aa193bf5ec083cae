"""Remote storage in memory, shared by several brokers, and a pool without threads, for tests of copying and deleting.

A test injects faults: `fault(operation, segment)` may return a `Fault`. The storage knows its objects, so tests can
find orphans.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeVar

from protocol.primitives import Uuid
from storage.files import read_file
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.remote_storage import IndexKind, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment

T = TypeVar("T")

Operation = Literal["copy", "read", "index", "delete"]


@dataclass(frozen=True, slots=True)
class Fault:
    """`error` is raised; with `applies`, after the work was done, like a lost response."""

    error: Exception
    applies: bool = False


@dataclass(slots=True)
class Stored:
    segment: RemoteSegment
    log: bytes
    indexes: dict[IndexKind, bytes] = field(default_factory=dict)


FaultPlan = Callable[[Operation, RemoteSegment], Fault | None]


class SharedRemoteStorage:
    """Implements RemoteStorageManager. `stored` is by segment id; `calls` are (operation, base offset) in order."""

    def __init__(self, fault: FaultPlan | None = None, *, custom_metadata: bytes | None = None) -> None:
        self.stored: dict[Uuid, Stored] = {}
        self.calls: list[tuple[Operation, int]] = []
        self.custom_metadata = custom_metadata
        self.fault: FaultPlan = fault or (lambda operation, segment: None)

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        fault = self._begin("copy", segment)
        self.stored[segment.id.id] = Stored(segment, read_file(files.fs, files.log), _indexes(files))
        _end(fault)
        return self.custom_metadata

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        _end(self._begin("read", segment))
        content = memoryview(self._stored(segment).log)
        yield content[first:] if last is None else content[first : last + 1]

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        _end(self._begin("index", segment))
        content = self._stored(segment).indexes.get(kind)
        if content is None:
            raise RemoteResourceNotFound(f"{segment.id} has no {kind.value}")
        return content

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        """Do nothing: there is no cache."""

    def discard(self, segment: RemoteSegment) -> None:
        """Do nothing: there is no cache."""

    def location(self, segment: RemoteSegment) -> str:
        return str(segment.id)

    def delete_segment(self, segment: RemoteSegment) -> None:
        fault = self._begin("delete", segment)
        self.stored.pop(segment.id.id, None)
        _end(fault)

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def _begin(self, operation: Operation, segment: RemoteSegment) -> Fault | None:
        self.calls.append((operation, segment.start_offset))
        fault = self.fault(operation, segment)
        if fault is not None and not fault.applies:
            raise fault.error
        return fault

    def _stored(self, segment: RemoteSegment) -> Stored:
        stored = self.stored.get(segment.id.id)
        if stored is None:
            raise RemoteResourceNotFound(f"{segment.id} is not there")
        return stored


def _end(fault: Fault | None) -> None:
    if fault is not None:
        raise fault.error


def _indexes(files: SegmentFiles) -> dict[IndexKind, bytes]:
    paths = {
        IndexKind.OFFSET: files.offset_index,
        IndexKind.TIME: files.time_index,
        IndexKind.TRANSACTION: files.transaction_index,
        IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
    }
    found = {kind: read_file(files.fs, path) for kind, path in paths.items() if path is not None}
    return {**found, IndexKind.LEADER_EPOCH: files.leader_epochs}


class DelayedPool:
    """A WorkPool on the running loop: work runs completely `delay_s()` after its submission, and its result arrives
    `answer_s()` later.

    Once it `is_dead`, like its process, no work runs and no result arrives.
    """

    def __init__(self, delay_s: Callable[[], float] = lambda: 0.0, answer_s: Callable[[], float] = lambda: 0.0) -> None:
        self._delay_s = delay_s
        self._answer_s = answer_s
        self.submitted = 0
        self.is_dead = False

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.submitted += 1

        def run() -> None:
            if self.is_dead or future.cancelled():
                return
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  it is the submitter's, whatever it is
                settle = partial(future.set_exception, error)
            else:
                settle = partial(future.set_result, result)
            late_s = self._answer_s()
            if late_s:
                loop.call_later(late_s, answer, settle)
            else:
                answer(settle)

        def answer(settle: Callable[[], None]) -> None:
            if not (self.is_dead or future.cancelled()):
                settle()

        loop.call_later(self._delay_s(), run)
        return future
