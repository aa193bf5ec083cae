"""Replacement of segments by the compacted segment made from them."""

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
    """Rename the files in an order in which a crash at any point leaves either side whole:

    1. the new segment is synced and becomes `.swap`: from here on it replaces the old ones at the next start;
    2. the old ones become `.deleted`; producer snapshots at their base offsets are removed;
    3. the new one gets its final name.
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
