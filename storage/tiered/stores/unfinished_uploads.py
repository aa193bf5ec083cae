"""Abandoned multipart uploads: no listing of objects shows them, and a store keeps their parts forever.

A failed upload is aborted if the store is reachable; the uploads of a killed process are unknown. An upload is younger
than its copy attempt, and an attempt ends with its lease (`reconcile.py`), which is renewed as long as bytes move: an
upload older than a grace time above the lease will not be completed, unless the metadata have a more recent
COPY_STARTED of its segment.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.object_store import ObjectStore
from storage.tiered.segment_metadata import RemoteSegmentId


class UnfinishedUpload(NamedTuple):
    """An upload to `key`; several uploads may have one key."""

    key: str
    id: str
    begun_ms: int


@runtime_checkable
class UploadsInParts(Protocol):
    """Additional methods of an ObjectStore with multipart uploads. Both raise as its methods."""

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the uploads whose keys begin with `prefix`."""
        ...

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Abort an upload; no error if it was completed or aborted meanwhile."""
        ...


def abandoned_uploads(
    store: ObjectStore,
    keys: ObjectKeys,
    topic: str | None,
    begun_before_ms: int,
    is_copied: Callable[[RemoteSegmentId], bool] = lambda _: False,
) -> Iterator[UnfinishedUpload]:
    """Yield the abandoned uploads of one topic name, or of all objects under the prefix of `keys`; none without
    multipart.

    Uploads outside the layout belong to others. `is_copied` returns whether a copy of a segment may be in progress.
    """
    if isinstance(store, UploadsInParts):
        for upload in store.unfinished_uploads(keys.prefix if topic is None else f"{keys.prefix}{topic}-"):
            parsed = keys.parse(upload.key)
            if parsed is None or topic not in (None, parsed.id.partition.topic):
                continue
            if upload.begun_ms < begun_before_ms and not is_copied(parsed.id):
                yield upload


def abort(store: ObjectStore, upload: UnfinishedUpload) -> None:
    """Abort an upload of `store`."""
    assert isinstance(store, UploadsInParts)
    store.abort_upload(upload)
