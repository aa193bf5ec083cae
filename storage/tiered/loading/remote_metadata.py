"""From the name of what keeps remote metadata to one that works (`remote.log.metadata.manager.class.name`).

The one that comes with the broker lives on the metadata topic, and is put together where the broker is; every other is
the import path of a RemoteMetadataFactory.
"""

from collections.abc import Mapping
from typing import Final, cast

from storage.tiered.loading.import_paths import imported, made
from storage.tiered.remote_metadata import RemoteLogMetadataManager, RemoteMetadataContext, RemoteMetadataFactory

CLASS_NAME_KEY: Final = "remote.log.metadata.manager.class.name"
ON_TOPIC: Final = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def is_on_topic(name: str) -> bool:
    """Whether that is the implementation that comes with the broker."""
    return name in ("topic", ON_TOPIC)


def load_remote_metadata(
    name: str, settings: Mapping[str, str], context: RemoteMetadataContext, class_path: str | None = None
) -> RemoteLogMetadataManager:
    """An implementation of somebody's own. `settings` are without their prefix, `class_path` is where its module is
    looked for first. Raises ValueError with one sentence that names the key.
    """
    factory = cast(RemoteMetadataFactory, imported(CLASS_NAME_KEY, name, class_path, "topic"))
    return made(CLASS_NAME_KEY, name, lambda: factory(settings, context))
