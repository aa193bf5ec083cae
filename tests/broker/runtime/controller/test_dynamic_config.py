"""The effective log configuration of topics (`broker.runtime.controller.dynamic_config`)."""

from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.runtime.controller.dynamic_config import DynamicConfig
from storage.config import CleanupPolicy, LogConfig
from tests.broker.config.test_broker_config import config_with
from tests.broker.metadata.images import image_of

OVERRIDES = {"retention.ms": "1", "retention.bytes": "1", "cleanup.policy": "compact"}


def config_of(topic: str) -> LogConfig:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    records = [config_record(resource, key, value).message for key, value in OVERRIDES.items()]
    return DynamicConfig(config_with()).log_config(image_of(records), topic)


def test_remote_metadata_topic_has_no_retention() -> None:
    config = config_of("__remote_log_metadata")
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert config.cleanup_policy == {CleanupPolicy.DELETE}


def test_overrides_apply_to_other_topics() -> None:
    config = config_of("t")
    assert (config.retention_ms, config.retention_bytes, config.is_compacted) == (1, 1, True)
