"""Completion or reversal of deletions, cleanings and swaps of segments that a crash interrupted.

The suffixes of the files show how far the change had come.
"""

from collections.abc import Iterable

from storage.config import LogConfig
from storage.files import FileSystem, join
from storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    segment_file_name,
)
from storage.snapshots import SNAPSHOT_SUFFIX

_KINDS = {LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX}
_METADATA_SNAPSHOT_DELETED = ".checkpoint.deleted"
"""Suffix in the metadata log, whose owner removes such files."""


def settle_interrupted_changes(fs: FileSystem, directory: str) -> None:
    """Complete or undo deletions, cleanings and swaps that a crash interrupted, by the suffixes of their files."""
    for name in fs.list(directory):
        if name.endswith(DELETED_SUFFIX) and not name.endswith(_METADATA_SNAPSHOT_DELETED):
            fs.remove(join(directory, name))
    _undo_cleaning(fs, directory)
    _complete_swap(fs, directory)


def _undo_cleaning(fs: FileSystem, directory: str) -> None:
    """Remove `.cleaned` files, and `.swap` files from there on: a `.cleaned` file shows that the swap was
    incomplete.
    """
    cleaned = [(base, suffix) for base, suffix in _files_in(fs, directory) if suffix.endswith(CLEANED_SUFFIX)]
    if not cleaned:
        return
    lowest = min(base for base, _ in cleaned)
    swaps = [(b, s) for b, s in _files_in(fs, directory) if s.endswith(SWAP_SUFFIX) and b >= lowest]
    for base, suffix in swaps + cleaned:
        fs.remove(join(directory, segment_file_name(base, suffix)))


def _complete_swap(fs: FileSystem, directory: str) -> None:
    """Remove the files that `.swap` segments replace, then rename the `.swap` files."""
    files = _files_in(fs, directory)
    swaps = [(base, suffix) for base, suffix in files if suffix.endswith(SWAP_SUFFIX)]
    bases = sorted({base for base, suffix in swaps if suffix == LOG_SUFFIX + SWAP_SUFFIX})
    if bases:
        last = LogSegment(fs, directory, bases[-1], LogConfig(), created_ms=0, suffix=SWAP_SUFFIX)
        last.size = fs.size(last.path(LOG_SUFFIX))
        end = last.find_next_offset()
        last.close()
        for base, suffix in files:
            if not suffix.endswith(SWAP_SUFFIX) and bases[0] <= base < end:
                fs.remove(join(directory, segment_file_name(base, suffix)))
    for base, suffix in swaps:
        name = join(directory, segment_file_name(base, suffix))
        fs.rename(name, name.removesuffix(SWAP_SUFFIX))


def _files_in(fs: FileSystem, directory: str) -> list[tuple[int, str]]:
    return numbered_files(fs.list(directory))


def numbered_files(names: Iterable[str]) -> list[tuple[int, str]]:
    """Return (number, suffix) of the files of segments and of producer snapshots."""
    found = []
    for name in names:
        number, dot, suffix = name.partition(".")
        kind = dot + suffix.removesuffix(CLEANED_SUFFIX).removesuffix(SWAP_SUFFIX)
        if kind in _KINDS and number.isdigit():
            found.append((int(number), dot + suffix))
    return found
