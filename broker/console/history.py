"""The metadata log of this node as history: the image at an offset, and the changes of a span of the log.

Snapshots divide the log into spans. The image at an offset is the newest snapshot below it with the records after it;
the changes of a span are those of its batches, replayed on its snapshot. The event loop reads the log in chunks, and a
thread decodes and replays them: one replay at a time, with results kept in small caches.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from cachetools import LRUCache

from broker.console.request import not_found
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.records import decode_record
from broker.metadata.image.slices import finish
from broker.metadata.snapshot.load import SnapshotLoad
from broker.metadata.timeline.change import Change
from broker.metadata.timeline.sentences import IsSecret, describe
from broker.quorum.identity import SnapshotId
from broker.runtime.loop.runtime import Runtime
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers
from protocol.records.reader import iter_records
from storage.local_log import LogSlice

T = TypeVar("T")

CHUNK_BYTES: Final = 256 * 1024
PAGE_BYTES: Final = 256 * 1024
IMAGES_MAX: Final = 4
SPANS_MAX: Final = 3
CHANGES_MAX: Final = 20_000
"""Changes kept for a span, the newest."""


class HistoryLog(Protocol):
    """The part of the metadata log that the history reads."""

    @property
    def log_start_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice: ...

    def warm(self, found: LogSlice) -> None: ...

    def read_snapshot_page(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes: ...


class LoggedChange(NamedTuple):
    """A change with its place in the log."""

    offset: int
    time_ms: int
    change: Change


class Bounds(NamedTuple):
    """The part of the log that images exist for: offsets from `first` to `last`, and snapshots by end offset."""

    first: int
    last: int
    snapshots: Sequence[SnapshotId]


@lazy_dataclass(slots=True)
class _Replay:
    """A position in the log, the image there, and the changes on the way; complete up to `next_offset`."""

    loader: MetadataLoader
    next_offset: int
    changes: deque[LoggedChange] = field(default_factory=lambda: deque(maxlen=CHANGES_MAX))
    first_time_ms: int | None = None
    last_time_ms: int | None = None


@lazy_dataclass(frozen=True, slots=True)
class LogAccess:
    """The metadata log and its state: committed end, snapshots, and whether another thread truncates it."""

    log: HistoryLog
    high_watermark: Callable[[], int]
    is_truncating: Callable[[], bool]
    snapshots: Callable[[], Sequence[SnapshotId]]


class MetadataHistory:
    """Images and changes of the past.

    A replay runs on when the request that began it ends: a thread may be at work on its state.
    """

    def __init__(self, access: LogAccess, runtime: Runtime, is_secret: IsSecret) -> None:
        self._access = access
        self._io = runtime.io
        self._is_secret = is_secret
        self._images: LRUCache[int, MetadataImage] = LRUCache(IMAGES_MAX)
        self._spans: LRUCache[int, _Replay] = LRUCache(SPANS_MAX)
        self._turn = asyncio.Lock()
        self._replays: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Begin nothing more."""
        for task in self._replays:
            task.cancel()

    async def bounds(self) -> Bounds:
        """Return the offsets and snapshots that exist now."""
        snapshots = sorted(await self._io.submit(self._access.snapshots), key=lambda each: each.end_offset)
        start = self._access.log.log_start_offset
        usable = [each for each in snapshots if each.end_offset >= start]
        first = start if start == 0 or not usable else max(start, usable[0].end_offset) - 1
        return Bounds(max(0, first), self._access.high_watermark() - 1, usable)

    async def image_at(self, offset: int) -> MetadataImage:
        """Return the image after all batches that end at or below `offset`. Raise ConsoleError outside the log."""
        image = self._images.get(offset)
        return image if image is not None else await self._in_turn(partial(self._image_at, offset))

    async def _image_at(self, offset: int) -> MetadataImage:
        if offset not in self._images:
            bounds = await self.bounds()
            if not bounds.first <= offset <= bounds.last:
                raise not_found(f"The metadata log has offsets from {bounds.first} to {bounds.last}.")
            replay = await self._begin(_base_of(bounds, offset + 1))
            await self._advance(replay, offset + 1, with_changes=False)
            self._images[offset] = replay.loader.image
        return self._images[offset]

    async def changes(self, before: int, limit: int) -> tuple[list[LoggedChange], int | None]:
        """Return changes below offset `before`, the newest first, and the offset to continue from; None at the end.

        A call reads one span at most, so that it may return fewer changes than exist.
        """
        return await self._in_turn(partial(self._changes, before, limit))

    async def _changes(self, before: int, limit: int) -> tuple[list[LoggedChange], int | None]:
        bounds = await self.bounds()
        end = min(before, bounds.last + 1)
        base = _base_of(bounds, end - 1) if end > 0 else None
        if base is None and self._access.log.log_start_offset > 0:
            return [], None
        begin = 0 if base is None else base.end_offset
        replay = self._spans.get(begin)
        if replay is None:
            replay = self._spans[begin] = await self._begin(base)
        following = [each.end_offset for each in bounds.snapshots if each.end_offset > begin]
        await self._advance(replay, min([*following, bounds.last + 1]), with_changes=True)
        found: list[LoggedChange] = []
        for each in reversed(replay.changes):
            if each.offset < end:
                if len(found) >= limit and each.offset != found[-1].offset:
                    return found, found[-1].offset
                found.append(each)
        return found, begin if begin > bounds.first else None

    async def _in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, which runs after all that came before it."""

        async def run() -> T:
            async with self._turn:
                return await work()

        task = asyncio.ensure_future(run())
        self._replays.add(task)
        task.add_done_callback(self._replays.discard)
        result: T = await asyncio.shield(task)
        return result

    async def _begin(self, base: SnapshotId | None) -> _Replay:
        loader = MetadataLoader(supported=None)
        if base is None:
            return _Replay(loader, 0)
        load = SnapshotLoad(base.end_offset, base.epoch, EMPTY_IMAGE, is_compared=False, is_indexed=False)
        image = await asyncio.to_thread(_load, load, partial(self._access.log.read_snapshot_page, base))
        if base.end_offset > 0:
            loader.install(image)
        return _Replay(loader, base.end_offset)

    async def _advance(self, replay: _Replay, end: int, *, with_changes: bool) -> None:
        """Replay up to offset `end`. Raise ConsoleError if the log was cut meanwhile."""
        access = self._access
        while replay.next_offset < end:
            if access.is_truncating() or replay.next_offset < access.log.log_start_offset:
                raise not_found("The metadata log is being changed; try again.")
            found = access.log.read(replay.next_offset, CHUNK_BYTES, end)
            if not found.data:
                return
            if found.cold:
                await self._io.submit(partial(access.log.warm, found))
            secret = self._is_secret if with_changes else None
            await asyncio.to_thread(_replay, replay, found.data, end, secret)
            if not with_changes and replay.next_offset < found.next_offset:
                return


def _base_of(bounds: Bounds, end: int) -> SnapshotId | None:
    """Return the newest snapshot that ends at or below `end`; None for the beginning of the log."""
    usable = [each for each in bounds.snapshots if each.end_offset <= end]
    return usable[-1] if usable else None


def _load(load: SnapshotLoad, page: Callable[[int, int], bytes]) -> MetadataImage:
    position = 0
    while piece := page(position, PAGE_BYTES):
        finish(load.take(piece))
        position += len(piece)
    return finish(load.finish()).image


def _replay(replay: _Replay, data: Buffer, end: int, is_secret: IsSecret | None) -> None:
    """Replay the batches of a chunk that end below `end`; `is_secret` asks for their changes."""
    for position, header in iter_headers(data):
        if header.last_offset >= end:
            return
        frames = () if header.is_control else [record.value or b"" for record in iter_records(data, position)]
        batch = RecordBatch(
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.max_timestamp,
            [decode_record(frame) for frame in frames],
        )
        published = replay.loader.load([batch])
        replay.next_offset = header.last_offset + 1
        if not header.is_control:
            replay.last_time_ms = header.max_timestamp
            if replay.first_time_ms is None:
                replay.first_time_ms = header.max_timestamp
        if is_secret is not None:
            for change in describe(published.delta, is_secret):
                replay.changes.append(LoggedChange(header.last_offset, header.max_timestamp, change))
