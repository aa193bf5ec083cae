"""Uploads in parts that came to no end: no listing of objects tells of them, and a store keeps their parts for ever.

Who uploads aborts what fails, if the store can be reached then; what a process leaves that is killed, nobody knows of.
An upload is younger than the attempt that it is of, and an attempt is given up after its lease (`reconcile.py`): what
was begun longer ago than a grace time above that will not be completed.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.object_store import ObjectStore


class UnfinishedUpload(NamedTuple):
    """`key` is of the object that it was to become; several uploads may be of one key."""

    key: str
    id: str
    begun_ms: int


@runtime_checkable
class UploadsInParts(Protocol):
    """What a store has beside `ObjectStore` that takes large objects in parts. Both raise as its methods."""

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Of keys that begin with `prefix`."""
        ...

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """What was completed or aborted meanwhile is no error."""
        ...


def abandoned_uploads(
    store: ObjectStore, keys: ObjectKeys, topic: str | None, begun_before_ms: int
) -> Iterator[UnfinishedUpload]:
    """Those of the objects of one name of a topic, or of all under the prefix of `keys`; none where there are no parts.

    What has no place in the layout is somebody else's.
    """
    if isinstance(store, UploadsInParts):
        for upload in store.unfinished_uploads(keys.prefix if topic is None else f"{keys.prefix}{topic}-"):
            parsed = keys.parse(upload.key)
            is_wanted = parsed is not None and topic in (None, parsed.id.partition.topic)
            if is_wanted and upload.begun_ms < begun_before_ms:
                yield upload


def abort(store: ObjectStore, upload: UnfinishedUpload) -> None:
    """`store` is where it was found."""
    assert isinstance(store, UploadsInParts)
    store.abort_upload(upload)
