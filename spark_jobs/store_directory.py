"""A directory of a store of objects, by name: what driver and executors hand on, and each opens for itself."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from protocol.primitives import Buffer
from storage.tiered.loading.store_uri import StoreAt, StoreUri, open_store
from storage.tiered.object_store import ObjectInfo


@lru_cache(maxsize=4)
def opened(uri: StoreUri) -> StoreAt:
    """One store for each place in a process: connections to S3 are dear, and safe to share."""
    return open_store(uri)


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """May be pickled. Names are those below `directory`, which ends in a slash if it is not empty. Raises as
    `ObjectStore` does.
    """

    uri: StoreUri
    directory: str = ""

    def put(self, name: str, parts: Iterable[Buffer]) -> int:
        """The size in bytes."""
        place = opened(self.uri)
        return place.store.put(place.key(self.directory + name), parts)

    def get(self, name: str) -> Iterator[bytes]:
        place = opened(self.uri)
        return place.store.get(place.key(self.directory + name))

    def listed(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Those that sort behind `after`, with names as they are here in place of keys."""
        place = opened(self.uri)
        whole = place.key(self.directory)
        for found in place.store.list(whole + prefix, whole + after if after else ""):
            yield found._replace(key=found.key.removeprefix(whole))

    def delete(self, names: Iterable[str]) -> None:
        place = opened(self.uri)
        keys = [place.key(self.directory + name) for name in names]
        if keys:
            place.store.delete(keys)
