"""A minimal foreign remote metadata manager: every event in one file that is read at startup.

For one broker, as target of `remote.log.metadata.manager.class.name`. The setting `shelf.path` names the file.
"""

import asyncio
import pickle
from collections.abc import Awaitable, Mapping
from pathlib import Path

from storage.tiered.remote_metadata import RemoteMetadataContext
from storage.tiered.segment_metadata import TopicIdPartition
from tests.support.fakes.memory_remote_metadata import Event, MemoryRemoteMetadata


class FileRemoteMetadata(MemoryRemoteMetadata):
    """Both the RemoteMetadataFactory and the manager."""

    def __init__(self, settings: Mapping[str, str], context: RemoteMetadataContext) -> None:
        super().__init__()
        if "shelf.path" not in settings:
            raise ValueError("rlmm.config.shelf.path must name a file.")
        self._path = Path(settings["shelf.path"])
        self._context = context
        if self._path.exists():
            with self._path.open("rb") as file:
                while file.peek(1):
                    self.log.publish(pickle.load(file), asyncio.get_running_loop().create_future())

    def _publish(self, partition: TopicIdPartition, event: Event) -> Awaitable[None]:
        done = super()._publish(partition, event)
        assert isinstance(done, asyncio.Future)
        if done.exception() is None:
            assert self._context.bootstrap_server() is not None, "a broker is registered before it copies"
            with self._path.open("ab") as file:
                pickle.dump(event, file)
        return done
