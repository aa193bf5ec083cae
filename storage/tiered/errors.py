"""What can go wrong in remote storage. Stores raise the first four; what uses them turns those into the rest."""


class ObjectStoreError(Exception):
    """Something is wrong with an object store or with what was asked of it; repeating it does not help."""


class StoreUnavailable(ObjectStoreError):
    """The store did not answer, or said that it cannot now; the same request may succeed later."""


class StoreThrottled(StoreUnavailable):
    """The store asks for fewer requests (503 SlowDown and its kin)."""


class ObjectNotFound(ObjectStoreError):
    """There is no object of that name, or no bytes where they were asked for."""


class RemoteStorageError(Exception):
    """A segment could not be copied, read or deleted."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The same call may succeed later; nothing is wrong with the segment."""


class RemoteResourceNotFound(RemoteStorageError):
    """Remote storage has no such segment or index."""


class CorruptRemoteData(RemoteStorageError):
    """What the store gave back is not what was copied there."""


class RemoteMetadataNotReady(Exception):
    """What remote storage holds of a partition is not known here yet."""


class InvalidSegmentTransition(Exception):
    """An event that the state of its segment or partition does not allow."""
