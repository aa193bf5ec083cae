"""Puts a compacted segment in the place of those it was made from."""

from collections.abc import Sequence

from storage.files import FileSystem
from storage.segment import DELETED_SUFFIX, SWAP_SUFFIX, LogSegment
from storage.segments import Segments
from storage.snapshots import ProducerSnapshots


def replace_segments(
    fs: FileSystem,
    directory: str,
    segments: Segments,
    snapshots: ProducerSnapshots,
    cleaned: LogSegment,
    replaced: Sequence[LogSegment],
) -> None:
    """Renames, such that a crash at any point leaves either side whole:

    1. the new segment is synced and is `.swap`: from here on it wins at the next start;
    2. the old ones are `.deleted`, and so are producer snapshots at bases that are no segment's any more;
    3. the new one has its name.
    """
    cleaned.sync(indexes=True)
    cleaned.change_suffix(SWAP_SUFFIX)
    fs.sync_directory(directory)
    for segment in replaced:
        segments.remove(segment)
        segment.change_suffix(DELETED_SUFFIX)
        if segment.base_offset != cleaned.base_offset:
            snapshots.remove(segment.base_offset)
    fs.sync_directory(directory)
    cleaned.change_suffix("")
    fs.sync_directory(directory)
    segments.add(cleaned)
