"""The effective log configuration of topics (`broker.runtime.controller.dynamic_config`)."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
from broker.runtime.controller.dynamic_config import CACHED_LOG_CONFIGS, DynamicConfig
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


@pytest.fixture
def eager_switches() -> Iterator[None]:
    """Let the interpreter switch between threads all the time."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_switches")
def test_recovery_threads_may_ask_at_the_same_time() -> None:
    """Recovery opens logs on several threads, and each asks for the configuration of its topic."""
    topics = [f"t{number}" for number in range(CACHED_LOG_CONFIGS + 32)]
    records = [
        config_record(ConfigResource(ResourceType.TOPIC, topic), "retention.ms", str(number)).message
        for number, topic in enumerate(topics)
    ]
    config, image = DynamicConfig(config_with()), image_of(records)

    def ask_for_all(_thread: int) -> list[int]:
        return [config.log_config(image, topic).retention_ms for _ in range(20) for topic in topics]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask_for_all, range(4))) == [list(range(len(topics))) * 20] * 4
