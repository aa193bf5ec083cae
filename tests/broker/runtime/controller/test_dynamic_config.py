"""The effective log configuration of topics (`broker.runtime.controller.dynamic_config`)."""

from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
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


def test_topics_with_equal_overrides_share_one_parsed_configuration() -> None:
    """Parsing the configuration for each of 4,000 new partitions took 0.25 s of the event loop."""
    config, image = DynamicConfig(config_with()), image_of([])
    assert config.log_config(image, "burst-1") is config.log_config(image, "burst-2")


def test_changed_broker_configs_reach_topics_asked_for_before() -> None:
    config, image = DynamicConfig(config_with()), image_of([])
    before = config.log_config(image, "t").flush_ms
    delta = MetadataDelta(image)
    delta.replay(config_record(ConfigResource(ResourceType.BROKER, ""), "log.flush.interval.ms", "10").message)
    config.on_metadata(delta, delta.apply(image.provenance))
    assert before != 10
    assert config.log_config(image, "t").flush_ms == 10
