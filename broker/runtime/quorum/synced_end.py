"""The file `ottla-synced-end`: a lower bound of the synced end of the metadata log.

Recovery compares it with the end of the log: a log that ends below it has lost records to rot, and was not merely torn
by a power failure (`storage/synced_records.py`). Apache Kafka ignores files with such names.

The file has two slots of one sector each, a line of JSON with a checksum in each. Writes of one generation go to one
slot; the other slot holds the generation before and is on disk. Every fsync of the log writes the slot; after
`_SAVE_EVERY` of them `save` fsyncs it, which delays no acknowledgement, and begins the next generation. Thus a power
failure tears at most the newer slot, and brings back a bound that is about `_SAVE_EVERY` fsyncs old; after a kill the
bound is exact.

Before each fsync of the log, the active segment gets the bound as an attribute, the mark, which the same fsync makes
durable: after a power failure the bound lacks the last fsync alone. No record can prove the last fsync unless
acknowledgements wait for a second one. File systems without attributes have the slots only.

A bound that is too low only weakens the check. One that is too high would stop a sound node, so that the bound is
lowered durably before the log is truncated. A mark counts only with the slots' number of truncations.
"""

import json
import struct
import threading
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from protocol.records.compiled import crc32c
from storage.checked_json import encode_checked
from storage.files import File, FileSystem, join
from storage.segment import LOG_SUFFIX

FILE_NAME: Final = "ottla-synced-end"
_SLOT_BYTES: Final = 512
_SAVE_EVERY: Final = 16
"""Number of fsyncs of the log for each fsync of this file: a slow disk is hardly slowed down further."""
_MARK: Final = struct.Struct(">qq")
_CHECKSUM: Final = struct.Struct(">I")


class _Slot(NamedTuple):
    generation: int
    end: int
    truncations: int


class _Mark(NamedTuple):
    truncations: int
    end: int


class SyncedEndFile:
    """The file in the directory of the metadata log. Methods block, and may be called from several threads.

    Call `read` first. OSError passes through.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._path = join(directory, FILE_NAME)
        self._lock = threading.Lock()
        self._file: File | None = None
        self._generation = 0
        """The generation that the next write belongs to."""
        self._end = 0
        self._truncations = 0
        """How many times the bound was lowered."""
        self._unsynced = 0
        self._is_closed = False

    def read(self) -> int:
        """Return the bound; 0 if it is unknown."""
        with self._lock:
            marks = list(self._marks())
            newest = max(self._slots(), default=None)
            if newest is not None:
                self._generation, self._truncations = newest.generation + 1, newest.truncations
                self._end = max(newest.end, *(mark.end for mark in marks if mark.truncations == newest.truncations), 0)
            self._truncations = max(self._truncations, *(mark.truncations for mark in marks), 0)
            return self._end

    def mark(self) -> bytes:
        """Return the bound for the attribute of the active segment. Call this before an fsync of the log."""
        with self._lock:
            fields = _MARK.pack(self._truncations, self._end)
            return fields + _CHECKSUM.pack(crc32c(fields))

    def advance(self, end: int) -> None:
        """Raise the bound to an end offset that an fsync of the log has covered."""
        with self._lock:
            if end <= self._end or self._is_closed:
                return
            self._write(end)
            self._unsynced += 1

    @property
    def is_due(self) -> bool:
        """Whether it is time to call `save`."""
        return self._unsynced >= _SAVE_EVERY

    def save(self) -> None:
        """Fsync the bound, unless another call has since it was due."""
        with self._lock:
            if self.is_due and not self._is_closed:
                self._sync()

    def lower(self, end: int) -> None:
        """Lower the bound durably, unless it is low enough. Call this before a truncation of the log to `end`."""
        with self._lock:
            if end < self._end:
                self._truncations += 1
                self._write(end)
                self._sync()
                self._write(end)  # the other slot would otherwise count if this one rotted

    def replace(self, end: int) -> None:
        """Replace the bound durably, except for the name of a new file. No present mark counts afterwards."""
        with self._lock:
            self._truncations += 1
            self._write(end)
            self._sync()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                self._file.close()
                self._file = None

    def _slots(self) -> Iterator[_Slot]:
        """Yield the valid slots."""
        if self._fs.exists(self._path):
            content = self._opened().read(0, 2 * _SLOT_BYTES)
            for start in (0, _SLOT_BYTES):
                slot = _parse(content[start : start + _SLOT_BYTES])
                if slot is not None:
                    yield slot

    def _marks(self) -> Iterator[_Mark]:
        """Yield the valid marks of all segments."""
        names = self._fs.list(self._directory) if self._fs.exists(self._directory) else []
        for name in names:
            if name.endswith(LOG_SUFFIX):
                file = self._fs.open_existing(join(self._directory, name))
                try:
                    mark = file.attribute()
                finally:
                    file.close()
                fields = mark[: _MARK.size]
                if mark[_MARK.size :] == _CHECKSUM.pack(crc32c(fields)):
                    yield _Mark(*_MARK.unpack(fields))

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._fs.open(self._path)
        return self._file

    def _write(self, end: int) -> None:
        slot = _Slot(self._generation, end, self._truncations)
        self._opened().write(self._generation % 2 * _SLOT_BYTES, _content(slot))
        self._end = end

    def _sync(self) -> None:
        self._opened().sync()
        self._generation += 1
        self._unsynced = 0


def _content(slot: _Slot) -> bytes:
    content = encode_checked({"generation": slot.generation, "syncedEnd": slot.end, "truncations": slot.truncations})
    return content.ljust(_SLOT_BYTES - 1) + b"\n"


def _parse(content: bytes) -> _Slot | None:
    """Return the content of a slot; None if it was never written, torn, or is damaged."""
    try:
        fields: dict[str, Any] = json.loads(content)
        slot = _Slot(fields["generation"], fields["syncedEnd"], fields["truncations"])
    except (ValueError, KeyError, TypeError):
        return None
    return slot if content == _content(slot) else None
