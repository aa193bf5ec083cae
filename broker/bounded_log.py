"""A log file of bounded size: the output of another process, or decisions for audits."""

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 8 * 1024 * 1024
KEPT_FILES = 3
"""Number of older files; `ottla.log.1` is the newest of them."""


class BoundedLog:
    """Appends bytes to `path`; at `max_bytes`, rotates the file.

    Data that cannot be written is dropped, and a later line says how much: a full disk must stop neither the node nor
    its supervisor.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, kept_files: int = KEPT_FILES, mode: int = 0o666
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        self._mode = mode
        self._file: BinaryIO | None = None
        self._size = 0
        self._lost_bytes = 0

    def write(self, data: bytes) -> None:
        """Append `data`, which is never split between two files."""
        note = b"" if not self._lost_bytes else b"(%d bytes of output could not be written here)\n" % self._lost_bytes
        try:
            self._append(note + data)
        except OSError:
            self._lost_bytes += len(data)
            self.close()
        else:
            self._lost_bytes = 0

    def close(self) -> None:
        """Close the file. A later write opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, data: bytes) -> None:
        file = self._open()
        if self._size and self._size + len(data) > self._max_bytes:
            self._set_aside()
            file = self._open()
        written = file.write(data)
        self._size += written
        if written < len(data):
            raise OSError(f"{len(data) - written} of {len(data)} bytes were not written")

    def _open(self) -> BinaryIO:
        if self._file is None:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, self._mode)
            self._file = os.fdopen(descriptor, "ab", buffering=0)
            self._size = os.fstat(self._file.fileno()).st_size
        return self._file

    def _set_aside(self) -> None:
        self.close()
        for number in range(self._kept_files, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            with contextlib.suppress(FileNotFoundError):
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
