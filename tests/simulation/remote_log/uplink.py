"""Uploads that take simulated time: the copier reads a part of the segment, waits, and goes on.

Work on the pool cannot wait without a thread. So an upload that has to wait raises `Pause`, and the pool runs the work
again later; the store is called at the end.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeVar

from protocol.primitives import Uuid
from storage.tiered.remote_storage import SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.store import ObjectSegmentStore

T = TypeVar("T")

STEPS: Final = 12
"""Parts of a slow upload."""


class Pause(BaseException):
    """The upload goes on after some seconds. Derived from BaseException: no handler of ordinary errors may catch it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class PausingPool:
    """A WorkPool on the running loop. Work that raises Pause runs again later, and results arrive `answer_s()` later.

    Once the pool `is_dead`, like its process, no work runs and no result arrives.
    """

    def __init__(self, answer_s: Callable[[], float]) -> None:
        self._answer_s = answer_s
        self.is_dead = False

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            if self.is_dead or future.cancelled():
                return
            try:
                result = work()
            except Pause as pause:
                loop.call_later(pause.seconds, run)
            except Exception as error:  # noqa: BLE001  it is the submitter's, whatever it is
                answer(lambda error=error: future.set_exception(error))  # type: ignore[misc]
            else:
                answer(lambda: future.set_result(result))

        def answer(settle: Callable[[], None]) -> None:
            def arrive() -> None:
                if not (self.is_dead or future.cancelled()):
                    settle()

            loop.call_later(self._answer_s(), arrive)

        loop.call_later(0.0, run)
        return future


class Uplink:
    """The uploads of one process; `upload_s` returns the duration of the next upload.

    `running` has the start offsets of segments whose upload has begun; `uploaded` are segments whose upload the store
    has acknowledged.
    """

    def __init__(self, store: ObjectSegmentStore, upload_s: Callable[[], float]) -> None:
        self._store = store
        self._upload_s = upload_s
        self._steps: dict[Uuid, tuple[int, float]] = {}
        self.running: dict[Uuid, int] = {}
        self.uploaded: set[Uuid] = set()

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Copy a segment; see RemoteStorageManager. Raises Pause."""
        id = segment.id.id
        self.running[id] = segment.start_offset
        step, pause_s = self._steps.get(id) or (0, self._upload_s() / STEPS)
        self._steps[id] = step + 1, pause_s
        if step < STEPS:
            with closing(files.fs.open_existing(files.log)) as log:
                log.read(0, segment.size_bytes * step // STEPS)
            raise Pause(pause_s)
        try:
            custom_metadata = self._store.copy_segment(segment, files)
        finally:
            self.running.pop(id, None)
        self.uploaded.add(id)
        return custom_metadata

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)
