"""Errors of remote storage. Object stores raise the first four; their callers translate them into the others."""


class ObjectStoreError(Exception):
    """The object store or the request is at fault; a retry does not help."""


class StoreUnavailable(ObjectStoreError):
    """The store did not respond, or responded that it cannot now; a retry may succeed."""


class StoreThrottled(StoreUnavailable):
    """The store requests a lower rate (503 SlowDown and similar)."""


class ObjectNotFound(ObjectStoreError):
    """The object does not exist, or has no bytes in the requested range."""


class RemoteStorageError(Exception):
    """A segment could not be copied, read or deleted."""


class RetriableRemoteStorageError(RemoteStorageError):
    """A temporary failure; the segment is intact and a retry may succeed."""


class RemoteResourceNotFound(RemoteStorageError):
    """Remote storage has no such segment or index."""


class CorruptRemoteData(RemoteStorageError):
    """The store returned other bytes than were copied there."""


class CorruptLocalSegment(RemoteStorageError):
    """The local file of a segment is damaged, so it must not be copied."""


class LocalDiskError(RemoteStorageError):
    """The operating system failed a read of a local segment's files; `cause` is its error."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class RemoteMetadataNotReady(Exception):
    """The remote metadata of a partition are not loaded yet."""


class InvalidSegmentTransition(Exception):
    """An event that the state of its segment or partition does not allow."""
