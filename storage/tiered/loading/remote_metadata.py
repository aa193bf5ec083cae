"""Loader of the remote metadata manager (`remote.log.metadata.manager.class.name`).

The topic-based implementation comes with the broker and is built elsewhere; any other name is the import path of a
RemoteMetadataFactory.
"""

from collections.abc import Mapping
from typing import Final, cast

from storage.tiered.loading.import_paths import imported, made
from storage.tiered.remote_metadata import RemoteLogMetadataManager, RemoteMetadataContext, RemoteMetadataFactory

CLASS_NAME_KEY: Final = "remote.log.metadata.manager.class.name"
ON_TOPIC: Final = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def is_on_topic(name: str) -> bool:
    """Whether the name stands for the topic-based implementation of the broker."""
    return name in ("topic", ON_TOPIC)


def load_remote_metadata(
    name: str, settings: Mapping[str, str], context: RemoteMetadataContext, class_path: str | None = None
) -> RemoteLogMetadataManager:
    """Load a foreign implementation. `settings` are without their prefix; `class_path` is searched first for its
    module. Raises ValueError with one sentence that names the key.
    """
    factory = cast(RemoteMetadataFactory, imported(CLASS_NAME_KEY, name, class_path, "topic"))
    return made(CLASS_NAME_KEY, name, lambda: factory(settings, context))
