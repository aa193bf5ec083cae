"""Whether a broker may do without remote storage: not while topics keep segments there.

It would find the beginning of their logs nowhere, and let nothing leave its disk. Kafka does not start then either
(KAFKA-15267).
"""

from broker.config.errors import ConfigError
from broker.metadata.config_image import ResourceType
from broker.metadata.image import MetadataImage
from storage.log import NEVER_TIERED

_SWITCH = "remote.log.storage.system.enable"
_TOPIC_SWITCH = "remote.storage.enable"


def check_nothing_is_remote(image: MetadataImage) -> None:
    """For a broker whose remote storage is off. Raises ConfigError."""
    configs = image.configs
    tiered = [
        name
        for name in configs.names(ResourceType.TOPIC)
        if configs.topic(name).get(_TOPIC_SWITCH, "").strip().lower() == "true" and name not in NEVER_TIERED
    ]
    if tiered:
        more = f" and {len(tiered) - 1} more" if len(tiered) > 1 else ""
        raise ConfigError(
            _SWITCH,
            f"{_SWITCH} must stay on while topics keep segments in remote storage, as {tiered[0]}{more}: delete them,"
            f" or turn {_TOPIC_SWITCH} off for them, first.",
        )
