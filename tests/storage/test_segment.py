"""The file of a segment, which other threads use while it is released."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage.config import LogConfig
from storage.files import File, OsFileSystem
from storage.segment import LogSegment


class _NumberedFile:
    """A file that calls `on_drop` when its last reference is gone."""

    def __init__(self, file: File, number: int, on_drop: Callable[[], None]) -> None:
        self._file = file
        self.number = number
        self._on_drop = on_drop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __del__(self) -> None:
        self._on_drop()


class _NumberingFileSystem:
    """Numbers the files that it opens. `on_drop` is called for each that is dropped, `on_open` before the next opening.

    The class does not derive from OsFileSystem, which may be compiled.
    """

    def __init__(self) -> None:
        self._fs = OsFileSystem()
        self.opened = 0
        self.on_drop: Callable[[], None] = lambda: None
        self.on_open: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def open(self, path: str) -> Any:
        on_open, self.on_open = self.on_open, lambda: None
        on_open()
        self.opened += 1
        return _NumberedFile(self._fs.open(path), self.opened, lambda: self.on_drop())


def _number(segment: LogSegment) -> int:
    file: Any = segment.file
    return int(file.number)


def _segment(directory: str) -> tuple[LogSegment, _NumberingFileSystem]:
    fs = _NumberingFileSystem()
    files: Any = fs
    segment = LogSegment.create(files, directory, 0, LogConfig(), created_ms=0)
    segment.close()
    fs.opened = 0
    return segment, fs


def test_segment_does_not_return_a_file_that_is_being_closed(tmp_path: Path) -> None:
    segment, fs = _segment(str(tmp_path))
    assert _number(segment) == 1
    seen: list[int] = []

    def read_as_another_thread() -> None:
        fs.on_drop = lambda: None
        seen.append(_number(segment))

    fs.on_drop = read_as_another_thread
    segment.close()

    assert seen == [2]


def test_threads_that_open_the_file_of_a_segment_at_once_share_it(tmp_path: Path) -> None:
    segment, fs = _segment(str(tmp_path))
    first: list[int] = []
    fs.on_open = lambda: first.append(_number(segment))

    assert (_number(segment), first) == (1, [1])
    assert _number(segment) == 1
