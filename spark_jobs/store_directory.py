"""A directory of an object store by URI, which driver and executors exchange and open separately."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from protocol.primitives import Buffer
from storage.tiered.loading.store_uri import StoreAt, StoreUri, open_store
from storage.tiered.object_store import ObjectInfo


@lru_cache(maxsize=4)
def opened(uri: StoreUri) -> StoreAt:
    """Return one store per location and process: S3 connections are expensive, and safe to share."""
    return open_store(uri)


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """A directory, which can be pickled. Names are relative to `directory`, which is empty or ends in a slash. Raises
    the exceptions of `ObjectStore`.
    """

    uri: StoreUri
    directory: str = ""

    def put(self, name: str, parts: Iterable[Buffer]) -> int:
        """Write an object; return its size in bytes."""
        place = opened(self.uri)
        return place.store.put(place.key(self.directory + name), parts)

    def put_new(self, name: str, content: Buffer) -> bool:
        """Write an object unless it exists; see `ConditionalStore.put_new`."""
        place = opened(self.uri)
        return place.store.put_new(place.key(self.directory + name), content)

    def get(self, name: str) -> Iterator[bytes]:
        place = opened(self.uri)
        return place.store.get(place.key(self.directory + name))

    def listed(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects that sort after `after`, with names relative to the directory as keys."""
        place = opened(self.uri)
        whole = place.key(self.directory)
        for found in place.store.list(whole + prefix, whole + after if after else ""):
            yield found._replace(key=found.key.removeprefix(whole))

    def delete(self, names: Iterable[str]) -> None:
        place = opened(self.uri)
        keys = [place.key(self.directory + name) for name in names]
        if keys:
            place.store.delete(keys)
