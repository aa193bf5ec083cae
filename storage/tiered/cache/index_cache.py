"""Cache of remote segment indexes on the local disk (KIP-405): `remote-log-index-cache`, bounded by bytes.

Each segment has three files with Apache Kafka's names, so each broker can use the other's files:

    <start offset>_<segment id>.index | .timeindex | .txnindex

All three are fetched when the first is needed, written aside (`.tmp`) and renamed. A restart removes files of
interrupted writes and of interrupted deletions (`.deleted`). The least recently used segment is evicted first. Readers
hold the files open, so an eviction may unlink them at any time.

Cached files may rot. Kafka checks an index when it opens it and trusts it afterwards. Here the checksums of the time
and transaction indexes, whose errors would look like valid results, are kept in memory and compared on every read. The
offset index is trusted: a wrong position shows in the batch found there (`segments/reading.py`), and a checksum would
require reading the whole index on each look-up.

Only the transaction index is synced. A truncated or zeroed offset or time index only makes a reader start earlier, and
a sync for each would dominate the latency between one segment and the next.

Everything blocks and is thread-safe.
"""

import contextlib
import math
import re
import struct
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from operator import le
from sys import byteorder
from typing import Final

from cachetools import LRUCache

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from protocol.records.compiled import crc32c
from storage.files import ASIDE_SUFFIX, File, FileSystem, join, write_file
from storage.index.offset import ENTRY as OFFSET_ENTRY
from storage.index.time import ENTRY as TIME_ENTRY
from storage.index.transaction import ENTRY as TXN_ENTRY
from storage.index.transaction import AbortedTxn
from storage.tiered.errors import CorruptRemoteData, RemoteResourceNotFound, RetriableRemoteStorageError
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment

DIRECTORY_NAME: Final = "remote-log-index-cache"
KINDS: Final = (IndexKind.OFFSET, IndexKind.TIME, IndexKind.TRANSACTION)
_DELETED_SUFFIX: Final = ".deleted"
_NAME: Final = re.compile(r"(\d+)_([A-Za-z0-9_-]{22})\.(index|timeindex|txnindex)")


class SegmentIndexes:
    """Open indexes of one segment; `hold` closes them. Offsets are looked up in the file, the other indexes are in
    memory.
    """

    def __init__(self, start_offset: int, files: Mapping[IndexKind, File], contents: Mapping[IndexKind, bytes]) -> None:
        self._start_offset = start_offset
        self._files = files
        self._contents = contents

    def position_of(self, offset: int) -> int:
        """Return the position in the segment from which to search for `offset`."""
        file = self._files[IndexKind.OFFSET]
        found = _floor(file.read, file.size(), OFFSET_ENTRY, offset - self._start_offset)
        return 0 if found is None else found[1]

    def offset_before(self, timestamp: int) -> int:
        """Return an offset below which no record has a timestamp of `timestamp` or later."""
        times = self._contents[IndexKind.TIME]
        found = _floor(lambda at, size: times[at : at + size], len(times), TIME_ENTRY, timestamp)
        return self._start_offset if found is None else self._start_offset + found[1]

    def aborted(self) -> list[AbortedTxn]:
        """Return the aborted transactions whose markers are in the segment, in marker order."""
        return [AbortedTxn(*fields[1:]) for fields in TXN_ENTRY.iter_unpack(self._contents[IndexKind.TRANSACTION])]

    def close(self) -> None:
        _close(self._files.values())


def _floor(read: Callable[[int, int], bytes], size: int, entry: struct.Struct, key: int) -> tuple[int, int] | None:
    """Return the last entry whose key is at most `key`."""
    low, high = 0, size // entry.size
    found: tuple[int, int] | None = None
    while low < high:
        middle = (low + high) // 2
        candidate: tuple[int, int] = entry.unpack(read(middle * entry.size, entry.size))
        if candidate[0] <= key:
            low, found = middle + 1, candidate
        else:
            high = middle
    return found


@lazy_dataclass(slots=True, eq=False)
class _Entry:
    """Cached indexes of one segment. `checksums` cover the indexes that are read whole; None until they are validated
    after a restart.
    """

    stem: str
    size_bytes: int
    checksums: dict[IndexKind, int] | None

    def path(self, kind: IndexKind) -> str:
        return f"{self.stem}.{kind.value}"

    def paths(self) -> list[str]:
        return [self.path(kind) for kind in KINDS]


class IndexCache:
    """Index cache in `directory`, which it owns; the first use creates the directory or takes over its files."""

    def __init__(self, fs: FileSystem, directory: str, storage: RemoteStorageManager, max_bytes: int) -> None:
        self._fs = fs
        self._directory = directory
        self._storage = storage
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: LRUCache[Uuid, _Entry] = LRUCache(math.inf, getsizeof=lambda entry: entry.size_bytes)
        self._fetching: dict[Uuid, Future[None]] = {}
        self._is_loaded = False
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    @property
    def size_bytes(self) -> int:
        """Size of the cached indexes."""
        return int(self._entries.currsize)

    def __len__(self) -> int:
        """Return the number of cached segments."""
        return len(self._entries)

    @contextlib.contextmanager
    def hold(self, segment: RemoteSegment, *kinds: IndexKind) -> Iterator[SegmentIndexes]:
        """Open the indexes `kinds` of a segment, or all; fetch them if necessary.

        Raises RemoteResourceNotFound, RetriableRemoteStorageError (also for local disk failures), RemoteStorageError,
        and CorruptRemoteData if the fetched indexes are invalid.
        """
        try:
            indexes = self._open(segment, kinds or KINDS)
        except OSError as error:
            raise RetriableRemoteStorageError(f"index cache of {segment.id}: {error}") from error
        try:
            yield indexes
        except OSError as error:
            raise RetriableRemoteStorageError(f"index cache of {segment.id}: {error}") from error
        finally:
            indexes.close()

    def forget(self, segments: Iterable[Uuid]) -> None:
        """Drop the indexes of segments, because they expired or the cached files are wrong."""
        with self._lock:
            dropped = [entry for id in segments if (entry := self._detach(id)) is not None]
        self._remove(dropped)

    def resize(self, max_bytes: int) -> None:
        """Apply a new bound at once (`remote.log.index.file.cache.total.size.bytes`)."""
        with self._lock:
            self._max_bytes = max_bytes
            evicted = self._evict()
        self._remove(evicted)

    # ---- readers

    def _open(self, segment: RemoteSegment, kinds: Sequence[IndexKind]) -> SegmentIndexes:
        self._load_once()
        while True:
            indexes = self._open_cached(segment, kinds)
            if indexes is not None:
                return indexes
            self._fetch_once(segment)

    def _open_cached(self, segment: RemoteSegment, kinds: Sequence[IndexKind]) -> SegmentIndexes | None:
        """Return valid cached indexes or None. Files are opened under the lock, which excludes evictions."""
        with self._lock:
            entry = self._entries.get(segment.id.id)
            if entry is None:
                return None
            try:
                files = self._open_files(entry, KINDS if entry.checksums is None else kinds)
            except FileNotFoundError:  # an operator removed the files
                self._detach(segment.id.id)
                return None
        try:
            contents = self._valid_contents(segment, entry, files)
        except BaseException:
            _close(files.values())
            raise
        if contents is None:
            _close(files.values())
            self._forget_entry(segment.id.id, entry)
            return None
        self.hits += 1
        return SegmentIndexes(segment.start_offset, files, contents)

    def _valid_contents(
        self, segment: RemoteSegment, entry: _Entry, files: Mapping[IndexKind, File]
    ) -> dict[IndexKind, bytes] | None:
        """Return the contents of the indexes that are read whole; None if they are damaged.

        Files of a former process must fit the segment. An empty offset index may be the result of a crash, and is
        cheaper to fetch again than to do without.
        """
        if entry.checksums is not None:
            contents = {kind: file.read(0, file.size()) for kind, file in files.items() if kind in entry.checksums}
            return contents if _checksums(contents).items() <= entry.checksums.items() else None
        contents = {kind: file.read(0, file.size()) for kind, file in files.items()}
        if not contents[IndexKind.OFFSET] or not _are_valid(segment, list(contents.values())):
            return None
        entry.checksums = _checksums(contents)
        return contents

    def _forget_entry(self, id: Uuid, entry: _Entry) -> None:
        """Drop an entry unless another has replaced it."""
        with self._lock:
            if self._entries.get(id) is not entry:
                return
            self._detach(id)
        self._remove([entry])

    def _open_files(self, entry: _Entry, kinds: Sequence[IndexKind]) -> dict[IndexKind, File]:
        files: dict[IndexKind, File] = {}
        try:
            for kind in kinds:
                files[kind] = self._fs.open_existing(entry.path(kind))
        except OSError:
            _close(files.values())
            raise
        return files

    # ---- fetching

    def _fetch_once(self, segment: RemoteSegment) -> None:
        """Fetch the indexes in one of the requesting threads; the others wait and share its failure."""
        with self._lock:
            if segment.id.id in self._entries:
                return
            others = self._fetching.get(segment.id.id)
            if others is None:
                mine = self._fetching[segment.id.id] = Future[None]()
        if others is not None:
            others.result()
            return
        try:
            entry = self._fetch(segment)
        except BaseException as error:
            self._end_fetch(segment.id.id, None)
            mine.set_exception(error)
            raise
        evicted = self._end_fetch(segment.id.id, entry)
        mine.set_result(None)
        self._remove(evicted)

    def _end_fetch(self, id: Uuid, entry: _Entry | None) -> list[_Entry]:
        with self._lock:
            del self._fetching[id]
            if entry is None:
                return []
            self.misses += 1
            self._entries[id] = entry
            return self._evict(keep=1)

    def _fetch(self, segment: RemoteSegment) -> _Entry:
        contents = [self._content(segment, kind) for kind in KINDS]
        if not _are_valid(segment, contents):
            raise CorruptRemoteData(f"the indexes of {segment.id} do not fit the segment")
        stem = join(self._directory, f"{segment.start_offset}_{uuid_to_text(segment.id.id)}")
        entry = _Entry(stem, sum(map(len, contents)), _checksums(dict(zip(KINDS, contents, strict=True))))
        for kind, path, content in zip(KINDS, entry.paths(), contents, strict=True):
            is_essential = kind is IndexKind.TRANSACTION and bool(content)
            write_file(self._fs, path + ASIDE_SUFFIX, content, sync=is_essential)
        for path in entry.paths():
            self._fs.rename(path + ASIDE_SUFFIX, path)
        return entry

    def _content(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        if kind is not IndexKind.TRANSACTION:
            return self._storage.read_index(segment, kind)
        if segment.txn_index_empty:
            return b""
        try:
            return self._storage.read_index(segment, kind)
        except RemoteResourceNotFound:  # the segment has no aborted transactions
            return b""

    # ---- room

    def _evict(self, keep: int = 0) -> list[_Entry]:
        """Take out the least recently used entries until the rest fits, but leave `keep`, however large they are."""
        evicted: list[_Entry] = []
        while self.size_bytes > self._max_bytes and len(self._entries) > keep:
            _, entry = self._entries.popitem()
            self._mark_deleted(entry)
            evicted.append(entry)
        self.evictions += len(evicted)
        return evicted

    def _detach(self, id: Uuid) -> _Entry | None:
        entry = self._entries.pop(id, None)
        if entry is not None:
            self._mark_deleted(entry)
        return entry

    def _mark_deleted(self, entry: _Entry) -> None:
        """Rename the files under the lock, so that the same segment can be cached again at once; `_remove` follows."""
        for path in entry.paths():
            with contextlib.suppress(FileNotFoundError):
                self._fs.rename(path, path + _DELETED_SUFFIX)

    def _remove(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            for path in entry.paths():
                self._fs.remove(path + _DELETED_SUFFIX)

    # ---- start

    def _load_once(self) -> None:
        """Take over the files of a former process."""
        with self._lock:
            if self._is_loaded:
                return
            self._fs.make_directory(self._directory)
            self._take_over(self._fs.list(self._directory))
            self._is_loaded = True
            evicted = self._evict()
        self._remove(evicted)

    def _take_over(self, names: Sequence[str]) -> None:
        """Restore the entries in order of modification time; contents are validated on first use."""
        found: dict[str, set[str]] = {}
        for name in names:
            if name.endswith((ASIDE_SUFFIX, _DELETED_SUFFIX)):
                self._fs.remove(join(self._directory, name))
            elif _NAME.fullmatch(name):
                stem, _, suffix = name.rpartition(".")
                found.setdefault(stem, set()).add(suffix)
        whole = [self._former_entry(stem) for stem, suffixes in found.items() if self._is_complete(stem, suffixes)]
        for _, id, entry in sorted(whole, key=lambda left: left[0]):
            self._entries[id] = entry

    def _is_complete(self, stem: str, suffixes: set[str]) -> bool:
        if len(suffixes) == len(KINDS):
            return True
        for suffix in suffixes:
            self._fs.remove(join(self._directory, f"{stem}.{suffix}"))
        return False

    def _former_entry(self, stem: str) -> tuple[int, Uuid, _Entry]:
        entry = _Entry(join(self._directory, stem), 0, None)
        paths = entry.paths()
        entry.size_bytes = sum(self._fs.size(path) for path in paths)
        return self._fs.modified_ms(paths[0]), uuid_from_text(stem.partition("_")[2]), entry


def _checksums(contents: Mapping[IndexKind, bytes]) -> dict[IndexKind, int]:
    """Return the checksums of the indexes that are read whole."""
    return {kind: crc32c(content) for kind, content in contents.items() if kind is not IndexKind.OFFSET}


def _close(files: Iterable[File]) -> None:
    for file in files:
        file.close()


def _are_valid(segment: RemoteSegment, contents: Sequence[bytes]) -> bool:
    """Whether the indexes fit the segment: whole entries, ascending, within its bounds."""
    offsets, times, transactions = contents
    if len(offsets) % OFFSET_ENTRY.size or len(times) % TIME_ENTRY.size or len(transactions) % TXN_ENTRY.size:
        return False
    span = segment.end_offset - segment.start_offset
    values = array("i", offsets)
    if byteorder == "little":
        values.byteswap()
    timed = list(TIME_ENTRY.iter_unpack(times))
    return (
        _ascend(values[0::2], span)
        and _ascend(values[1::2], max(0, segment.size_bytes - 1))
        and _ascend([time for time, _ in timed], None)
        and _ascend([offset for _, offset in timed], span)
        and _ascend([fields[3] - segment.start_offset for fields in TXN_ENTRY.iter_unpack(transactions)], span)
    )


def _ascend(values: Sequence[int], last: int | None) -> bool:
    """Whether the values never decrease and, with `last`, lie within [0, last]."""
    if not values:
        return True
    within = last is None or (values[0] >= 0 and values[-1] <= last)
    return within and all(map(le, values, values[1:]))
