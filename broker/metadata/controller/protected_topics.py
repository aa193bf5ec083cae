"""Protection of `__remote_log_metadata` against requests that make brokers forget remote segments. Pure.

The topic is the only index of the data in remote storage. A user partition's events are in the metadata partition that
a hash of its id modulo the partition count selects, so that another partition count hides existing events.
"""

from typing import Final

from broker.metadata.controller.state import ControllerState
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.topic_names import REMOTE_LOG_METADATA_TOPIC
from protocol.errors import ErrorCode, KafkaError

DELETION_KEY: Final = "ottla.remote.log.metadata.topic.deletion.enable"
_REMOTE: Final = "remote.storage.enable"


def check_deletion(state: ControllerState, topic: str) -> None:
    """Raise KafkaError POLICY_VIOLATION if a tiered topic still needs the topic."""
    if topic != REMOTE_LOG_METADATA_TOPIC or _is_deletion_enabled(state):
        return
    configs = state.image.configs
    tiered = next((name for name in configs.names(ResourceType.TOPIC) if _is_tiered(state, name)), None)
    if tiered is not None:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic '{topic}' locates the remote segments of topic '{tiered}'; disable {_REMOTE} on all topics first, "
            f"or set the cluster-wide broker config {DELETION_KEY}=true",
        )


def check_new_partitions(topic: str) -> None:
    """Raise KafkaError POLICY_VIOLATION if another partition count hides the topic's records."""
    if topic == REMOTE_LOG_METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the partition count of topic '{topic}' is fixed: brokers would not find existing remote segments",
        )


def _is_deletion_enabled(state: ControllerState) -> bool:
    stored = state.image.configs.cluster_default().get(DELETION_KEY)
    return state.settings.remote_metadata_deletion_enable if stored is None else stored.strip().lower() == "true"


def _is_tiered(state: ControllerState, topic: str) -> bool:
    return state.image.configs.topic(topic).get(_REMOTE, "").strip().lower() == "true"
